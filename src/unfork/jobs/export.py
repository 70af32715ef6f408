"""Owns the export of rows: a span of a dataset as files that other programs read.

Parquet keeps every value as it is: bytes as bytes, 256-bit numbers as 32 bytes. CSV is text: bytes
as 0x hex, numbers of any size as digits, lists as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from unfork.jobs import views

Format = Literal["parquet", "csv"]


def write(frame: DataFrame, path: str, *, format: Format) -> None:
    """Writes rows into a new folder; raises where there is one already."""
    if format == "parquet":
        frame.write.mode("error").option("compression", "zstd").parquet(path)
        return
    _texts(frame).write.mode("error").option("header", "true").csv(path)


def _texts(frame: DataFrame) -> DataFrame:
    """The same rows with every value as text."""
    fields = frame.schema.fields
    shape = StructType([StructField(field.name, StringType(), True) for field in fields])

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([_text(field, value) for value in column.to_pylist()], pa.string())
                    for field, column in zip(fields, batch.columns, strict=True)
                ],
                names=[field.name for field in fields],
            )

    return frame.mapInArrow(each, shape)


def _text(field: StructField, value: Any) -> str | None:
    shown = views.shown(field, value)
    if shown is None or isinstance(shown, str):
        return shown
    return json.dumps(shown)
