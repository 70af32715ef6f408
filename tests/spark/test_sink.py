"""Goal: the rows that tasks stage by themselves are the rows of the DataFrame, each exactly once.

Method: rows of toy datasets are staged by a real Spark and committed for real; tasks are made to
fail, to run again and to come too late; what is served is compared with a computation of all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from tests import sparks, toy
from tests.journals import Journal
from tests.spark.test_source import failure_of
from tests.sparks import Chain
from tests.workers import Worker, committed
from unfork import errors
from unfork.app import staging
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation
from unfork.app.staging import Staged
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.jobs.finished import Finished
from unfork.jobs.lease import Lease
from unfork.jobs.spark import schema, sink

DRAWN = "-".join(f"a{number}" for number in range(1, 41))


async def claimed(chain: Chain, dataset: DerivedDataset) -> tuple[Worker, Generation, Lease]:
    """A lease over the whole chain, and the place where its tasks put their rows."""
    journal = Journal().finalize(10).commit(DRAWN)
    worker = Worker(chain.place, journal)
    await worker.register(toy.MOVES, dataset)
    await worker.follow()
    build = await worker.build(dataset)
    lease = await worker.claim(build, Span(1, 40), kind="backfill")
    assert lease is not None
    async with worker.database.session() as session:
        await staging.create(session, worker.queries, build, lease.token)
    return worker, build, lease


def frame(chain: Chain, dataset: DerivedDataset, blocks: Sequence[BlockRef]) -> DataFrame:
    """What a job would return, in several partitions, one of them empty."""
    wanted = schema.arrow(dataset.columns)
    table = toy.arrow(dataset, toy.computed(dataset, blocks)).cast(wanted)
    spark = chain.spark
    return spark.createDataFrame(table, schema.struct(dataset.columns)).repartition(
        3, "block_number"
    )


def staged(chain: Chain, frame: DataFrame, dataset: DerivedDataset, lease: Lease) -> Staged:
    return sink.stage(
        frame, dataset, token=lease.token, chain=chain.place.name, config=str(chain.file)
    )


async def finished(worker: Worker, build: Generation, lease: Lease, rows: Staged) -> Finished:
    blocks = worker.upstream.chain  # type: ignore[attr-defined]
    run = await worker.compute(build, lease, blocks, parent=None, rows=[])
    return Finished(
        build=build,
        lease=lease,
        anchor=run.anchor,
        as_read=run.as_read,
        rows=rows,
        config_hash=run.config_hash,
    )


@pytest.mark.everywhere
@pytest.mark.parametrize("dataset", [toy.MOVES, toy.BALANCES, toy.ALERTS], ids=lambda d: d.name)
async def test_what_tasks_stage_is_committed_as_what_the_driver_has(
    chain: Chain, dataset: DerivedDataset
) -> None:
    worker, build, lease = await claimed(chain, dataset)
    blocks = worker.upstream.chain  # type: ignore[attr-defined]
    rows = staged(chain, frame(chain, dataset, blocks), dataset, lease)
    assert rows.rows == len(toy.computed(dataset, blocks))
    assert len({one.task for one in rows.attempts}) == len(rows.attempts) <= 3
    committed(await worker.commits.commit(await finished(worker, build, lease, rows)))
    assert await worker.held(dataset) == toy.expected(dataset, blocks)


async def test_a_run_that_stages_twice_counts_once(chain: Chain) -> None:
    worker, build, lease = await claimed(chain, toy.MOVES)
    blocks = worker.upstream.chain  # type: ignore[attr-defined]
    rows = frame(chain, toy.MOVES, blocks)
    first = staged(chain, rows, toy.MOVES, lease)
    again = staged(chain, rows, toy.MOVES, lease)
    assert {one.attempt for one in first.attempts}.isdisjoint(one.attempt for one in again.attempts)
    committed(await worker.commits.commit(await finished(worker, build, lease, again)))
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, blocks)


@pytest.mark.everywhere
@pytest.mark.skipif(not sparks.WHERE.startswith("spark:"), reason="only there tasks are retried")
async def test_a_task_that_dies_after_its_copy_is_run_again_and_counted_once(chain: Chain) -> None:
    worker, build, lease = await claimed(chain, toy.MOVES)
    blocks = worker.upstream.chain  # type: ignore[attr-defined]
    writer = sink.Writer(
        dataset=toy.MOVES, token=lease.token, chain=chain.place.name, config=str(chain.file)
    )

    def dying(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        told = list(writer(batches))
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            raise RuntimeError("dies after its COPY")
        yield from told

    told = frame(chain, toy.MOVES, blocks).mapInArrow(dying, sink.TYPES).toArrow()
    won = sink.gathered(lease.token, told)
    held = await chain.place.app_rows(f'SELECT FROM {{app}}."staging_{lease.token}"')
    assert len(held) == 2 * won.rows, "what died has left its rows"
    committed(await worker.commits.commit(await finished(worker, build, lease, won)))
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, blocks)


async def test_a_value_that_does_not_fit_is_a_fault_of_the_job_and_leaves_no_row(
    chain: Chain,
) -> None:
    worker, _, lease = await claimed(chain, toy.MOVES)
    blocks = worker.upstream.chain  # type: ignore[attr-defined]
    good = frame(chain, toy.MOVES, blocks)
    cases: list[tuple[DataFrame, str]] = [
        (good.drop("sender"), "did not return column `sender`"),
        (good.selectExpr("*", "NULL AS x").withColumn("amount", good["sender"]), "does not fit"),
        (good.withColumn("receiver", good["note"].cast("binary")), "receiver"),
    ]
    for bad, message in cases:
        told = failure_of(lambda bad=bad: staged(chain, bad, toy.MOVES, lease))
        assert isinstance(told, errors.RowRefused) and message in str(told)
    assert await chain.place.app_rows(f'SELECT FROM {{app}}."staging_{lease.token}"') == []


async def test_a_task_that_comes_after_its_lease_was_lost_finds_no_place(chain: Chain) -> None:
    worker, _, lease = await claimed(chain, toy.MOVES)
    blocks = worker.upstream.chain  # type: ignore[attr-defined]
    rows = frame(chain, toy.MOVES, blocks)
    worker.time.pass_s(10_000)
    assert [one.id for one in await worker.leases.reap()] == [lease.id]
    told = failure_of(lambda: staged(chain, rows, toy.MOVES, lease))
    assert isinstance(told, errors.Retryable) and "is gone" in str(told)


async def test_nothing_to_stage_is_no_row_of_no_task(chain: Chain) -> None:
    worker, build, lease = await claimed(chain, toy.MOVES)
    empty: list[Any] = []
    rows = staged(chain, frame(chain, toy.MOVES, empty), toy.MOVES, lease)
    assert rows.rows == 0
    committed(await worker.commits.commit(await finished(worker, build, lease, rows)))
    assert await worker.held(toy.MOVES) == []
