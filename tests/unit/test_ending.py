"""Goal: following ends when it should and not before. Method: a follower that says what we want."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from tests.batches import batch
from tests.nodes import SteppedClock, grown
from unfork.chain.block import BlockRef, Head
from unfork.ingest.ending import UntilIdle
from unfork.ingest.follow import Follower, Policy


@dataclass
class Said:
    """A follower as it is seen while waiting for its end."""

    is_waiting: bool = False
    is_behind: bool = False


@dataclass
class Chain:
    """As much of a source and of a state as the question needs."""

    seen: Head | None = None
    position: BlockRef | None = field(default_factory=lambda: BlockRef(20, b"a"))


async def ends_after(said: Said, seconds: float, *, turns: int = 3000) -> float | None:
    """The moment at which it ends, None where it does not."""
    clock, stopping = SteppedClock(), asyncio.Event()
    watching = asyncio.create_task(
        UntilIdle(seconds, clock=clock).watch(cast(Follower, said), stopping)
    )
    for _ in range(turns):
        await asyncio.sleep(0)
    watching.cancel()
    await asyncio.wait({watching})
    return clock.now() if stopping.is_set() else None


async def test_idle_time_does_not_count_while_something_is_open() -> None:
    assert await ends_after(Said(is_behind=True), 2) is None
    assert await ends_after(Said(is_waiting=True), 2) is None
    ended = await ends_after(Said(), 2)
    assert ended is not None and ended >= 2


def test_who_has_not_looked_at_the_source_is_behind() -> None:
    chain = Chain()
    follower = Follower(
        store=cast(Any, None),
        source=cast(Any, chain),
        book=cast(Any, None),
        policy=Policy(worker_name="raw_ingester", start=0, depth_max=10, pause_s=1),
    )
    follower._state = cast(Any, chain)
    assert follower.is_behind, "a node that never answered may hold anything"
    for number, is_behind in ((19, False), (20, False), (21, True)):
        chain.seen = Head(latest=BlockRef(number, b"b"), finalized=None)
        assert follower.is_behind is is_behind
    chain.position = None
    assert follower.is_behind


def test_a_batch_is_cut_at_a_block_with_everything_above_it() -> None:
    tree = grown(6, density=3)
    blocks = [tree.at(number) for number in range(7)]
    whole = batch(*blocks)
    for last in (0, 3, 6, 9):
        cut = whole.until(last)
        wanted = batch(*blocks[: last + 1], head=tree.head)
        assert (cut.refs, cut.parent, cut.head) == (wanted.refs, wanted.parent, wanted.head)
        assert {name: table.to_pylist() for name, table in cut.tables.items()} == {
            name: table.to_pylist() for name, table in wanted.tables.items()
        }
