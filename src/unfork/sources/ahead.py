"""Owns fetching ahead: pieces are fetched side by side and handed on in order.

While the caller is busy with one batch the next pieces are already coming. How many blocks are
under way is bounded by count and, by what blocks weighed so far, by bytes, so that memory stays
bounded when blocks grow.

Invariants: pieces come in order and without gaps (their links are the caller's to check); after
`close` no task is left.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from unfork.chain.span import Span
from unfork.sources.piece import Piece
from unfork.sources.waiting import cancel

#: Blocks in the first piece, before anything is known about their weight.
_FIRST_BLOCKS = 4
#: Pieces that make up what is fetched ahead, so that several requests are under way.
PIECES = 4


class Pace:
    """How many blocks to fetch in one piece, and how many ahead, by what they weighed so far."""

    def __init__(
        self, *, blocks_ahead_max: Callable[[], int], rows_max: int, bytes_max: int
    ) -> None:
        self._blocks_ahead_max = blocks_ahead_max
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._rows_per_block = 0.0
        self._bytes_per_block = 0.0

    def weigh(self, piece: Piece) -> None:
        """Learns from a piece; heavy blocks count at once, light ones slowly."""
        blocks = len(piece.refs)
        rows, size = piece.rows / blocks, piece.bytes / blocks
        self._rows_per_block = max(rows, 0.8 * self._rows_per_block + 0.2 * rows)
        self._bytes_per_block = max(size, 0.8 * self._bytes_per_block + 0.2 * size)

    @property
    def ahead(self) -> int:
        """Blocks under way at most."""
        if not self._bytes_per_block:
            return min(self._blocks_ahead_max(), PIECES * _FIRST_BLOCKS)
        return max(1, min(self._blocks_ahead_max(), int(self._bytes_max / self._bytes_per_block)))

    def piece(self, piece_max: int) -> int:
        """Blocks in the next piece."""
        if not self._rows_per_block:
            return min(piece_max, _FIRST_BLOCKS)
        light = int(self._rows_max / PIECES / self._rows_per_block)
        share = max(1, self.ahead // PIECES)
        return max(1, min(piece_max, share, light))


class Ahead:
    """Pieces from a number upwards, fetched before they are asked for."""

    def __init__(
        self,
        fetch: Callable[[Span], Awaitable[Piece]],
        *,
        first: int,
        pace: Pace,
        piece_max: Callable[[], int],
        pieces_max: int,
    ) -> None:
        self._fetch = fetch
        self._next = first
        self._pace = pace
        self._piece_max = piece_max
        self._pieces_max = pieces_max
        self._under_way: deque[tuple[Span, asyncio.Task[Piece]]] = deque()
        self._last = first - 1

    def extend(self, last: int) -> None:
        """Fetches up to block `last`, as far as the pace allows; never less than before."""
        self._last = max(self._last, last)
        while self._next <= self._last and len(self._under_way) < self._pieces_max:
            room = self._pace.ahead - sum(len(span) for span, _ in self._under_way)
            size = self._pace.piece(self._piece_max())
            # A smaller piece would fit, but room opens piece by piece: they would stay small.
            if room < size and self._under_way:
                return
            span = Span(self._next, min(self._next + size - 1, self._last))
            task = asyncio.ensure_future(self._fetch(span))
            self._under_way.append((span, task))
            self._next = span.last + 1

    @property
    def is_ready(self) -> bool:
        """Whether the next piece is there already."""
        if not self._under_way:
            return False
        task = self._under_way[0][1]
        return task.done() and not task.cancelled() and task.exception() is None

    async def next(self) -> Piece | None:
        """The next piece; None where everything up to the last block was handed on."""
        self.extend(self._last)
        if not self._under_way:
            return None
        piece = await self._under_way[0][1]
        self._under_way.popleft()
        self._pace.weigh(piece)
        self.extend(self._last)
        return piece

    async def close(self) -> None:
        """Gives up what is under way and waits until it has ended."""
        tasks = [task for _, task in self._under_way]
        self._under_way.clear()
        await cancel(*tasks)
