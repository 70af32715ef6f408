"""Goal: partitions are there before they are needed, and no reader ever delays a commit (I7).

Method: real transactions that hold tables open while others are made to wait for a lock for longer
than a test has time for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.batches import batch, ref
from tests.places import Place
from unfork import errors
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.queries import Query
from unfork.database.session import Session
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot import schema
from unfork.hot.partitions import Partitions
from unfork.hot.store import HotStore

#: Seconds in which everything ends that waits for nobody, on the busiest of machines.
PATIENCE_S = 50.0
#: Longer than that.
LOCK_TIMEOUT_MS = 3_600_000

SIZES = {dataset.name: 10 for dataset in evm.DATASETS}


async def opened(place: Place, **settings: object) -> HotStore:
    store = place.store(chain=place.chain(partition_sizes=SIZES), **settings)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    return store


@asynccontextmanager
async def holding(place: Place, statement: str) -> AsyncIterator[Session]:
    """A transaction that ran a statement and stays open."""
    async with place.database().session() as session:
        await session.run(Query("begin", "BEGIN"))
        await session.run(Query("hold", statement.replace("{raw}", f'"{place.raw}"')))
        yield session
        await session.run(Query("end", "ROLLBACK"))


async def partitions(place: Place, table: str) -> list[Span]:
    manager = Partitions(
        schema=place.raw,
        datasets=evm.DATASETS,
        sizes=SIZES,
        queries=schema.bound(place.name),
    )
    async with place.database().session() as session:
        return [one.span for one in await manager.all(session) if one.table == table]


async def test_two_partitions_are_always_ahead(fresh_place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(25)
    store = await opened(fresh_place)
    for number in range(26):
        await store.commit(batch(tree.at(number)))
        ahead = [one for one in await partitions(fresh_place, "logs") if one.first > number]
        assert len(ahead) == 2
    assert len(await partitions(fresh_place, "logs")) == 5


async def test_a_reader_that_holds_everything_open_never_delays_a_commit(
    fresh_place: Place,
) -> None:
    tree = Tree(Knobs())
    tree.extend(45)
    store = await opened(fresh_place, lock_timeout_ms=LOCK_TIMEOUT_MS)
    await store.commit(batch(tree.at(0)))
    tables = ", ".join(f"(SELECT count(*) FROM {{raw}}.{d.name})" for d in evm.DATASETS)
    async with holding(fresh_place, f"SELECT {tables}"):
        for number in range(1, 46):
            # Fourteen of these meet the end of a partition and make new ones.
            async with asyncio.timeout(PATIENCE_S):
                await store.commit(batch(tree.at(number)))
        async with asyncio.timeout(PATIENCE_S):
            await store.unwind(ref(tree.at(8)))
    assert len(await partitions(fresh_place, "blocks")) == 7


async def test_a_lock_on_a_table_delays_only_who_needs_a_new_partition(
    fresh_place: Place,
) -> None:
    """A maintenance command holds the parent: lookahead gives way, then the need says so."""
    tree = Tree(Knobs())
    tree.extend(31)
    store = await opened(fresh_place, lock_timeout_ms=10)
    await store.commit(batch(tree.at(0)))
    async with holding(fresh_place, "LOCK TABLE {raw}.logs IN SHARE UPDATE EXCLUSIVE MODE"):
        await store.commit(batch(*[tree.at(number) for number in range(1, 30)]))
        with pytest.raises(errors.PartitionBusy, match=r"30\.\.39 of logs"):
            await store.commit(batch(tree.at(30)))
    state = await store.commit(batch(tree.at(30), tree.at(31)))
    assert state.position == ref(tree.at(31))


async def test_a_partition_is_removed_without_stopping_readers(fresh_place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(29)
    store = await opened(fresh_place, lock_timeout_ms=LOCK_TIMEOUT_MS)
    await store.commit(batch(*[tree.at(number) for number in range(30)]))
    manager = Partitions(
        schema=fresh_place.raw,
        datasets=evm.DATASETS,
        sizes=SIZES,
        queries=schema.bound(fresh_place.name),
    )
    async with holding(fresh_place, "SELECT count(*) FROM {raw}.logs"):
        async with fresh_place.database(statement_timeout_s=1.0).session() as hasty:
            with pytest.raises(errors.DatabaseUnavailable, match="statement timeout"):
                await manager.remove(hasty, "logs", Span(0, 9))
        async with asyncio.timeout(PATIENCE_S):
            tree.extend(1)
            await store.commit(batch(tree.at(30)))
    async with fresh_place.database().session() as session:
        await manager.remove(session, "logs", Span(0, 9))
        await manager.remove(session, "logs", Span(0, 9))
    assert Span(0, 9) not in await partitions(fresh_place, "logs")
    rows = await fresh_place.rows("SELECT min(block_number) AS lowest FROM {raw}.logs")
    assert rows[0]["lowest"] >= 10


async def test_partitions_made_by_two_processes_at_once_are_made_once(fresh_place: Place) -> None:
    async def one() -> None:
        manager = Partitions(
            schema=fresh_place.raw,
            datasets=evm.DATASETS,
            sizes=SIZES,
            queries=schema.bound(fresh_place.name),
        )
        async with fresh_place.database().session() as session:
            await manager.ensure(session, Span(0, 12), ["logs", "blocks"])

    await asyncio.gather(one(), one(), one())
    # What lies ahead gave way to whoever came first, and is made the next time.
    await one()
    assert [str(one) for one in await partitions(fresh_place, "logs")] == [
        *("0..9", "10..19", "20..29", "30..39"),
    ]


async def test_sizes_are_reported_for_now_and_for_when_full(place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(3)
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(number) for number in range(4)]))
    sizes = await place.reader().partitions()
    first = next(size for size in sizes if size.partition.name == "logs_p0")
    assert first.bytes > 0
    assert first.bytes_full == evm.LOGS.row_bytes * 5000
    assert {size.partition.table for size in sizes} == {d.name for d in evm.DATASETS}


async def test_the_size_when_full_counts_from_where_the_chain_starts(place: Place) -> None:
    tree = Tree(Knobs(density=0))
    tree.extend(3999)
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=3000)
    await store.commit(batch(*[tree.at(number) for number in range(3000, 4000)]))
    sizes = await place.reader().partitions()
    first = next(size for size in sizes if size.partition.name == "logs_p0")
    assert (first.partition.span.first, len(first.partition.span)) == (0, 5000)
    assert first.bytes_full == 5 * first.bytes, "a thousand of five thousand blocks are held"


async def test_an_unwind_touches_no_partition_but_those_of_its_blocks(fresh_place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(35)
    store = await opened(fresh_place, lock_timeout_ms=LOCK_TIMEOUT_MS)
    await store.commit(batch(*[tree.at(number) for number in range(36)]))
    async with holding(fresh_place, "LOCK TABLE {raw}.logs_p0 IN ACCESS EXCLUSIVE MODE"):
        async with asyncio.timeout(PATIENCE_S):
            await store.unwind(BlockRef(32, tree.at(32).hash))
    assert (await store.state()).position == ref(tree.at(32))
