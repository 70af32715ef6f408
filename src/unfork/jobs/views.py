"""Owns the datasets of a chain as views of a Spark session, for people who ask in SQL.

Raw views are all of one block, the position when they were made; what jobs wrote stands at the
watermark that it had then. Only views that a question names are made: each takes a look at the
databases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from unfork import errors
from unfork.chain.block import BlockRef
from unfork.datasets.dataset import Kind
from unfork.jobs.spark import joined, options, raw_reading, schema
from unfork.jobs.spark.place import Place

_NUMBERS = {Kind.U256.value, Kind.SIGNED.value}


def names(place: Place) -> tuple[str, ...]:
    """Every dataset that there is to read, raw ones first."""
    with place.app() as connection:
        served = connection.table(place.queries["derived_names"]).column("dataset").to_pylist()
    return (*raw_reading.known(place), *served)


def named_in(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """The datasets that a statement may speak of: those whose name is a word of it."""
    words = set(re.findall(r"\w+", text.lower()))
    return tuple(name for name in known if name in words)


def make(
    spark: SparkSession, place: Place, wanted: Sequence[str], *, config: str | None = None
) -> BlockRef | None:
    """Makes views of the same names; returns the block that the raw ones are of.

    `config` is the path by which tasks find the configuration, None for their own.
    """
    at = _position(place)
    raw = raw_reading.known(place)
    for name in wanted:
        if name in raw and at is None:
            continue
        given = {"config": config, "at": options.text(at) if name in raw and at else None}
        frame(spark, place, name, **given).createOrReplaceTempView(name)
    return at


def frame(spark: SparkSession, place: Place, name: str, **given: object) -> DataFrame:
    """A dataset as a DataFrame, wherever its rows are; `given` are options of the data source."""
    named = {"dataset": name, "chain": place.chain.name}
    named |= {key: str(value) for key, value in given.items() if value is not None}
    if name in raw_reading.known(place):
        return joined.frame(spark, place, named)
    if name not in (known := names(place)):
        raise errors.ConfigInvalid(
            f"{place.chain.name} has no dataset {name!r}; there are {', '.join(known)}"
        )
    return spark.read.format("unfork").options(**named).load()


def shown(field: StructField, value: Any) -> Any:
    """A value as people and JSON have it: bytes as 0x hex, numbers of any size as numbers."""
    match value:
        case bytes() | bytearray():
            kind = (field.metadata or {}).get(schema.KIND)
            if kind in _NUMBERS:
                return int.from_bytes(value, "big", signed=kind == Kind.SIGNED.value)
            return "0x" + value.hex()
        case datetime() | date():
            return value.isoformat()
        case list():
            return [shown(field, one) for one in value]
        case _:
            return value


def _position(place: Place) -> BlockRef | None:
    with place.raw() as connection:
        row = connection.row(place.queries["read_chain"])
    if row is None or row["position_number"] is None:
        return None
    return BlockRef(row["position_number"], row["position_hash"])
