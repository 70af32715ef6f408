"""Owns how a dataset looks in Spark: its types, and what they stand for.

Spark has one binary type; whether 32 bytes are a hash or a number stands in the column's metadata,
under `kind`, as the Postgres type of the column. It survives a select, and tells whoever writes the
result what the column is.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from unfork.datasets.dataset import Column, Kind

#: The key of a column's metadata that holds its Postgres type.
KIND = "kind"

SPARK: dict[Kind, DataType] = {
    Kind.INT: LongType(),
    Kind.U256: BinaryType(),
    Kind.SIGNED: BinaryType(),
    Kind.BYTES: BinaryType(),
    Kind.TEXT: StringType(),
    Kind.TIME: TimestampType(),
    Kind.DATE: DateType(),
    Kind.BOOL: BooleanType(),
    Kind.BYTES_LIST: ArrayType(BinaryType()),
    Kind.JSON: StringType(),
}


def struct(columns: Sequence[Column]) -> StructType:
    """The columns as Spark has them."""
    return StructType(
        [
            StructField(column.name, SPARK[column.kind], column.nullable, {KIND: column.kind.value})
            for column in columns
        ]
    )


def arrow(columns: Sequence[Column]) -> pa.Schema:
    """The columns as Spark takes them from a Python worker."""
    return to_arrow_schema(struct(columns), timezone="UTC")
