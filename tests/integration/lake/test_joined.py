"""Goal: a raw dataset is one table over hot and cold, wherever the boundary is and while it moves.

Method: devnet blocks in real Postgres; partitions are published as compaction does it, and their
rows taken out of the hot tables, so that a row that is read from the wrong side is missing or there
twice; what is read is compared with the oracle's rows. Worlds of random moves are drawn by seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In

from tests.batches import batch, ref
from tests.lakes import RawLake, raw_lake
from tests.places import Place
from tests.spark.test_source import filled
from tests.sparks import Near
from unfork import errors
from unfork.app.refs import Refs
from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Movement, Tree
from unfork.hot.advance import Upstream
from unfork.hot.state import ChainState
from unfork.hot.store import HotStore
from unfork.jobs.spark import reading
from unfork.jobs.spark.raw_reading import Reading
from unfork.lake import gc
from unfork.testing import compare, oracle

NAMES = tuple(dataset.name for dataset in evm.DATASETS)

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else list(range(1, 9))
MOVES = int(os.environ.get("MOVES", "6")) * 5


async def follow(place: Place) -> None:
    refs = Refs(place.name, place.app_database(), Upstream(place.name, place.database()))
    while await refs.step() is not None:
        pass


async def difference(tree: Tree, found: Reading, first: int, last: int) -> str:
    name = found.dataset.name
    rows = (await asyncio.to_thread(reading.table, found)).to_pylist()
    return compare.difference(
        evm.BY_NAME[name], oracle.canonical_rows(tree, first, last)[name], rows
    )


async def lake_up_to(near: Near, tree: Tree, last: int, *, size: int = 10) -> RawLake:
    """A lake that has everything up to a block, the only place that has it."""
    await follow(near.place)
    lake = raw_lake(near)
    for name in NAMES:
        for first in range(0, last + 1, size):
            await lake.compact(name, Span(first, first + size - 1))
        if name != "blocks":
            await lake.forget_hot(name, Span(0, last))
    return lake


async def test_every_dataset_is_one_table_and_any_span_is_cut_at_the_boundary(near: Near) -> None:
    tree = Tree(Knobs(density=4, hostile=True, finality_lag=10))
    tree.extend(49)
    await filled(near.place, tree, finality_depth_min=10)
    await lake_up_to(near, tree, 29)
    for name in NAMES:
        for first, last in ((0, 49), (0, 29), (30, 49), (29, 30), (9, 10), (25, 45), (3, 3)):
            found = near.read(name, first=first, last=last)
            assert await difference(tree, found, first, last) == "", (name, first, last)
        assert await difference(tree, near.read(name), 0, 49) == ""
    whole = near.read("logs")
    assert whole.cold.spans == (Span(0, 29),)
    assert whole.hot(Span(0, 49)) == (Span(30, 49),)
    assert near.read("logs", first=40).cold.spans == ()


async def test_filters_and_columns_go_to_both_sides(near: Near) -> None:
    tree = Tree(Knobs(density=6, hostile=True, finality_lag=10))
    tree.extend(39)
    await filled(near.place, tree, finality_depth_min=10)
    await lake_up_to(near, tree, 19)
    expected = oracle.canonical_rows(tree, 0, 39)["logs"]
    address = next(row["address"] for row in expected if 15 < row["block_number"] < 20)
    found = near.read("logs", columns="address,log_index")
    filters = (EqualTo(("address",), address), GreaterThan(("block_number",), 14))
    pushed = found.push(filters)
    assert set(pushed.left) == set(filters), "what comes from files is filtered by Spark"
    tasks = found.cut(pushed)
    rows = [row for task in tasks for part in task.read() for row in part.to_pylist()]
    assert [list(row) for row in rows] == [["address", "log_index"]] * len(rows)
    assert sorted(row["log_index"] for row in rows) == sorted(
        row["log_index"]
        for row in expected
        if row["address"] == address and row["block_number"] > 14
    )
    # In parts, as lookups are read, nothing comes twice.
    parts = [[In(("address",), (address,))], [In(("address",), (b"nobody's",))]]
    batches = [
        part for filters in parts for task in found.cut(found.push(filters)) for part in task.read()
    ]
    assert sum(part.num_rows for part in batches) == sum(
        row["address"] == address for row in expected
    )
    only_cold = found.cut(found.push([EqualTo(("block_number",), 12)]))
    assert len(only_cold) == 1


async def test_large_values_are_whole_in_the_lake(near: Near) -> None:
    tree = Tree(Knobs(density=6, hostile=True, finality_lag=5))
    tree.extend(29)
    store = near.place.store(chain=near.place.chain(finality_depth_min=5), inline_max_bytes=64)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*(tree.at(number) for number in range(30)), finalized=tree.finalized))
    moved = await near.place.rows(
        "SELECT count(*) AS n FROM {raw}.transactions WHERE input IS NULL"
    )
    assert moved[0]["n"] > 0
    await lake_up_to(near, tree, 19)
    assert await difference(tree, near.read("transactions"), 0, 29) == ""


async def test_a_lake_of_another_chain_is_never_read(near: Near) -> None:
    tree = Tree(Knobs(density=2, finality_lag=5))
    tree.extend(29)
    await filled(near.place, tree, finality_depth_min=5)
    await lake_up_to(near, tree, 19)
    await near.place.app_rows(
        "UPDATE {app}.lake_versions SET last_hash = '\\x00' WHERE first_number = 10"
    )
    with pytest.raises(errors.BlockReplaced, match="unfork lake repair"):
        near.read("logs")
    assert await difference(tree, near.read("logs", first=0, last=9), 0, 9) == ""
    assert await difference(tree, near.read("logs", first=20), 20, 29) == ""


async def test_a_reading_that_was_begun_ends_while_the_boundary_moves_and_garbage_goes(
    near: Near,
) -> None:
    tree = Tree(Knobs(density=3, finality_lag=5))
    tree.extend(49)
    await filled(near.place, tree, finality_depth_min=5)
    lake = await lake_up_to(near, tree, 19)
    begun = near.read("logs")
    replaced = [one for one in await lake.versions.current(["logs"]) if one.span.first == 0]
    await lake.versions.retire([one.version for one in replaced])
    await lake.compact("logs", Span(20, 29))
    assert (await gc.find(lake.versions, lake.storage, keep_s=0)).is_empty
    assert await difference(tree, begun, 0, 49) == ""
    await near.place.app_rows("DELETE FROM {app}.lake_pins")
    await gc.remove(
        lake.versions, lake.storage, await gc.find(lake.versions, lake.storage, keep_s=0)
    )
    with pytest.raises(errors.FilesRemoved):
        reading.table(begun)


class World:
    """A chain, its lake, and what may happen to them in any order."""

    def __init__(self, seed: int, near: Near) -> None:
        self.dice = random.Random(seed)
        self.near = near
        self.tree = Tree(Knobs(seed=seed, density=2, hostile=True, finality_lag=6))
        self.lake = raw_lake(near)
        self.store: HotStore | None = None
        self.cold = dict.fromkeys(NAMES, 0)
        self.dropped = dict.fromkeys(NAMES, 0)
        self.begun: list[tuple[Reading, int]] = []
        self.told: list[str] = []

    async def run(self, moves: int) -> None:
        place = self.near.place
        self.store = place.store(chain=place.chain(finality_depth_min=6))
        await self.store.open()
        await self.store.claim(chain_id=1337, start=0)
        await self.commit([self.tree.head])
        for _ in range(moves):
            weights = {"grow": 4, "fork": 3, "compact": 5, "die": 2, "drop": 3, "gc": 2, "begin": 3}
            move = self.dice.choices(list(weights), list(weights.values()))[0]
            self.told.append(move)
            await getattr(self, move)()
            await self.check()

    async def grow(self) -> None:
        await self.take(self.tree.extend(self.dice.randint(1, 12)))

    async def fork(self) -> None:
        floor = (await self.state()).floor
        depth = min(5, self.tree.head.number - (floor.number if floor else 0))
        if depth >= 1:
            depth = self.dice.randint(1, depth)
            length = self.dice.randint(1, depth + 2)
            await self.take(self.tree.fork(depth=depth, length=length, style=Style.REPLACED))

    async def compact(self) -> None:
        await self._next(dies=False)

    async def die(self) -> None:
        await self._next(dies=True)

    async def drop(self) -> None:
        name = self.dice.choice(NAMES[1:])
        if self.cold[name] > self.dropped[name]:
            first, last = self.dropped[name], self.cold[name] - 1
            # A reading that was begun before is gone by then: pins keep what it reads.
            self.begun.clear()
            await self.lake.forget_hot(name, Span(first, last))
            self.dropped[name] = last + 1

    async def gc(self) -> None:
        found = await gc.find(self.lake.versions, self.lake.storage, keep_s=0)
        await gc.remove(self.lake.versions, self.lake.storage, found)

    async def begin(self) -> None:
        """Begins a reading of what is final, which has to end well whatever comes."""
        floor = (await self.state()).floor
        if floor is not None:
            name = self.dice.choice(NAMES)
            found = self.near.read(name, first=0, last=floor.number)
            self.begun.append((found, floor.number))

    async def check(self) -> None:
        """Every dataset is the canonical chain's, over both stores, and so is what was begun."""
        head = self.tree.head.number
        for name in NAMES:
            first = self.dice.randint(0, head)
            assert await difference(self.tree, self.near.read(name, first=first), first, head) == ""
        for found, last in self.begun[-2:]:
            assert await difference(self.tree, found, 0, last) == ""

    async def state(self) -> ChainState:
        assert self.store is not None
        return await self.store.state()

    async def take(self, movement: Movement) -> None:
        assert self.store is not None
        if movement.removed:
            ancestor = self.tree.at(movement.removed[-1].number - 1)
            assert ancestor is not None
            await self.store.unwind(ref(ancestor), tip=ref(movement.head))
        await self.commit(movement.added)

    async def commit(self, blocks: Sequence[Block]) -> None:
        assert self.store is not None
        if blocks:
            head, finalized = self.tree.head, self.tree.finalized
            await self.store.commit(batch(*blocks, head=head, finalized=finalized))

    async def _next(self, *, dies: bool) -> None:
        name = self.dice.choice(NAMES)
        await follow(self.near.place)
        floor = (await self.state()).floor
        first = self.cold[name]
        last = first + self.dice.randint(1, 6)
        if floor is None or floor.number < last:
            return
        published = await self.lake.compact(name, Span(first, last), dies=dies)
        if published is not None:
            self.cold[name] = last + 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_worlds_of_forks_compaction_retention_and_crashes_read_as_the_chain(
    seed: int, near: Near
) -> None:
    world = World(seed, near)
    try:
        await world.run(MOVES)
    except BaseException as error:
        error.add_note(f"reproduce: SEED={seed} pytest tests/integration/lake/test_joined.py")
        error.add_note(" ".join(world.told))
        raise
    assert any(world.cold.values()), "nothing came into the lake"
