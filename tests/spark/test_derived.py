"""Goal: `format("unfork")` gives the rows of a derived dataset at one block, or says why not.

Method: toy datasets of every kind, computed in plain Python and committed for real, are read by a
real Spark and compared with a computation of all of it. Races are made without it: the chain forks,
builds are swapped and snapshots are lost between the making of tasks and what tasks do.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests import toy
from tests.batches import batch, ref
from tests.journals import Journal
from tests.spark.test_source import failure_of
from tests.sparks import Chain, Near
from tests.workers import Worker, committed
from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.dataset import Kind
from unfork.datasets.derivation import Mode
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot.advance import Upstream
from unfork.jobs.spark import options, reading, snapshot
from unfork.jobs.spark.reading import Reading


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def computed(chain: Chain | Near, journal: Journal) -> Worker:
    """An app side with every toy dataset computed as far as the journal goes."""
    worker = Worker(chain.place, journal)
    await worker.register(*toy.EVERY)
    await caught_up(worker, journal.chain)
    return worker


async def caught_up(worker: Worker, blocks: list[BlockRef]) -> None:
    await worker.follow()
    for dataset in toy.EVERY:
        if dataset.mode is Mode.CURSOR:
            await worker.run(dataset, blocks)
        else:
            await worker.run_partitions(dataset, blocks)


def rows(dataset: DerivedDataset, frame: DataFrame | Reading) -> list[dict[str, Any]]:
    """The rows of a DataFrame or a reading as plain values, in an order of their own."""
    found = taken(frame).to_pylist()
    for row in found:
        for column in dataset.columns:
            if column.kind in (Kind.U256, Kind.SIGNED) and row.get(column.name) is not None:
                is_signed = column.kind is Kind.SIGNED
                row[column.name] = int.from_bytes(row[column.name], "big", signed=is_signed)
    return toy.ordered(found)


def taken(frame: DataFrame | Reading) -> pa.Table:
    return frame.toArrow() if isinstance(frame, DataFrame) else reading.table(frame)


def failure(frame: Reading) -> errors.UnforkError | None:
    return failure_of(lambda: reading.table(frame))


@pytest.mark.everywhere
async def test_every_kind_of_dataset_reads_as_a_computation_of_all_of_it(chain: Chain) -> None:
    journal = Journal().finalize(9).commit(drawing("a", 1, 24))
    worker = await computed(chain, journal)
    journal.unwind(18).commit(drawing("b", 19, 27))
    await caught_up(worker, journal.chain)
    for dataset in toy.EVERY:
        frame = chain.read(dataset.name)
        assert rows(dataset, frame) == toy.expected(dataset, journal.chain), dataset.name
        assert [field.metadata["kind"] for field in frame.schema] == [
            column.kind.value for column in dataset.columns
        ]


async def test_rows_of_orphaned_blocks_that_append_keeps_are_left_out(near: Near) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await computed(near, journal)
    journal.unwind(5)
    await worker.follow()
    held = await near.place.app_rows("SELECT count(*) AS count FROM {app}.alerts WHERE is_orphaned")
    assert held[0]["count"] == 0, "the view ends at the watermark"
    table = (await worker.build(toy.ALERTS)).table
    kept = await near.place.app_rows(f'SELECT count(*) AS count FROM {{app}}."{table}"')
    expected = toy.expected(toy.ALERTS, journal.chain)
    assert kept[0]["count"] > len(expected)
    assert rows(toy.ALERTS, near.read("alerts")) == expected
    journal.commit(drawing("b", 6, 22))
    await caught_up(worker, journal.chain)
    assert rows(toy.ALERTS, near.read("alerts")) == toy.expected(toy.ALERTS, journal.chain)


async def test_a_dataset_is_read_up_to_its_watermark_and_not_beyond(near: Near) -> None:
    journal = Journal().commit(drawing("a", 1, 30))
    worker = Worker(near.place, journal)
    build, _ = await worker.register(toy.MOVES, toy.BALANCES)
    await worker.follow()
    assert rows(toy.MOVES, near.read("moves")) == []
    assert isinstance(failure_of(lambda: near.read("moves", last=3)), errors.BlockReplaced)
    committed(await worker.run(toy.MOVES, journal.chain, last=10))
    ahead = await worker.run(toy.MOVES, journal.chain, kind="backfill", span=Span(16, 20))
    assert committed(ahead).watermark == journal.at(10)
    assert rows(toy.MOVES, near.read("moves")) == toy.expected(toy.MOVES, journal.chain[:10])
    beyond = near.read("moves", first=5, last=11, at=options.text(journal.at(30)))
    told = failure(beyond)
    assert isinstance(told, errors.BlockReplaced) and "complete up to block 10" in str(told)
    inside = near.read("moves", first=5, last=9, at=options.text(journal.at(30)))
    assert rows(toy.MOVES, inside) == toy.expected(toy.MOVES, journal.chain[4:9])
    assert build.first == 1


@pytest.mark.everywhere
async def test_filters_and_columns_give_what_spark_itself_would(chain: Chain) -> None:
    journal = Journal().finalize(10).commit(drawing("a", 1, 40))
    await computed(chain, journal)
    frame = chain.read("balances", columns="account,balance,block_number,note")
    local = chain.spark.createDataFrame(frame.toArrow())
    one = frame.collect()[0]
    conditions = [
        F.col("account") == F.lit(one["account"]),
        F.col("block_number") > 20,
        F.col("block_number") == one["block_number"],
        F.col("note").isNull(),
        F.col("balance") == F.lit(one["balance"]),
    ]
    for condition in conditions:
        found = frame.where(condition).toArrow().to_pylist()
        wanted = local.where(condition).toArrow().to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, wanted)), condition
    moves = chain.read("moves").where((F.col("block_number") > 8) & (F.col("block_number") <= 12))
    assert rows(toy.MOVES, moves) == toy.expected(toy.MOVES, journal.chain[8:12])


async def test_a_state_is_read_at_its_own_block_and_at_no_other(near: Near) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await computed(near, journal)
    frame = near.read("balances", at=options.text(journal.at(12)))
    assert rows(toy.BALANCES, frame) == toy.expected(toy.BALANCES, journal.chain)
    journal.commit(drawing("a", 13, 14))
    await caught_up(worker, journal.chain)
    told = failure(frame)
    assert isinstance(told, errors.BlockReplaced) and "stands at block 14, not at 12" in str(told)
    told = failure_of(lambda: near.read("balances", first=5))
    assert isinstance(told, errors.ConfigInvalid) and "read as a whole" in str(told)


async def test_partitions_are_read_whole_and_only_while_they_are_valid(near: Near) -> None:
    journal = Journal().commit(drawing("a", 1, 24))
    worker = await computed(near, journal)
    parts = near.read("pages", first=5, last=14)
    assert rows(toy.PAGES, parts) == toy.expected(toy.PAGES, journal.chain[4:14])
    told = failure(near.read("pages", first=5, last=12))
    assert isinstance(told, errors.BlockReplaced) and "hold exactly blocks 5..12" in str(told)
    journal.unwind(11).commit(drawing("b", 12, 24))
    await worker.follow()
    whole = [ref for ref in journal.chain if ref.number < 10]
    assert rows(toy.PAGES, near.read("pages")) == toy.expected(toy.PAGES, whole)
    at = options.text(journal.at(24))
    assert isinstance(failure(near.read("pages", first=10, last=24, at=at)), errors.BlockReplaced)
    await worker.run_partitions(toy.PAGES, journal.chain)
    later = near.read("pages", first=10, last=24, at=at)
    assert rows(toy.PAGES, later) == toy.expected(toy.PAGES, journal.chain[9:24])


async def test_a_fork_between_loading_and_reading_fails_it(near: Near) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await computed(near, journal)
    frame = near.read("moves", at=options.text(journal.at(12)))
    journal.unwind(9).commit(drawing("b", 10, 14))
    await worker.follow()
    assert isinstance(failure(frame), errors.BlockReplaced)
    await caught_up(worker, journal.chain)
    assert isinstance(failure(frame), errors.BlockReplaced)
    assert rows(toy.MOVES, near.read("moves")) == toy.expected(toy.MOVES, journal.chain)


async def test_a_build_that_is_swapped_is_never_mixed_with_the_one_before(near: Near) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await computed(near, journal)
    before = near.read("moves", at=options.text(journal.at(12)))
    await worker.generations.build(toy.MOVES, config_hash="config-2", first=1)
    beside = await worker.build(toy.MOVES, "building")
    assert rows(toy.MOVES, before) == toy.expected(toy.MOVES, journal.chain), "not what is built"
    await worker.generations.swap("moves", behind_max=100)
    told = failure(before)
    assert isinstance(told, errors.BlockReplaced) and "another build" in str(told)
    assert rows(toy.MOVES, near.read("moves")) == []
    assert (await worker.build(toy.MOVES)).id == beside.id


async def test_one_block_of_both_databases_is_read_through_a_fork(near: Near) -> None:
    tree = Tree(Knobs(density=2, finality_lag=4))
    tree.extend(12)
    store = near.place.store(chain=near.place.chain(finality_depth_min=4))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    old = [tree.at(number) for number in range(13)]
    await store.commit(batch(*old, head=tree.head, finalized=tree.finalized))
    refs = [ref(block) for block in old]
    raw, app = near.place.database(), near.place.app_database()
    worker = Worker(near.place, Upstream(near.place.name, raw))
    await worker.register(toy.MOVES, toy.BALANCES, first=0)
    await worker.follow()
    for dataset in (toy.MOVES, toy.BALANCES):
        committed(await worker.run(dataset, refs))
    async with snapshot.hold_both(
        raw, app, near.place.name, holder="test", first=0, at=refs[12]
    ) as held:
        assert held.app is not None and held.raw.at == held.app.at == refs[12]
        movement = tree.fork(depth=3, length=5, style=Style.REPLACED)
        await store.unwind(ref(tree.at(9)))
        await store.commit(batch(*movement.added))
        await worker.follow()
        span = {"first": 0, "last": 12}
        blocks = near.read("blocks", columns="hash", **span, **held.raw.options())
        moves = near.read("moves", **span, **held.app.options())
        balances = near.read("balances", **span, **held.app.options())
        assert set(taken(blocks)["hash"].to_pylist()) == {one.hash for one in refs}
        assert rows(toy.MOVES, moves) == toy.expected(toy.MOVES, refs)
        assert rows(toy.BALANCES, balances) == toy.expected(toy.BALANCES, refs)
    told = failure_of(lambda: near.read("balances", **span, **held.app.options()))
    assert isinstance(told, errors.SnapshotLost)
    assert isinstance(failure(moves), errors.SnapshotLost)
    with pytest.raises(errors.BlockReplaced):
        async with snapshot.hold_both(
            raw, app, near.place.name, holder="test", first=0, at=refs[12]
        ):
            pytest.fail("a snapshot without the block")
    assert await near.place.rows("SELECT * FROM {raw}.pins") == []


async def test_a_final_block_is_asked_of_the_raw_store_where_the_app_forgot_its_hash(
    near: Near,
) -> None:
    tree = Tree(Knobs(density=2, finality_lag=4))
    tree.extend(20)
    store = near.place.store(chain=near.place.chain(finality_depth_min=4))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    blocks = [tree.at(number) for number in range(21)]
    await store.commit(batch(*blocks, head=tree.head, finalized=tree.finalized))
    refs = [ref(block) for block in blocks]
    worker = Worker(near.place, Upstream(near.place.name, near.place.database()))
    await worker.register(toy.MOVES, first=0)
    await worker.follow()
    committed(await worker.run(toy.MOVES, refs))
    floor = (await worker.refs.state()).floor
    assert floor is not None and floor.number > 3
    frame = near.read("moves", at=options.text(refs[3]))
    assert rows(toy.MOVES, frame) == toy.expected(toy.MOVES, refs[:4])
    stranger = BlockRef(3, bytes(32))
    told = failure_of(lambda: near.read("moves", at=options.text(stranger)))
    assert isinstance(told, errors.BlockReplaced)


async def test_what_nobody_computes_is_named_with_what_there_is(near: Near) -> None:
    worker = Worker(near.place, Journal().commit(drawing("a", 1, 2)))
    await worker.register(toy.MOVES)
    told = failure_of(lambda: near.read("move"))
    assert isinstance(told, errors.ConfigInvalid)
    assert "has no 'move'; there are blocks, " in str(told) and str(told).endswith("moves")
    told = failure_of(lambda: near.read("moves", columns="sender,recipient"))
    assert isinstance(told, errors.ConfigInvalid) and "moves has no recipient" in str(told)
