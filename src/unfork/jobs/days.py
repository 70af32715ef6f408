"""Owns the UTC days around some blocks, found where nobody has written them down.

Timestamps never fall along a chain, so the two ends of a day are found by halves: some twenty looks
at a block, however long the chain is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime, timedelta

from unfork.chain.advance import Day
from unfork.chain.span import Span


def around(span: Span, held: Span, made: Callable[[int], datetime]) -> list[Day]:
    """The days that hold blocks of a span, each with all its blocks among those that are held."""
    known = functools.cache(made)
    found: list[Day] = []
    at = span.first
    while at <= span.last:
        start = known(at).replace(hour=0, minute=0, second=0, microsecond=0)
        first = at if found else _reached(known, start, held.first, at)
        following = _reached(known, start + timedelta(days=1), at, held.last + 1)
        found.append(Day(start.date(), first, following - 1))
        at = following
    return found


def _reached(made: Callable[[int], datetime], moment: datetime, low: int, high: int) -> int:
    """The lowest block from `low` on that was not made before a moment; `high` where none is."""
    while low < high:
        middle = (low + high) // 2
        if made(middle) >= moment:
            high = middle
        else:
            low = middle + 1
    return low
