"""Owns the span, an inclusive range of block numbers, and its algebra.

Incremental work is "what is missing", an invalidation is "take this away": both are set operations
on spans, kept here as small pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The blocks first..last, both included; never empty."""

    #: Lowest block number of the span.
    first: int
    #: Highest block number of the span.
    last: int

    def __post_init__(self) -> None:
        if self.first < 0 or self.last < self.first:
            raise ValueError(f"not a span: {self.first}..{self.last}")

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def __str__(self) -> str:
        return f"{self.first}..{self.last}"

    def overlaps(self, other: Span) -> bool:
        """Whether at least one number is in both."""
        return self.first <= other.last and other.first <= self.last

    def touches(self, other: Span) -> bool:
        """Whether the two overlap or stand side by side, so that their union is one span."""
        return self.first <= other.last + 1 and other.first <= self.last + 1


def parse(text: str) -> Span:
    """Reads `a:b` or a single number; raises ValueError with what was wrong."""
    first, colon, last = text.partition(":")
    try:
        return Span(int(first), int(last if colon else first))
    except ValueError:
        raise ValueError(f"not a span: {text!r} (write first:last, both included)") from None


def intersect(left: Span, right: Span) -> Span | None:
    """The numbers in both, or None where there are none."""
    if not left.overlaps(right):
        return None
    return Span(max(left.first, right.first), min(left.last, right.last))


def merge(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same numbers as the fewest spans, ascending."""
    merged: list[Span] = []
    for span in sorted(spans):
        if merged and merged[-1].touches(span):
            merged[-1] = Span(merged[-1].first, max(merged[-1].last, span.last))
        else:
            merged.append(span)
    return tuple(merged)


def subtract(spans: Iterable[Span], removed: Iterable[Span]) -> tuple[Span, ...]:
    """The numbers of `spans` that are in none of `removed`, as the fewest spans, ascending."""
    left: list[Span] = []
    gone = merge(removed)
    for span in merge(spans):
        first = span.first
        for hole in gone:
            if hole.last < first or hole.first > span.last:
                continue
            if hole.first > first:
                left.append(Span(first, hole.first - 1))
            first = hole.last + 1
        if first <= span.last:
            left.append(Span(first, span.last))
    return tuple(left)


def split(span: Span, size: int) -> Iterator[Span]:
    """Cuts a span into pieces of at most `size` numbers, ascending."""
    assert size >= 1
    for first in range(span.first, span.last + 1, size):
        yield Span(first, min(first + size - 1, span.last))


def aligned(number: int, size: int) -> Span:
    """The span of `size` numbers, starting at a multiple of it, that holds `number`."""
    assert size >= 1
    first = number - number % size
    return Span(first, first + size - 1)


def missing(known: Sequence[Span], needed: Span, size: int, *, ahead: int) -> list[Span]:
    """The pieces of `size` to make, ascending: all that `needed` touches, and `ahead` more.

    Bounds stand at multiples of the size. Where the size was changed since, a new piece is cut so
    that it does not overlap the ones there are.
    """
    covered = list(known)
    new: list[Span] = []
    number = needed.first
    after = 0
    while after <= ahead:
        holder = next((s for s in reversed(covered) if number in s), None)
        if holder is None:
            free = subtract([aligned(number, size)], covered)
            holder = next(part for part in free if number in part)
            covered.append(holder)
            new.append(holder)
        number = holder.last + 1
        after += holder.last >= needed.last
    return new
