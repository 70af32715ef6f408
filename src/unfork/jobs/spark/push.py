"""Owns filter push-down: which of Spark's filters the database can answer, and how.

Comparisons of the block number narrow the span; equality of numbers and bytes (hashes, addresses,
topics) becomes SQL. Whatever is not understood stays with Spark, which costs time and never rows.
Values are written into the statement by us, as digits or hex: nothing is ever quoted as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from unfork.chain.span import Span, intersect
from unfork.database.queries import Sql, quote
from unfork.datasets.dataset import Column, Kind

#: The largest block number that the database can hold.
NUMBER_MAX = 2**63 - 1
#: Every block there can be.
ALL = Span(0, NUMBER_MAX)
#: Values in one list, beyond which Spark's own hash table is the better tool.
VALUES_MAX = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What the database is asked to filter by."""

    #: The block numbers that can pass, None where none can.
    span: Span | None
    #: Conditions on columns, each beginning with AND; empty where there are none.
    conditions: Sql
    #: What stays with Spark.
    left: tuple[Filter, ...]


def push(filters: Iterable[Filter], columns: Iterable[Column], *, number: str | None) -> Pushed:
    """Takes what the database can answer out of the filters.

    `columns` are those that it holds; `number` is the one that rows lie along, where there is one.
    """
    held = {column.name: column for column in columns}
    span: Span | None = ALL
    conditions, left = [], []
    for each in filters:
        column = held.get(_name(each))
        if column is None:
            left.append(each)
        elif column.name == number and _is_bound(each):
            bound = _bound(each)
            span = None if span is None or bound is None else intersect(span, bound)
        elif (text := _condition(each, column)) is not None:
            conditions.append(f"AND row.{quote(column.name)} {text}")
        else:
            left.append(each)
    return Pushed(span=span, conditions=Sql(" ".join(conditions)), left=tuple(left))


def _is_bound(each: Filter) -> bool:
    """Whether a filter compares with one whole number."""
    value = getattr(each, "value", None)
    compares = isinstance(
        each, EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
    )
    return compares and isinstance(value, int) and not isinstance(value, bool)


def _bound(each: Filter) -> Span | None:
    """The numbers that pass a comparison, None where none does."""
    value: int = each.value  # type: ignore[attr-defined]
    low, high = 0, NUMBER_MAX
    match each:
        case EqualTo():
            low, high = value, value
        case GreaterThan():
            low = value + 1
        case GreaterThanOrEqual():
            low = value
        case LessThan():
            high = value - 1
        case LessThanOrEqual():
            high = value
    low, high = max(low, 0), min(high, NUMBER_MAX)
    return Span(low, high) if low <= high else None


def _condition(each: Filter, column: Column) -> str | None:
    """What a column must fulfil to pass, None where it cannot be said in SQL."""
    match each:
        case IsNull():
            return "IS NULL"
        case IsNotNull():
            return "IS NOT NULL"
        case EqualTo(value=value):
            values: tuple[Any, ...] = (value,)
        case In(value=several):
            values = tuple(several)
        case _:
            return None
    if len(values) > VALUES_MAX:
        return None
    texts = list(_literals(values, column.kind))
    if len(texts) < len(values):
        return None
    return f"IN ({', '.join(texts) or 'NULL'})"


def _literals(values: Iterable[Any], kind: Kind) -> Iterator[str]:
    """Each value as SQL; those that cannot be written as digits or hex are left out."""
    for value in values:
        if kind is Kind.INT and isinstance(value, int) and not isinstance(value, bool):
            yield f"({value})"
        elif kind is Kind.BYTES and isinstance(value, bytes | bytearray):
            yield f"'\\x{bytes(value).hex()}'::bytea"


def _name(each: Filter) -> str:
    """The column that a filter is about, empty where it is about several or none."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    return str(attribute[0]) if len(attribute) == 1 else ""
