"""Owns the words of derivation: what one run recomputes, how its rows are written, how it is cut.

A job's specification, the declaration of its dataset and the tables that hold it speak of the same
things; they all mean these.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """What one run recomputes."""

    #: Rows after the watermark; each output row depends on the rows of its own block alone.
    CURSOR = "cursor"
    #: Whole partitions.
    PARTITION = "partition"
    #: All of it.
    FULL = "full"


class Strategy(StrEnum):
    """How a run's rows are written."""

    #: Delete the scope, write it.
    REPLACE = "replace"
    #: Insert what is not there yet, by unique key; delete nothing.
    APPEND = "append"
    #: Fold changes into one row per key.
    MERGE = "merge"


class Rule(StrEnum):
    """How merge folds a new value of a column into the one that is there."""

    SET = "set"
    ADD = "add"
    MIN = "min"
    MAX = "max"
    SET_IF_NULL = "set-if-null"


@dataclass(frozen=True, slots=True)
class ByBlocks:
    """Partitions of so many blocks, beginning at multiples of it."""

    size: int

    def __str__(self) -> str:
        return f"{self.size} blocks"


@dataclass(frozen=True, slots=True)
class ByDay:
    """One partition a UTC day."""

    #: The column that holds the day, a date or its text such as 2024-01-31.
    column: str = "day"

    def __str__(self) -> str:
        return "UTC days"


Partitioning = ByBlocks | ByDay


@dataclass(frozen=True, slots=True)
class Lookup:
    """How rows of an input are found that lie in any block up to the row that needs them."""

    #: The column of the input that is searched.
    column: str
    #: The column of the driving input whose values are searched for.
    by: str
