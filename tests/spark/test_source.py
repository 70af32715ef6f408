"""Goal: `format("unfork")` gives exactly the rows of one chain, whatever happens while it reads.

Method: devnet blocks in real Postgres, read by a real Spark, compared with the oracle's rows; forks
and lost snapshots are made between the steps of a reading, where races would put them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.batches import batch, ref
from tests.places import Place
from tests.sparks import Chain
from unfork import errors
from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.datasets.scope import Scope
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot import schema as raw_schema
from unfork.hot.partitions import Partitions
from unfork.hot.store import HotStore
from unfork.jobs.spark import failures, options, reading, snapshot
from unfork.testing import compare, oracle


async def opened(place: Place, **settings: Any) -> HotStore:
    store = place.store(chain=place.chain(**settings))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    return store


async def filled(place: Place, tree: Tree, **settings: Any) -> HotStore:
    """A store that holds the whole chain, committed in three pieces."""
    store = await opened(place, **settings)
    blocks = [tree.at(number) for number in range(tree.head.number + 1)]
    third = len(blocks) // 3
    for some in (blocks[:third], blocks[third : 2 * third], blocks[2 * third :]):
        await store.commit(batch(*some, head=tree.head, finalized=tree.finalized))
    return store


def rows(frame: DataFrame) -> list[dict[str, Any]]:
    return frame.toArrow().to_pylist()


def difference(tree: Tree, name: str, frame: DataFrame, first: int = 0, last: int = 10**9) -> str:
    expected = oracle.canonical_rows(tree, first, min(last, tree.head.number))
    return compare.difference(evm.BY_NAME[name], expected[name], rows(frame))


@pytest.mark.everywhere
async def test_every_dataset_reads_as_the_chain_has_it(chain: Chain) -> None:
    tree = Tree(Knobs(density=6, hostile=True, finality_lag=20))
    tree.extend(60)
    store = await filled(chain.place, tree, finality_depth_min=20)
    floor = (await store.state()).floor
    assert floor is not None and 0 < floor.number < 60, "blocks on both sides of the floor"
    for dataset in evm.DATASETS:
        frame = chain.read(dataset.name)
        assert difference(tree, dataset.name, frame) == ""
        assert [field.metadata["kind"] for field in frame.schema] == [
            column.kind.value for column in dataset.columns
        ]


@pytest.mark.everywhere
async def test_a_span_some_columns_and_filters_give_what_spark_itself_would_filter(
    chain: Chain,
) -> None:
    tree = Tree(Knobs(density=8, hostile=True, finality_lag=10))
    tree.extend(30)
    await filled(chain.place, tree, finality_depth_min=10)
    logs = [row for row in oracle.canonical_rows(tree, 5, 25)["logs"] if row["topic1"] is not None]
    one = logs[len(logs) // 2]
    given = {"first": 5, "last": 25, "columns": "log_index,block_number,address,topic1"}
    frame = chain.read("logs", push="true", **given)
    assert frame.columns == ["log_index", "block_number", "address", "topic1"]
    conditions = [
        F.col("block_number") == one["block_number"],
        (F.col("block_number") > 7) & (F.col("block_number") <= 20),
        F.col("block_number") > 25,
        F.col("address") == F.lit(one["address"]),
        F.col("topic1").isin(one["topic1"], b"nothing"),
        F.col("topic1").isNull() & (F.col("log_index") < 3),
        ~(F.col("address") == F.lit(one["address"])),
    ]
    local = chain.spark.createDataFrame(frame.toArrow())
    for condition in conditions:
        found = sorted(map(repr, rows(frame.where(condition))))
        assert found == sorted(map(repr, rows(local.where(condition)))), condition
    assert len(rows(frame.where(conditions[3]))) > 0
    only = options.only({"address": (one["address"],), "topic1": (one["topic1"], b"nothing")})
    assert rows(chain.read("logs", only=only, **given)) == rows(
        local.where(conditions[3] & conditions[4])
    )


@pytest.mark.everywhere
async def test_filters_of_one_use_of_a_dataframe_are_not_those_of_another(chain: Chain) -> None:
    tree = Tree(Knobs(density=8, hostile=True))
    tree.extend(12)
    await filled(chain.place, tree)
    logs = chain.read("logs")
    low, high = logs.where("block_number <= 4"), logs.where("block_number > 9")
    numbers = [row["block_number"] for row in oracle.canonical_rows(tree, 0, 12)["logs"]]

    def held(frame: DataFrame) -> list[int]:
        return sorted(row["block_number"] for row in frame.select("block_number").collect())

    assert held(low.unionAll(high)) == sorted(n for n in numbers if n <= 4 or n > 9)
    assert held(low.unionAll(logs)) == sorted([n for n in numbers if n <= 4] + numbers)
    assert held(high) == sorted(n for n in numbers if n > 9)
    assert held(logs) == sorted(numbers)


async def test_a_reading_at_a_block_stays_the_same_while_the_chain_grows(chain: Chain) -> None:
    tree = Tree(Knobs(density=2))
    tree.extend(9)
    store = await filled(chain.place, tree)
    frame = chain.read("blocks", at=options.text(ref(tree.head)))
    await store.commit(batch(*tree.extend(3).added))
    assert frame.count() == 10
    assert chain.read("blocks").count() == 13


async def test_a_fork_between_loading_and_reading_fails_it_and_never_mixes_two_chains(
    chain: Chain,
) -> None:
    tree = Tree(Knobs(density=2))
    tree.extend(9)
    store = await filled(chain.place, tree)
    frame = chain.read("transactions", at=options.text(ref(tree.head)))
    movement = tree.fork(depth=2, length=4, style=Style.REPLACED)
    await store.unwind(ref(tree.at(7)))
    assert isinstance(failure(frame), errors.BlockReplaced)
    await store.commit(batch(*movement.added))
    assert isinstance(failure(frame), errors.BlockReplaced)
    assert difference(tree, "transactions", chain.read("transactions")) == ""


@pytest.mark.everywhere
async def test_all_reads_of_a_run_see_the_chain_of_its_snapshot_through_a_fork(
    chain: Chain,
) -> None:
    tree, old = Tree(Knobs(density=3, finality_lag=4)), Tree(Knobs(density=3, finality_lag=4))
    for each in (tree, old):
        each.extend(12)
    store = await filled(chain.place, tree, finality_depth_min=4)
    at = ref(tree.at(11))
    database = chain.place.database()
    async with snapshot.hold(database, chain.place.name, holder="test", first=0, at=at) as held:
        assert held.at == at and held.floor is not None and held.seq == 3
        tree.fork(depth=3, length=5, style=Style.MOVED)
        await store.unwind(ref(tree.at(9)))
        await store.commit(batch(*[tree.at(number) for number in range(10, 15)]))
        for name in ("blocks", "logs", "traces"):
            frame = chain.read(name, first=2, **held.options())
            assert difference(old, name, frame, first=2, last=11) == ""
    assert isinstance(failure(chain.read("logs", first=2, **held.options())), errors.SnapshotLost)
    final = chain.read("logs", first=2, last=held.floor.number, **held.options())
    assert difference(tree, "logs", final, 2, held.floor.number) == "", "final blocks need none"


async def test_a_snapshot_is_given_only_where_it_holds_the_block_asked_for(chain: Chain) -> None:
    tree = Tree(Knobs())
    tree.extend(5)
    store = await filled(chain.place, tree)
    gone = ref(tree.head)
    tree.fork(depth=1, length=2, style=Style.REPLACED)
    await store.unwind(ref(tree.at(4)))
    database, name = chain.place.database(), chain.place.name
    with pytest.raises(errors.BlockReplaced):
        async with snapshot.hold(database, name, holder="test", first=0, at=gone):
            pytest.fail("a snapshot without the block")
    async with snapshot.hold(database, name, holder="test", first=0) as held:
        assert held.at == ref(tree.at(4))
    assert await chain.place.rows("SELECT * FROM {raw}.pins") == []


async def test_the_server_itself_ends_a_snapshot_that_is_held_for_too_long(chain: Chain) -> None:
    tree = Tree(Knobs())
    tree.extend(3)
    await filled(chain.place, tree)
    database = chain.place.database()
    async with snapshot.hold(
        database, chain.place.name, holder="test", first=0, max_s=0.05
    ) as held:
        frame = chain.read("blocks", first=0, **held.options())
        while await chain.place.rows(
            "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction'"
            " AND query LIKE %(raw)s",
            raw=f"%{chain.place.raw}%",
        ):
            pass
        assert isinstance(failure(frame), errors.SnapshotLost)


async def test_nothing_that_a_run_reads_is_dropped_before_it_has_ended(place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(3)
    await filled(place, tree)
    database = place.database()
    partitions = Partitions(
        schema=place.raw,
        datasets=evm.DATASETS,
        sizes=place.chain().partition_sizes,
        queries=raw_schema.bound(place.name),
    )
    async with database.session() as session:
        async with snapshot.hold(place.database(), place.name, holder="a run", first=2):
            with pytest.raises(errors.PartitionBusy, match="a run pinned the blocks from 2"):
                await partitions.remove(session, "logs", Span(0, 4999))
        await partitions.remove(session, "logs", Span(0, 4999))
        assert "logs_p0" not in [each.name for each in await partitions.all(session)]
        await partitions.ensure(session, Span(0, 4999), ["logs"])


async def test_an_operators_unwind_below_the_floor_fails_what_was_planned_before(
    chain: Chain,
) -> None:
    tree = Tree(Knobs(density=1, finality_lag=4))
    tree.extend(12)
    store = await filled(chain.place, tree, finality_depth_min=4)
    frame = chain.read("blocks", first=0, last=5)
    assert frame.count() == 6
    await store.unwind(ref(tree.at(3)), operator=True)
    assert isinstance(failure(frame), errors.BlockReplaced)


@pytest.mark.everywhere
async def test_a_payload_that_was_damaged_is_an_error_and_never_a_row(chain: Chain) -> None:
    tree = Tree(Knobs(density=8))
    tree.extend(6)
    store = chain.place.store(inline_max_bytes=64)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(number) for number in range(7)]))
    assert difference(tree, "logs", chain.read("logs")) == ""
    stored = await chain.place.rows(
        "SELECT payload_ref FROM {raw}.logs WHERE payload_ref IS NOT NULL LIMIT 1"
    )
    blob = chain.place.folder / "payloads" / stored[0]["payload_ref"]
    blob.write_bytes(b"something else")
    assert isinstance(failure(chain.read("logs", columns="data")), errors.PayloadDamaged)
    assert chain.read("logs", columns="address").toArrow().num_rows > 0, "nobody asked for it"


async def test_rows_that_were_never_fetched_are_an_error_and_not_an_empty_table(
    chain: Chain,
) -> None:
    tree = Tree(Knobs(density=1))
    tree.extend(3)
    store = await opened(chain.place)
    await store.commit(batch(*[tree.at(n) for n in range(4)], scope=Scope()))
    told = failure_of(lambda: chain.read("traces"))
    assert isinstance(told, errors.ConfigInvalid)
    assert "holds no traces of blocks 0 to 3" in str(told)
    assert chain.read("logs").toArrow().num_rows > 0


async def test_an_empty_store_reads_as_no_rows(chain: Chain) -> None:
    assert rows(chain.read("logs")) == []
    await opened(chain.place)
    assert rows(chain.read("blocks")) == []
    assert chain.read("blocks").columns == evm.BLOCKS.schema.names


async def test_a_plan_shows_names_and_never_where_the_database_is(
    chain: Chain, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = Tree(Knobs())
    tree.extend(2)
    await filled(chain.place, tree)
    chain.read("logs").where("block_number = 1").explain(True)
    shown = capfd.readouterr().out
    assert "block_number" in shown
    assert "postgres" not in shown


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "option dataset is missing"),
        ({"dataset": "log"}, "has no 'log'"),
        ({"dataset": "logs", "frist": "3"}, "did you mean first?"),
        ({"dataset": "logs", "columns": "address,topik"}, "logs has no topik"),
        ({"dataset": "logs", "columns": "address,address"}, "named twice"),
        ({"dataset": "logs", "at": "17"}, "write number:0xhash"),
        ({"dataset": "logs", "only": "address"}, "it is JSON"),
        ({"dataset": "logs", "push": "yes"}, "neither true nor false"),
        ({"dataset": "logs", "first": "-1"}, "is not a block number"),
        ({"dataset": "logs", "snapshot": "00-1"}, "goes with at, floor and epoch"),
        ({"dataset": "logs", "url": "postgresql://user:secret@host/db"}, "option url is unknown"),
    ],
)
async def test_an_option_that_is_wrong_is_named(
    chain: Chain, given: dict[str, str], message: str
) -> None:
    where = {"chain": chain.place.name, "config": str(chain.file)}

    def load() -> None:
        reading.resolve(options.parse({**where, **given}))

    told = failure_of(load)
    assert isinstance(told, errors.ConfigInvalid)
    assert message in str(told)
    assert "secret" not in str(told)


def failure(frame: DataFrame) -> errors.UnforkError | None:
    """What becomes of reading a DataFrame, as the driver should treat it."""
    return failure_of(frame.toArrow)


def failure_of(action: Callable[[], object]) -> errors.UnforkError | None:
    try:
        action()
    except (PySparkException, errors.UnforkError) as error:
        return failures.typed(error)
    pytest.fail("nothing failed")
