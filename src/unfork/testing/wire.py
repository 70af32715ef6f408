"""Owns a wire without sockets: a source talks straight to a devnet endpoint in the same process.

The endpoint's faults are carried as a real network would: an answer that never comes is a wait on
the clock, a cut socket is an error. With a virtual clock this makes a whole run reproducible.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from unfork.clock import Clock
from unfork.devnet.protocol import Cut
from unfork.devnet.rpc import Rpc
from unfork.errors import SourceUnavailable
from unfork.sources.wire import Reply
from unfork.testing.clock import Turn

#: Longer than any timeout of a source: what a request without an answer waits, on the clock.
NEVER_S = 86_400.0


class MemoryWire:
    """One devnet endpoint, reached by function call."""

    def __init__(self, rpc: Rpc, *, clock: Clock, turn: Turn, url: str = "memory://devnet") -> None:
        self.url = url
        self._rpc = rpc
        self._clock = clock
        self._turn = turn
        self._announced = asyncio.Event()

    async def post(self, body: bytes) -> Reply:
        await self._turn.free()
        await asyncio.sleep(0)
        answer = self._rpc.answer(body)
        if answer is None:
            await self._clock.sleep(NEVER_S)
            raise SourceUnavailable("the endpoint never answered")
        if isinstance(answer, Cut):
            raise SourceUnavailable("the endpoint cut the connection")
        return Reply(status=answer.status, headers=answer.headers, body=answer.body)

    def heads(self) -> AsyncIterator[None] | None:
        return self._heads()

    def announce(self) -> None:
        """Hints that the head moved."""
        self._announced.set()

    async def close(self) -> None:
        return None

    async def _heads(self) -> AsyncIterator[None]:
        while True:
            await self._announced.wait()
            self._announced.clear()
            yield None
