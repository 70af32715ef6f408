"""Owns the encoding of a handful of rows as binary COPY data, value by value.

At the head of a chain a batch is one block: a few rows of many columns. There numpy's fixed price a
column is higher than Python's price a value. The format, and what it means, is told in `copy`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

NULL = b"\xff\xff\xff\xff"

#: Microseconds from 1970, where Arrow counts from, to 2000, where Postgres does.
EPOCH_US = 946_684_800_000_000
#: The same in days.
EPOCH_DAYS = 10_957

_BYTEA_OID = 17
_length = struct.Struct(">i").pack
_bigint = struct.Struct(">iq").pack


def rows(columns: Sequence[pa.Array], types: Sequence[str]) -> bytes:
    """The rows of the columns, without header and trailer."""
    fields = [_column(column, kind) for column, kind in zip(columns, types, strict=True)]
    start = len(columns).to_bytes(2, "big")
    return b"".join([start + b"".join(row) for row in zip(*fields, strict=True)])


def array(items: Sequence[bytes | None]) -> bytes:
    """The value of a bytea[]."""
    if not items:
        return struct.pack(">iii", 0, 0, _BYTEA_OID)
    head = struct.pack(">iiiii", 1, int(None in items), _BYTEA_OID, len(items), 1)
    return head + b"".join(NULL if item is None else _bytes(item) for item in items)


def signed(value: bytes) -> bytes:
    """A number in two's complement, big-endian, as a value of numeric."""
    return _number(int.from_bytes(value, "big", signed=True))


def _column(column: pa.Array, kind: str) -> list[bytes]:
    if column.null_count == len(column):
        return [NULL] * len(column)
    plain = column.cast(_PLAIN[kind]) if kind in _PLAIN else column
    encode = _ENCODERS[kind]
    return [NULL if value is None else encode(value) for value in plain.to_pylist()]


def _bytes(value: bytes) -> bytes:
    return _length(len(value)) + value


def _number(number: int) -> bytes:
    sign, number = (0x4000, -number) if number < 0 else (0, number)
    digits = []
    while number:
        number, digit = divmod(number, 10_000)
        digits.append(digit)
    count = len(digits)
    return struct.pack(f">{4 + count}H", count, max(count - 1, 0), sign, 0, *reversed(digits))


#: How Arrow counts time, for the types that are time.
_PLAIN = {"timestamptz": pa.int64(), "date": pa.int32()}

_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "bigint": lambda value: _bigint(8, value),
    "bytea": _bytes,
    "text": lambda value: _bytes(value.encode()),
    "boolean": lambda value: _bytes(b"\x01" if value else b"\x00"),
    "timestamptz": lambda value: _bigint(8, value - EPOCH_US),
    "date": lambda value: struct.pack(">ii", 4, value - EPOCH_DAYS),
    "numeric(78,0)": lambda value: _bytes(_number(int.from_bytes(value, "big"))),
    "numeric": lambda value: _bytes(signed(value)),
    "bytea[]": lambda value: _bytes(array(value)),
    "jsonb": lambda value: _bytes(b"\x01" + value.encode()),
}
