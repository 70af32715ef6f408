"""Owns the comparison of expected rows with actual ones, whatever store those come from.

Rows are matched by the key of their dataset, in any order. Actual values are brought to plain
Python first: a 256-bit number may arrive as 32 bytes or as a Decimal, a document as text. Columns
that a dataset does not declare (a store's own) are not compared. A difference is told so that a
person can act on it: which keys are missing, which are too many, which columns differ and how.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from unfork.datasets import evm
from unfork.datasets.dataset import Dataset, Kind

Row = Mapping[str, Any]
Key = tuple[Any, ...]

#: Keys shown of each sort of difference.
SHOWN = 3
#: Characters shown of one value.
_VALUE_WIDTH = 80


def difference(dataset: Dataset, expected: Iterable[Row], actual: Iterable[Row]) -> str:
    """What is wrong with the actual rows, empty where nothing is; expected values are plain."""
    wanted, repeated = _by_key(dataset, expected)
    assert not repeated, f"{dataset.name}: the expected rows repeat {repeated[0]}"
    found, doubled = _by_key(dataset, (plain(dataset, row) for row in actual))
    lines = [
        *_keys("missing", sorted(wanted.keys() - found.keys())),
        *_keys("extra", sorted(found.keys() - wanted.keys())),
        *_keys("doubled", doubled),
    ]
    differing = [key for key in sorted(wanted.keys() & found.keys()) if wanted[key] != found[key]]
    lines += _keys("differing", differing)
    for key in differing[:SHOWN]:
        lines += _columns(key, wanted[key], found[key])
    if not lines:
        return ""
    title = f"{dataset.name}: {len(wanted)} rows expected, {len(found) + len(doubled)} found"
    return "\n  ".join([title, *lines])


def differences(expected: Mapping[str, Iterable[Row]], actual: Mapping[str, Iterable[Row]]) -> str:
    """The differences of all datasets that the actual rows name, empty where there are none."""
    told = (
        difference(evm.BY_NAME[name], expected[name], actual[name])
        for name in sorted(actual.keys())
    )
    return "\n".join(text for text in told if text)


def rows_from(dataset: Dataset, table: pa.Table) -> list[dict[str, Any]]:
    """The rows of an Arrow table of a dataset as plain values."""
    return [plain(dataset, row) for row in table.to_pylist()]


def plain(dataset: Dataset, row: Row) -> dict[str, Any]:
    """The declared columns of a row as plain values; a column that is not there is `ABSENT`."""
    return {
        column.name: _plain(_CONVERT[column.kind], row.get(column.name, ABSENT))
        for column in dataset.columns
    }


class _Absent:
    def __repr__(self) -> str:
        return "(no such column)"


#: Stands for a column that a row does not have; equal to nothing else.
ABSENT = _Absent()


def _plain(convert: Callable[[Any], Any], value: Any) -> Any:
    return value if value is None or value is ABSENT else convert(value)


def _u256(value: Any) -> int:
    if isinstance(value, bytes | bytearray | memoryview):
        return int.from_bytes(bytes(value), "big")
    assert not isinstance(value, Decimal) or value == int(value)
    return int(value)


def _signed(value: Any) -> int:
    if isinstance(value, bytes | bytearray | memoryview):
        return int.from_bytes(bytes(value), "big", signed=True)
    assert not isinstance(value, Decimal) or value == int(value)
    return int(value)


def _time(value: datetime) -> datetime:
    assert value.tzinfo is not None, "a moment without its zone could be any of many"
    return value.astimezone(UTC)


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str | bytes) else value


_CONVERT: dict[Kind, Callable[[Any], Any]] = {
    Kind.INT: int,
    Kind.U256: _u256,
    Kind.SIGNED: _signed,
    Kind.BYTES: bytes,
    Kind.TEXT: str,
    Kind.TIME: _time,
    Kind.DATE: lambda value: value,
    Kind.BOOL: bool,
    Kind.BYTES_LIST: lambda values: [bytes(value) for value in values],
    Kind.JSON: _json,
}


def _by_key(dataset: Dataset, rows: Iterable[Row]) -> tuple[dict[Key, Row], list[Key]]:
    """Rows by key, and the keys that came more than once."""
    found: dict[Key, Row] = {}
    doubled = []
    for row in rows:
        key = tuple(row[name] for name in dataset.key)
        if key in found:
            doubled.append(key)
        found[key] = row
    return found, doubled


def _keys(sort: str, keys: Sequence[Key]) -> list[str]:
    if not keys:
        return []
    shown = ", ".join(str(key) for key in keys[:SHOWN])
    return [f"{sort} {len(keys)}: {shown}{', ...' if len(keys) > SHOWN else ''}"]


def _columns(key: Key, wanted: Row, found: Row) -> list[str]:
    return [
        f"{key} {name}: expected {_shown(wanted[name])}, found {_shown(found[name])}"
        for name in wanted
        if wanted[name] != found[name]
    ]


def _shown(value: Any) -> str:
    text = "0x" + value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= _VALUE_WIDTH else text[:_VALUE_WIDTH] + "..."
