"""Owns a raw dataset as one DataFrame over both stores: files by Spark's reader, the rest by ours.

`format("unfork")` gives the same rows, but all of them through Python. Whoever holds a session
reads history several times faster this way: Spark's Parquet reader takes only the columns and the
groups of rows that a query needs.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from unfork import errors
from unfork.chain.span import Span
from unfork.jobs.spark import options, raw_reading, schema
from unfork.jobs.spark import place as places
from unfork.jobs.spark.place import Place
from unfork.jobs.spark.raw_reading import Reading
from unfork.lake import read as lake_read
from unfork.lake.storage import Storage


def read(spark: SparkSession, dataset: str, **given: object) -> DataFrame:
    """A raw dataset as a DataFrame; `given` are the options of `format("unfork")`."""
    named = {key: str(value) for key, value in given.items() if value is not None}
    request = options.parse({"dataset": dataset, **named})
    return frame(spark, places.find(request.config, request.chain), {"dataset": dataset, **named})


def frame(spark: SparkSession, place: Place, given: Mapping[str, str]) -> DataFrame:
    """The same at a place; the options are decided now, whenever the DataFrame is used."""
    request = options.parse(given)
    dataset = raw_reading.known(place).get(request.dataset)
    if dataset is None:
        raise errors.ConfigInvalid(f"option dataset: {request.dataset!r} is no raw dataset")
    reading = raw_reading.resolve(request, place, dataset)
    wanted = reading.moment.span
    if wanted is None or not reading.cold.spans:
        return spark.read.format("unfork").options(**given).load()
    frames = [_cold(spark, place, reading, wanted)]
    frames += [_hot(spark, reading, given, span) for span in reading.hot(wanted)]
    return functools.reduce(lambda left, right: left.unionByName(right), frames)


def _cold(spark: SparkSession, place: Place, reading: Reading, wanted: Span) -> DataFrame:
    """The rows that the lake has."""
    number = reading.dataset.number_column
    columns = reading.columns
    if number not in [column.name for column in columns]:
        columns = (*columns, *(one for one in reading.dataset.columns if one.name == number))
    found = lake_read.frame(
        spark,
        Storage.of(place.config),
        schema.struct(columns),
        reading.cold.pieces(wanted),
        number=number,
    )
    return found.select(*(column.name for column in reading.columns))


def _hot(spark: SparkSession, reading: Reading, given: Mapping[str, str], span: Span) -> DataFrame:
    """The rows of some blocks in the hot tables, at the same moment."""
    moment = reading.moment
    assert moment.at is not None
    named = {
        **given,
        "store": "hot",
        "first": str(span.first),
        "last": str(span.last),
        "at": options.text(moment.at),
        "floor": str(moment.floor),
        "epoch": str(moment.epoch),
    }
    return spark.read.format("unfork").options(**named).load()
