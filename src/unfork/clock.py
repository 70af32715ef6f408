"""Owns time as code sees it, so that a simulation can put its own in place."""

from __future__ import annotations

import asyncio
import time


class Clock:
    """The real clock."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)
