"""Owns the clock of a simulation: hours pass in no time, in the same order for the same seed."""

from __future__ import annotations

import asyncio
import heapq
import itertools

from unfork.clock import Clock


class Turn:
    """Who may move: while a database works, simulated nodes and clocks stand still.

    Real input and output takes an unforeseeable time; letting nothing else happen meanwhile is what
    makes a run with a real database reproducible.
    """

    def __init__(self) -> None:
        self._taken = 0
        self._free = asyncio.Event()
        self._free.set()

    def __enter__(self) -> None:
        self._taken += 1
        self._free.clear()

    def __exit__(self, *_: object) -> None:
        self._taken -= 1
        if not self._taken:
            self._free.set()

    async def free(self) -> None:
        """Returns once no database works."""
        await self._free.wait()


class VirtualClock(Clock):
    """Time that jumps to the next sleeper as soon as everybody sleeps."""

    #: Rounds of the event loop that count as "everybody sleeps".
    ROUNDS = 4

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._ticking: asyncio.Task[None] | None = None
        #: How often the time jumped, so that a test can tell standstill from progress.
        self.jumps = 0

    def now(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + max(0.0, seconds), next(self._order), future))
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.create_task(self._tick())
        await future

    async def close(self) -> None:
        """Ends the clock; those who sleep stay asleep."""
        if self._ticking is not None:
            self._ticking.cancel()
            await asyncio.wait({self._ticking})

    async def _tick(self) -> None:
        while self._sleepers:
            for _ in range(self.ROUNDS):
                await asyncio.sleep(0)
                await self._turn.free()
            at, _, future = heapq.heappop(self._sleepers)
            if future.done():
                continue
            self._now = max(self._now, at)
            self.jumps += 1
            future.set_result(None)
