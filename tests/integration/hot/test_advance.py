"""Goal: a follower of the raw store is told exactly what lies between two entries of the journal.

Method: a real store with devnet blocks; whatever is told is compared with the tree, step by step
and in one go, near the head and far behind.
"""

from __future__ import annotations

import random

import pytest

from tests.batches import batch, ref
from tests.places import Place
from unfork import errors
from unfork.chain.advance import Advance, Day
from unfork.chain.block import BlockRef
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot.advance import Upstream
from unfork.hot.store import HotStore

HEADERS = Scope(kind="logs")


class Follower:
    """The least that follows: refs from the floor up, and days."""

    def __init__(self) -> None:
        self.seq = 0
        self.epoch = 1
        self.refs: list[BlockRef] = []
        self.floor: BlockRef | None = None
        self.days: dict[object, Day] = {}
        self.falls: list[BlockRef | None] = []

    @property
    def position(self) -> BlockRef | None:
        return self.refs[-1] if self.refs else None

    def apply(self, advance: Advance) -> None:
        assert advance.after == self.seq
        if advance.is_unwind:
            self.falls.append(advance.base)
            target = advance.base.number if advance.base else -1
            self.refs = [one for one in self.refs if one.number <= target]
            self.days = {d: day for d, day in self.days.items() if day.first <= target}
            for date, day in self.days.items():
                self.days[date] = Day(day.date, day.first, min(day.last, target))
            if advance.epoch > self.epoch and advance.base is not None and not self.refs:
                self.refs = [advance.base]
        assert self.position == advance.base
        self.refs += advance.refs
        if advance.is_unwind and self.floor is not None and advance.epoch == self.epoch:
            assert advance.base is not None and advance.base.number >= self.floor.number
        if advance.epoch > self.epoch:
            self.floor = None
        if advance.floor is not None and (self.floor is None or self.floor < advance.floor):
            self.floor = advance.floor
        if self.floor is not None:
            self.refs = [one for one in self.refs if one.number >= self.floor.number]
        for day in advance.days:
            known = self.days.get(day.date, day)
            self.days[day.date] = Day(day.date, min(day.first, known.first), day.last)
        self.seq, self.epoch = advance.seq, advance.epoch
        assert self.position == advance.position

    def require(self, tree: Tree, head: int) -> None:
        first = self.floor.number if self.floor else 0
        assert self.refs == [ref(at(tree, number)) for number in range(first, head + 1)]
        found: dict[object, list[int]] = {}
        for number in range(head + 1):
            day = at(tree, number).header.timestamp // 86_400
            found.setdefault(day, []).append(number)
        assert [(day.first, day.last) for day in self.days.values()] == [
            (min(numbers), max(numbers)) for numbers in found.values()
        ]


def at(tree: Tree, number: int) -> Block:
    block = tree.at(number)
    assert block is not None
    return block


async def opened(place: Place, **settings: object) -> HotStore:
    store = place.store(chain=place.chain(**settings))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    return store


def upstream(place: Place) -> Upstream:
    return Upstream(place.name, place.database())


async def follow(place: Place, follower: Follower, *, blocks_max: int = 10_000) -> int:
    steps = 0
    source = upstream(place)
    while True:
        advance = await source.advance(
            after=follower.seq, position=follower.position, blocks_max=blocks_max
        )
        if advance is None:
            return steps
        follower.apply(advance)
        steps += 1


