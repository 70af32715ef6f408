"""Owns when following ends by itself: at a block, or once nothing more comes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from unfork.clock import Clock
from unfork.ingest.follow import Event, Follower, State


@dataclass(slots=True)
class UntilBlock:
    """Ends when the position has reached a block."""

    number: int

    def __call__(self, state: State) -> bool:
        return state.position is not None and state.position.number >= self.number


@dataclass(slots=True)
class UntilIdle:
    """Ends when the follower has caught up and nothing has changed for a while.

    A source or a database that is away, or blocks that are known and not stored yet, are not
    idleness: the follower is then still trying.
    """

    seconds: float
    clock: Clock = field(default_factory=Clock)
    _changed_at: float | None = None

    def heard(self, event: Event) -> None:
        """Is told of every event, as the follower's listener."""
        self._changed_at = self.clock.now()

    async def watch(self, follower: Follower, stopping: asyncio.Event) -> None:
        """Sets `stopping` once the follower was idle long enough."""
        self._changed_at = self.clock.now()
        while not stopping.is_set():
            assert self._changed_at is not None
            if follower.is_waiting or follower.is_behind:
                self._changed_at = self.clock.now()
            idle_s = self.clock.now() - self._changed_at
            if idle_s >= self.seconds:
                stopping.set()
                return
            await self.clock.sleep(min(0.05, self.seconds - idle_s))
