"""Owns the partitions of a dataset: pieces of the chain by block numbers or by UTC day.

A partition is known by its key. `1000-1999` is its blocks, both included; `2024-01-31` is the UTC
day of its blocks' timestamps. Timestamps never fall along a chain, so the blocks of a day are one
span; which span that is, a fork may change.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from unfork.chain.advance import Day
from unfork.chain.span import Span
from unfork.datasets.derivation import ByBlocks, ByDay, Partitioning


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, and the blocks of it that there are."""

    key: str
    #: Lowest block of it that there is.
    first: int
    #: Highest block of it that there is.
    last: int
    #: Whether blocks may still be added to it.
    is_open: bool

    @property
    def span(self) -> Span:
        """The blocks of it that there are."""
        return Span(self.first, self.last)


def nests(inner: Partitioning, outer: Partitioning) -> bool:
    """Whether each partition of `inner` lies within one of `outer`."""
    match inner, outer:
        case ByBlocks(small), ByBlocks(large):
            return large % small == 0
        case _:
            return inner == outer


class Grid:
    """The partitions of the blocks `first..last`, ascending."""

    def __init__(
        self, partitioning: Partitioning, *, first: int, last: int, days: Sequence[Day] = ()
    ) -> None:
        if isinstance(partitioning, ByDay):
            # Blocks whose day is not known yet cannot be placed; they wait.
            last = min(last, days[-1].last) if days else first - 1
        self._partitioning = partitioning
        self._days = days
        is_daily = isinstance(partitioning, ByDay)
        self._firsts = [day.first for day in days] if is_daily else []
        #: Of the days that are over.
        self._lasts = {day.last for day in days[:-1]} if is_daily else set()
        self._size = partitioning.size if isinstance(partitioning, ByBlocks) else 0
        self.first = first
        self.last = last

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.within(self.first, self.last))

    def within(self, first: int, last: int) -> Iterator[Partition]:
        """The partitions that hold one of these blocks, each with all the blocks it has."""
        number = max(first, self.first)
        last = min(last, self.last)
        while number <= last:
            partition = self.at(number)
            yield partition
            number = partition.last + 1

    def at(self, number: int) -> Partition:
        """The partition that holds a block."""
        assert self.first <= number <= self.last
        match self._partitioning:
            case ByBlocks(size):
                lowest = number - number % size
                highest = lowest + size - 1
                key = f"{lowest}-{highest}"
            case ByDay():
                day = self._days[bisect_right(self._firsts, number) - 1]
                lowest, highest, key = day.first, day.last, day.date.isoformat()
                if day is self._days[-1]:
                    highest += 1  # The day goes on until a block of another day is known.
        return Partition(
            key, max(lowest, self.first), min(highest, self.last), is_open=highest > self.last
        )

    def ends_at(self, number: int) -> bool:
        """Whether a block is the last one of its partition so far."""
        # Asked of every version there is, so it is kept short.
        is_end = (number + 1) % self._size == 0 if self._size else number in self._lasts
        return is_end or number == self.last

    def count(self, first: int, last: int) -> int:
        """How many partitions hold one of these blocks."""
        first, last = max(first, self.first), min(last, self.last)
        if first > last:
            return 0
        match self._partitioning:
            case ByBlocks(size):
                return last // size - first // size + 1
            case ByDay():
                return bisect_right(self._firsts, last) - bisect_right(self._firsts, first) + 1

    def widen(self, span: Span) -> Span | None:
        """All blocks of the partitions that a span touches, None where it touches none."""
        first, last = max(span.first, self.first), min(span.last, self.last)
        if first > last:
            return None
        return Span(self.at(first).first, self.at(last).last)


def span_of(key: str, days: Sequence[Day] = ()) -> Span | None:
    """The blocks of the partition with this key; None for a day that has no block."""
    first, dash, last = key.partition("-")
    if dash and last.isdigit() and first.isdigit():
        return Span(int(first), int(last))
    wanted = date.fromisoformat(key)
    for day in reversed(days):
        if day.date == wanted:
            return Span(day.first, day.last)
    return None