async def test_a_follower_is_told_of_every_block_and_of_a_fork(any_place: Place) -> None:
    tree = Tree(Knobs(density=0, block_time_s=7000))
    tree.extend(20)
    store = await opened(any_place)
    follower = Follower()
    assert await follow(any_place, follower) == 0
    await store.commit(batch(*[at(tree, n) for n in range(21)], scope=HEADERS))
    assert await follow(any_place, follower) == 1
    follower.require(tree, 20)
    movement = tree.fork(depth=5, length=6, style=Style.REPLACED)
    await store.unwind(ref(at(tree, 15)), tip=ref(tree.head))
    advance = await upstream(any_place).advance(after=1, position=follower.position)
    assert advance is not None and advance.is_unwind
    assert (advance.base, advance.tip) == (ref(at(tree, 15)), ref(tree.head))
    await store.commit(batch(*movement.added, scope=HEADERS))
    assert await follow(any_place, follower) == 1
    follower.require(tree, 21)
    assert follower.falls == [ref(at(tree, 15))]


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happened_meanwhile_a_late_follower_ends_where_a_prompt_one_does(
    place: Place, seed: int
) -> None:
    dice = random.Random(seed)
    tree = Tree(Knobs(seed=seed, density=0, block_time_s=dice.choice([12, 20_000])))
    store = await opened(place, finality_depth_min=2, reorg_depth_max=12)
    prompt, late, hasty = Follower(), Follower(), Follower()
    committed = -1
    for _ in range(25):
        held = (await store.state()).position
        if dice.random() < 0.4 and held is not None:
            floor = (await store.state()).floor
            room = held.number - (floor.number if floor else -1)
            depth = dice.randrange(1, room + 1) if room > 0 else 0
            if depth and depth <= tree.head.number:
                tree.fork(depth=depth, length=depth + dice.randrange(3), style=Style.REPLACED)
                committed = held.number - depth
                await store.unwind(ref(at(tree, committed)) if committed >= 0 else None)
        else:
            tree.extend(dice.randrange(1, 4))
        while committed < tree.head.number and dice.random() < 0.9:
            last = min(committed + dice.randrange(1, 4), tree.head.number)
            blocks = [at(tree, number) for number in range(committed + 1, last + 1)]
            final = at(tree, max(0, tree.head.number - 6)) if tree.head.number > 8 else None
            await store.commit(batch(*blocks, head=tree.head, finalized=final, scope=HEADERS))
            committed = last
        await follow(place, prompt)
        if dice.random() < 0.2:
            await follow(place, hasty, blocks_max=dice.choice([1, 2, 5]))
    await follow(place, late)
    await follow(place, hasty, blocks_max=1)
    for follower in (prompt, late, hasty):
        follower.require(tree, committed)
    assert late.falls == [], "who held nothing has nothing to undo"
    assert prompt.falls, "the chain never forked"


async def test_a_step_brings_no_more_blocks_than_wanted(place: Place) -> None:
    tree = Tree(Knobs(density=0))
    tree.extend(30)
    store = await opened(place)
    for first in range(0, 30, 5):
        await store.commit(batch(*[at(tree, n) for n in range(first, first + 5)], scope=HEADERS))
    assert await follow(place, Follower(), blocks_max=10) == 3
    assert await follow(place, Follower(), blocks_max=1) == 6


async def test_everything_unwound_is_told(place: Place) -> None:
    tree = Tree(Knobs(density=0))
    tree.extend(5)
    store = await opened(place)
    await store.commit(batch(*[at(tree, n) for n in range(6)], scope=HEADERS))
    follower = Follower()
    await follow(place, follower)
    await store.unwind(None)
    await follow(place, follower)
    assert follower.position is None and follower.falls == [None]


async def test_an_operators_epoch_is_told(place: Place) -> None:
    tree = Tree(Knobs(density=0))
    tree.extend(20)
    store = await opened(place, finality_depth_min=2, reorg_depth_max=5)
    await store.commit(batch(*[at(tree, n) for n in range(21)], scope=HEADERS))
    follower = Follower()
    await follow(place, follower)
    assert follower.floor == ref(at(tree, 15))
    await store.unwind(ref(at(tree, 4)), operator=True)
    await follow(place, follower)
    assert (follower.epoch, follower.falls) == (2, [ref(at(tree, 4))])
    assert follower.floor == ref(at(tree, 4))


async def test_a_journal_that_lacks_entries_is_a_typed_error(place: Place) -> None:
    tree = Tree(Knobs(density=0))
    tree.extend(5)
    store = await opened(place)
    for number in range(6):
        await store.commit(batch(at(tree, number), scope=HEADERS))
    await place.rows("DELETE FROM {raw}.journal WHERE seq <= 3")
    with pytest.raises(errors.JournalPruned, match="entry 3"):
        await upstream(place).advance(after=2, position=ref(at(tree, 1)))
    assert await upstream(place).advance(after=3, position=ref(at(tree, 2))) is not None


async def test_a_store_that_was_reset_is_a_typed_error(place: Place) -> None:
    await opened(place)
    with pytest.raises(errors.JournalPruned, match="reset"):
        await upstream(place).advance(after=7, position=BlockRef(3, b"x"))
