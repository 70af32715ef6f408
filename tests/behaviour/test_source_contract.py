"""What every source of chain data promises, proven over each of them.

Method: a world holds one devnet tree and a source that sees it; the tests know only the contract of
`sources.source` and compare what comes out with the oracle, which reads the tree directly. A new
source joins by adding its world to WORLDS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from tests.nodes import DevnetWire, chain_config, evm_source, grown
from unfork.chain import fork
from unfork.chain.block import BlockRef
from unfork.chain.fork import Fork
from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.sources.source import Source
from unfork.testing import compare, oracle


@dataclass
class World:
    """A tree and a source that sees it."""

    tree: Tree
    source: Source
    #: How often the source has looked so far.
    looks: Callable[[], int]


def _evm(tree: Tree) -> World:
    wire = DevnetWire(tree)
    source = evm_source(wire, chain=chain_config(traces=True))
    return World(tree, source, lambda: len(wire.requests))


def _evm_announced(tree: Tree) -> World:
    wire = DevnetWire(tree)
    wire.announcing = True
    return World(tree, evm_source(wire), lambda: len(wire.requests))


def _evm_without_batches(tree: Tree) -> World:
    wire = DevnetWire(tree)
    return World(
        tree, evm_source(wire, chain=chain_config(batch_size=1)), lambda: len(wire.requests)
    )


WORLDS = {"evm": _evm, "evm-announced": _evm_announced, "evm-without-batches": _evm_without_batches}


@pytest.fixture(params=list(WORLDS))
def world_of(request: pytest.FixtureRequest) -> Callable[[Tree], World]:
    return WORLDS[request.param]


async def test_batches_from_nothing_equal_the_chain(world_of: Callable[[Tree], World]) -> None:
    world = world_of(grown(60, density=4, hostile=True))
    held = Held()
    async with aclosing(world.source.stream(None, start=0)) as stream:
        await held.follow(stream, until=60)
    assert held.difference(world.tree) == ""


async def test_a_stream_begins_at_the_first_block_that_is_asked_for(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(20))
    async with aclosing(world.source.stream(None, start=7)) as stream:
        batch = await anext(stream)
    assert isinstance(batch, Batch)
    assert batch.refs[0] == _ref(world.tree, 7)
    assert batch.parent == _ref(world.tree, 6)


async def test_a_stream_continues_after_the_ref_it_is_given(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(20))
    async with aclosing(world.source.stream(_ref(world.tree, 11))) as stream:
        batch = await anext(stream)
    assert isinstance(batch, Batch)
    assert batch.parent == _ref(world.tree, 11)


async def test_at_the_head_a_stream_waits_and_hands_on_each_new_block(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(5))
    async with aclosing(world.source.stream(_ref(world.tree, 5))) as stream:
        for number in (6, 7, 8):
            coming = await _idle(world, stream)
            world.tree.extend()
            batch = await coming
            assert isinstance(batch, Batch)
            assert batch.refs == (_ref(world.tree, number),)
            assert batch.head.latest == world.tree.head.ref


async def test_a_batch_says_what_the_source_calls_final(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(30, finality_lag=10))
    head = await world.source.head()
    assert head.latest == world.tree.head.ref
    assert world.tree.finalized is not None
    assert head.finalized == world.tree.finalized.ref


async def test_the_chain_says_its_own_number(world_of: Callable[[Tree], World]) -> None:
    assert await world_of(grown(1, chain_id=31_337)).source.chain_id() == 31_337


@pytest.mark.parametrize(("depth", "length"), [(1, 1), (3, 3), (3, 6), (6, 3), (2, 40)])
async def test_a_fork_at_the_head_is_told_with_a_sample_that_holds_the_ancestor(
    world_of: Callable[[Tree], World], depth: int, length: int
) -> None:
    world = world_of(grown(30))
    before = _refs(world.tree)
    async with aclosing(world.source.stream(before[-1], recent=before)) as stream:
        coming = await _idle(world, stream)
        world.tree.fork(depth=depth, length=length, style=Style.REPLACED)
        told = await coming
        assert isinstance(told, Fork)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert told.refuted == before[-1]
    assert all(world.tree.is_canonical(ref.hash) for ref in told.sample)
    assert fork.resolve(before, told.sample, None, 1000) == fork.Ancestor(before[-1 - depth])


async def test_a_fork_while_nobody_looked_is_told_at_once_also_when_the_head_is_far_above(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(30))
    before = _refs(world.tree)
    world.tree.fork(depth=4, length=90, style=Style.REPLACED)
    async with aclosing(world.source.stream(before[-1], recent=before)) as stream:
        told = await anext(stream)
    assert isinstance(told, Fork)
    assert fork.resolve(before, told.sample, None, 1000) == fork.Ancestor(before[-5])


async def test_samples_reach_deeper_with_every_fork_in_a_row(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(100))
    before = _refs(world.tree)
    world.tree.fork(depth=90, length=95, style=Style.REPLACED)
    sizes = []
    for after in (before[100], before[90], before[80], before[70], before[60]):
        async with aclosing(world.source.stream(after, recent=before)) as stream:
            told = await anext(stream)
        assert isinstance(told, Fork)
        sizes.append(len(told.sample))
    assert sizes == [8, 16, 32, 64, 61]


async def test_a_lower_head_that_is_ours_is_waited_for(world_of: Callable[[Tree], World]) -> None:
    world = world_of(grown(30))
    before = _refs(world.tree)
    async with aclosing(world.source.stream(before[-1], recent=before)) as stream:
        world.tree.fork(depth=5, length=0, style=Style.REPLACED)
        coming = await _idle(world, stream)
        world.tree.switch(before[-1].hash)
        world.tree.extend()
        batch = await coming
    assert isinstance(batch, Batch)
    assert batch.parent == before[-1]


async def test_a_head_below_everything_we_know_of_is_waited_for(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(30))
    before = _refs(world.tree)
    world.tree.fork(depth=10, length=2, style=Style.REPLACED)
    async with aclosing(world.source.stream(before[-1], recent=before[-3:])) as stream:
        await _stopped(await _idle(world, stream))


async def test_a_follower_of_forks_of_every_style_ends_on_the_canonical_chain(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(8, fork_rate=0.3, density=2))
    held = Held()
    for _ in range(40):
        world.tree.advance()
        await held.catch_up(world)
        assert held.difference(world.tree) == ""


async def test_fetch_gives_a_span_exactly(world_of: Callable[[Tree], World]) -> None:
    world = world_of(grown(50, density=4))
    held = Held()
    async with aclosing(world.source.fetch(Span(11, 42))) as batches:
        async for batch in batches:
            held.commit(batch)
    assert [ref.number for ref in held.refs] == list(range(11, 43))
    assert held.difference(world.tree) == ""


async def test_closing_a_stream_leaves_nothing_running(world_of: Callable[[Tree], World]) -> None:
    world = world_of(grown(90, density=3))
    before = asyncio.all_tasks()
    stream = world.source.stream(None, start=0)
    await anext(stream)
    await anext(stream)
    await stream.aclose()
    assert asyncio.all_tasks() == before


async def test_cancelling_a_stream_that_waits_leaves_nothing_running(
    world_of: Callable[[Tree], World],
) -> None:
    world = world_of(grown(3))
    before = asyncio.all_tasks()
    async with aclosing(world.source.stream(world.tree.head.ref)) as stream:
        await _stopped(await _idle(world, stream))
    assert asyncio.all_tasks() == before


async def test_batches_stay_within_the_bounds_of_a_commit() -> None:
    wire = DevnetWire(grown(80, density=6))
    limits = {"batch_blocks_max": 7, "batch_rows_max": 60}
    source = evm_source(wire, chain=chain_config(limits=limits))
    async with aclosing(source.stream(None)) as stream:
        async for batch in stream:
            assert isinstance(batch, Batch)
            assert len(batch.refs) <= 7
            assert batch.rows <= 60 or len(batch.refs) == 1
            if batch.last.number == 80:
                break


async def test_the_schemas_are_those_that_the_datasets_declare() -> None:
    source = evm_source(DevnetWire(grown(10, density=5)), chain=chain_config(traces=True))
    async with aclosing(source.fetch(Span(0, 10))) as batches:
        async for batch in batches:
            assert set(batch.tables) == {dataset.name for dataset in evm.DATASETS}
            for name, table in batch.tables.items():
                assert table.schema == evm.BY_NAME[name].schema
                table.validate(full=True)


class Held:
    """A follower in memory: commits batches, unwinds to ancestors, refuses what does not link."""

    def __init__(self) -> None:
        self.batches: list[tuple[BlockRef, dict[str, list[dict[str, object]]]]] = []

    @property
    def refs(self) -> list[BlockRef]:
        return [ref for ref, _ in self.batches]

    def commit(self, batch: Batch) -> None:
        if self.batches:
            assert batch.parent == self.refs[-1], "a batch continues what is held"
        rows = {name: table.to_pylist() for name, table in batch.tables.items()}
        for ref in batch.refs:
            own = {
                name: [row for row in some if row[evm.BY_NAME[name].hash_column] == ref.hash]
                for name, some in rows.items()
            }
            self.batches.append((ref, own))
        assert sum(map(len, rows.values())) == batch.rows

    async def follow(self, stream: AsyncIterator[Batch | Fork], *, until: int) -> None:
        async for said in stream:
            assert isinstance(said, Batch)
            self.commit(said)
            if self.refs[-1].number >= until:
                return

    async def catch_up(self, world: World) -> None:
        """Follows forks and blocks until the head is held."""
        after = self.refs[-1] if self.batches else None
        while not self.refs or self.refs[-1] != world.tree.head.ref:
            if after == world.tree.head.ref:
                self._unwind(after)
                return
            async with aclosing(world.source.stream(after, recent=self.refs, start=0)) as stream:
                said = await self._said(stream, world)
            if said is None:
                return
            if isinstance(said, Batch):
                if said.parent is not None:
                    self._unwind(said.parent)
                self.commit(said)
                after = self.refs[-1]
                continue
            match fork.resolve(self.refs, said.sample, None, 1000, said.refuted):
                case fork.Ancestor(ref):
                    self._unwind(ref)
                    after = ref
                case fork.NeedsOlder(ref):
                    after = ref
                case outcome:
                    raise AssertionError(f"not resolved: {outcome}")

    async def _said(self, stream: AsyncIterator[Batch | Fork], world: World) -> Batch | Fork | None:
        """The next word; None where the source rightly waits, its head being lower and ours."""
        if world.tree.head.ref in self.refs:
            await _stopped(await _idle(world, stream))
            return None
        return await anext(stream)

    def _unwind(self, ref: BlockRef) -> None:
        self.batches = [(own, rows) for own, rows in self.batches if own.number <= ref.number]
        assert self.refs[-1] == ref

    def difference(self, tree: Tree) -> str:
        """How what is held up to the tree's head differs from the tree."""
        last = min(self.refs[-1].number, tree.head.number)
        actual: dict[str, list[dict[str, object]]] = {name: [] for name in self.batches[0][1]}
        for ref, rows in self.batches:
            if ref.number <= last:
                for name, some in rows.items():
                    actual[name] += some
        expected = oracle.canonical_rows(tree, self.refs[0].number, last)
        return compare.differences({name: expected[name] for name in actual}, actual)


async def _idle(
    world: World, stream: AsyncIterator[Batch | Fork], looks: int = 4
) -> asyncio.Task[Batch | Fork]:
    """The next word of a stream, once it was seen to look several times and stay silent."""
    coming = asyncio.ensure_future(anext(stream))
    enough = world.looks() + looks
    while world.looks() < enough:
        assert not coming.done(), f"a word came though nothing happened: {coming}"
        await asyncio.sleep(0)
    return coming


async def _stopped(coming: asyncio.Task[Batch | Fork]) -> None:
    coming.cancel()
    await asyncio.wait({coming})
    assert coming.cancelled()


def _ref(tree: Tree, number: int) -> BlockRef:
    block = tree.at(number)
    assert block is not None
    return block.ref


def _refs(tree: Tree) -> list[BlockRef]:
    return [_ref(tree, number) for number in range(tree.head.number + 1)]
