"""Owns the declaration of a dataset: columns, key, partition size and payload columns.

A dataset says what it is; stores, sources and jobs read the declaration and decide how. The
physical types are few on purpose, each with one Arrow type and one Postgres type.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa


class Kind(Enum):
    """What a column holds; the value is its Postgres type."""

    #: A 64-bit signed number: heights, indexes, gas.
    INT = "bigint"
    #: A 256-bit unsigned number: 32 bytes big-endian in Arrow, Spark and Parquet.
    U256 = "numeric(78,0)"
    #: A signed number of any size, such as a sum of 256-bit ones: two's complement, big-endian.
    SIGNED = "numeric"
    #: Bytes of any length: hashes, addresses, data.
    BYTES = "bytea"
    #: Text without NUL.
    TEXT = "text"
    #: A moment in UTC.
    TIME = "timestamptz"
    #: A day in UTC.
    DATE = "date"
    #: Yes or no.
    BOOL = "boolean"
    #: A list of byte strings.
    BYTES_LIST = "bytea[]"
    #: A JSON document as text.
    JSON = "jsonb"


ARROW: dict[Kind, pa.DataType] = {
    Kind.INT: pa.int64(),
    Kind.U256: pa.binary(32),
    Kind.SIGNED: pa.binary(),
    Kind.BYTES: pa.binary(),
    Kind.TEXT: pa.string(),
    Kind.TIME: pa.timestamp("us", tz="UTC"),
    Kind.DATE: pa.date32(),
    Kind.BOOL: pa.bool_(),
    Kind.BYTES_LIST: pa.list_(pa.binary()),
    Kind.JSON: pa.string(),
}


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a dataset."""

    name: str
    kind: Kind
    #: Whether the chain may leave the value out.
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Payload:
    """A column whose large values move to the payload store."""

    #: The column that holds the value while it is small, NULL once it is stored elsewhere.
    column: str
    #: Holds the SHA-256 of a value stored elsewhere.
    hash_column: str
    #: Holds the address of a value stored elsewhere.
    ref_column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A table of the chain: what its rows are, not how they are kept."""

    name: str
    #: Which chains have it: "evm" or "flow".
    family: str
    columns: tuple[Column, ...]
    #: The columns that identify a row; the first is the block number.
    key: tuple[str, ...]
    #: Block numbers per partition of the hot table.
    partition_size: int
    #: Columns offloaded when large.
    payloads: tuple[Payload, ...] = ()
    #: A guess of one row's size in the hot store with its indexes, for capacity reports.
    row_bytes: int = 200
    #: Extra hot indexes: tuples of columns, each led by what people look up.
    indexes: tuple[tuple[str, ...], ...] = field(default=())

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        assert len(set(names)) == len(names)
        assert set(self.key) <= set(names)
        assert self.key[0] == self.number_column

    @property
    def number_column(self) -> str:
        """The column of the block number: `number` in blocks, `block_number` elsewhere."""
        return "number" if self.name == "blocks" else "block_number"

    @property
    def hash_column(self) -> str:
        """The column of the block hash: `hash` in blocks, `block_hash` elsewhere."""
        return "hash" if self.name == "blocks" else "block_hash"

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a batch of rows, as sources hand them on (payloads whole)."""
        return pa.schema(
            [pa.field(c.name, ARROW[c.kind], nullable=c.nullable) for c in self.columns]
        )
