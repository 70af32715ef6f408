"""Owns the way of a partition into the lake: claim, write, read back, publish.

Files come first, the pointer last: whatever dies on the way leaves the old version as it was, and
garbage that `gc` finds. The claim is renewed while Spark writes; where it is lost the work is
ended without a word, for somebody else has it now.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Protocol

from unfork import errors
from unfork.lake.versions import Claim, Lost, Target, Version, Versions, Written

#: Writes the version of a claim and says what it wrote; blocks.
Write = Callable[[Claim], Written]


class InThread(Protocol):
    """Runs a blocking function where it may block."""

    def __call__(self, work: Callable[[], Written]) -> Awaitable[Written]:
        """What the function returns."""
        ...


async def publish(
    versions: Versions,
    target: Target,
    write: Write,
    *,
    worker: str,
    lease_s: float,
    in_thread: InThread | None = None,
) -> Version | Lost:
    """Publishes a new version of a partition; Lost where somebody else does, or did.

    Raises what `write` raises, and LakeUnlinked; the claim is given up then.
    """
    claim = await versions.claim(target, worker=worker, lease_s=lease_s)
    if claim is None:
        return Lost(why=f"partition {target.key} of {target.dataset} is somebody else's")
    try:
        written = await _while_renewed(
            versions, claim, lease_s, lambda: write(claim), in_thread or _apart
        )
        if written is None:
            return Lost(why="its writer was not heard of in time")
        published = await versions.publish(claim, written)
    except errors.Retryable:
        # Whether the pointer has moved may be unknown; a claim that was not given up ends in time.
        raise
    except BaseException:
        with contextlib.suppress(errors.UnforkError):
            await versions.abandon(claim)
        raise
    if isinstance(published, Lost):
        await versions.abandon(claim)
    return published


async def _apart(work: Callable[[], Written]) -> Written:
    return await asyncio.to_thread(work)


async def _while_renewed(
    versions: Versions,
    claim: Claim,
    lease_s: float,
    work: Callable[[], Written],
    in_thread: InThread,
) -> Written | None:
    """What the work returns; None where the claim was lost meanwhile."""

    async def renewing() -> None:
        while True:
            await asyncio.sleep(lease_s / 3)
            with contextlib.suppress(errors.Retryable):
                if not await versions.renew(claim, lease_s=lease_s):
                    return

    working = asyncio.ensure_future(in_thread(work))
    renewal = asyncio.create_task(renewing())
    try:
        await asyncio.wait({working, renewal}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        renewal.cancel()
        working.cancel()
        await asyncio.gather(renewal, working, return_exceptions=True)
