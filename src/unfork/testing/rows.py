"""Owns rows as tests see them: plain Python values, and the names that the test's text gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

Row = dict[str, Any]

#: The columns that say where a row stands on the chain, in the order of the chain.
PLACES = ("block_number", "transaction_index", "log_index", "trace_index", "batch_ordinal")


class Rows(list[Row]):
    """The rows of a dataset in the order of the chain.

    Numbers are int, bytes are 0x and hex, times and days are Python's. Rows whose block a fork took
    away are not among them.
    """

    def __init__(
        self,
        rows: Iterable[Row],
        *,
        named: Callable[[Any], Any] = lambda value: value,
        failure: str | None = None,
        warnings: Iterable[str] = (),
    ) -> None:
        super().__init__(rows)
        self._named = named
        #: Why the job could not go on; None where it did. The rows are those of before.
        self.failure = failure
        #: What checks have found that only warn.
        self.warnings = tuple(warnings)

    def select(self, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of every row; accounts by their names, hashes of blocks by their labels."""
        return [tuple(self._named(row[column]) for column in columns) for row in self]


def ordered(rows: Iterable[Row]) -> list[Row]:
    """Rows in the order of the chain, those of one place by their other columns."""
    return sorted(rows, key=lambda row: tuple(map(_rank, _sorted_by(row))))


def plain(row: Mapping[str, Any]) -> Row:
    """A row of the database as plain values."""
    return {name: _plain(value) for name, value in row.items()}


def message(text: str) -> str:
    """An error without its code, which tests have no use for."""
    return re.sub(r"^\[E\d+\] ", "", text)


def _sorted_by(row: Row) -> list[Any]:
    known = [row[name] for name in PLACES if name in row]
    return [*known, *(value for name, value in row.items() if name not in PLACES)]


def _rank(value: Any) -> tuple[bool, str, Any]:
    """Sorts values of one kind among each other, and what is missing behind them."""
    kind = "number" if isinstance(value, int) else type(value).__name__
    return value is None, kind, repr(value) if isinstance(value, list | dict) else value or 0


def _plain(value: Any) -> Any:
    match value:
        case Decimal():
            return int(value)
        case bytes() | memoryview():
            return "0x" + bytes(value).hex()
        case list():
            return [_plain(item) for item in value]
        case _:
            return value
