"""Goal: of the rows that tasks have staged, exactly those count that Spark names, or none.

Method: rows are sent as tasks send them, as binary COPY; tasks die, run twice and lose their
server; the commit is compared with a full computation.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import psycopg
import pytest

from tests import toy
from tests.journals import Journal
from tests.places import SETTINGS, Place
from tests.workers import Worker, committed, partitions
from unfork import errors
from unfork.app import staging
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation
from unfork.app.staging import Attempt, Staged
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.embedded import Embedded
from unfork.datasets.derivation import Mode
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.lease import Lease
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Why

IN_BLOCKS = (toy.MOVES, toy.ALERTS, toy.FIRSTS, toy.BALANCES)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def following(place: Place, journal: Journal) -> Worker:
    worker = Worker(place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    return worker


async def claimed(worker: Worker, dataset: DerivedDataset, span: Span) -> tuple[Generation, Lease]:
    """A lease, and the place where the tasks of its run put their rows."""
    build = await worker.build(dataset)
    kind = Kind.BACKFILL if dataset.mode is Mode.CURSOR else Kind.RECOMPUTE
    lease = await worker.claim(build, span, kind=kind)
    assert lease is not None
    async with worker.database.session() as session:
        await staging.create(session, worker.queries, build, lease.token)
    return build, lease


async def task(
    worker: Worker,
    build: Generation,
    lease: Lease,
    blocks: Sequence[BlockRef],
    *,
    task: int,
    attempt: int,
) -> Attempt:
    """What one attempt of a task does: it sends its rows and says how many."""
    rows = toy.arrow(build.dataset, toy.computed(build.dataset, blocks))
    return await worker.put(build.dataset, lease.token, rows, task=task, attempt=attempt)


async def finished(
    worker: Worker,
    build: Generation,
    lease: Lease,
    chain: Sequence[BlockRef],
    attempts: Sequence[Attempt],
) -> Finished:
    run = await worker.compute(
        build,
        lease,
        chain,
        parent=None,
        rows=[],
        partitions=tuple(partitions(build.dataset, chain))
        if build.dataset.mode is Mode.PARTITION
        else (),
    )
    return Finished(
        build=build,
        lease=lease,
        anchor=run.anchor,
        as_read=run.as_read,
        rows=Staged(token=lease.token, attempts=tuple(attempts)),
        partitions=run.partitions,
        config_hash=run.config_hash,
    )


async def left(worker: Worker) -> list[str]:
    rows = await worker.place.app_rows(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace"
        f" WHERE nspname = '{worker.place.app}' AND relname LIKE 'staging%'"
    )
    return [row["relname"] for row in rows]


@pytest.mark.parametrize("dataset", toy.EVERY, ids=lambda dataset: dataset.name)
async def test_staged_rows_are_committed_as_rows_of_the_driver_are(
    any_place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().finalize(6).commit(drawing("a", 1, 20))
    worker = await following(any_place, journal)
    build, lease = await claimed(worker, dataset, Span(1, 20))
    if dataset.mode is Mode.CURSOR:
        shares = [journal.chain[:8], journal.chain[8:9], journal.chain[9:], []]
    else:
        shares = [journal.chain, []]
    attempts = [
        await task(worker, build, lease, blocks, task=number, attempt=70 + number)
        for number, blocks in enumerate(shares)
    ]
    run = await finished(worker, build, lease, journal.chain, attempts)
    committed(await worker.commits.commit(run))
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)
    assert await left(worker) == []


@pytest.mark.parametrize("dataset", IN_BLOCKS, ids=lambda dataset: dataset.name)
async def test_what_a_task_left_that_died_after_its_copy_does_not_count(
    place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal)
    build, lease = await claimed(worker, dataset, Span(1, 20))
    await task(worker, build, lease, journal.chain[:15], task=0, attempt=1)
    await task(worker, build, lease, journal.chain[3:9], task=0, attempt=2)
    won = await task(worker, build, lease, journal.chain, task=0, attempt=3)
    run = await finished(worker, build, lease, journal.chain, [won])
    committed(await worker.commits.commit(run))
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


async def test_another_count_than_the_tasks_tell_discards_the_run(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal)
    build, lease = await claimed(worker, toy.MOVES, Span(1, 20))
    told = await task(worker, build, lease, journal.chain, task=0, attempt=1)
    wrong = Attempt(task=0, attempt=1, rows=told.rows + 1)
    run = await finished(worker, build, lease, journal.chain, [wrong])
    outcome = await worker.commits.commit(run)
    assert isinstance(outcome, Discarded) and outcome.why is Why.STAGING_DIFFERS
    assert await worker.held(toy.MOVES) == []
    assert await left(worker) == [] and await worker.leases.all() == []


async def test_staging_without_a_lease_is_removed_and_with_one_is_kept(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal)
    _, kept = await claimed(worker, toy.MOVES, Span(1, 20))
    _, lost = await claimed(worker, toy.BALANCES, Span(1, 20))
    _, failed = await claimed(worker, toy.ALERTS, Span(1, 20))
    await place.app_rows(f"DELETE FROM {{app}}.worker_leases WHERE id = {lost.id}")
    await worker.leases.fail(failed, ValueError("no"))
    assert set(await left(worker)) == {staging.name(kept.token), staging.name(lost.token)}
    await worker.leases.reap()
    assert await left(worker) == [staging.name(kept.token)]


async def test_a_run_whose_staging_was_removed_is_discarded(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal)
    build, lease = await claimed(worker, toy.MOVES, Span(1, 20))
    told = await task(worker, build, lease, journal.chain, task=0, attempt=1)
    await place.app_rows(f"DROP TABLE {{app}}.{staging.name(lease.token)}")
    run = await finished(worker, build, lease, journal.chain, [told])
    outcome = await worker.commits.commit(run)
    assert isinstance(outcome, Discarded) and outcome.why is Why.STAGING_DIFFERS


def crash(place: Place) -> None:
    """Kills a backend of the test's own server, which makes the server recover from a crash."""
    with psycopg.connect(place.dsn) as connection:
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        with pytest.raises(psycopg.OperationalError):
            while True:
                connection.execute("SELECT 1")


async def after_the_crash(worker: Worker, run: Finished) -> Committed | Discarded:
    """Commits as soon as the server is back; the connections before it are lost."""
    while True:
        try:
            return await worker.commits.commit(run)
        except errors.DatabaseUnavailable:
            await asyncio.sleep(0.05)


async def test_a_crash_of_the_server_that_empties_staging_is_noticed(tmp_path: Path) -> None:
    # What was committed before the crash must be there after it.
    settings = {**SETTINGS, "synchronous_commit": "on"}
    server = Embedded(tmp_path / "server", settings=settings)
    place = Place(server.start(), "crashed", tmp_path / "files")
    try:
        await place.migrate()
        journal = Journal().commit(drawing("a", 1, 20))
        worker = await following(place, journal)
        build, lease = await claimed(worker, toy.MOVES, Span(1, 20))
        told = await task(worker, build, lease, journal.chain, task=0, attempt=1)
        assert told.rows
        run = await finished(worker, build, lease, journal.chain, [told])
        crash(place)
        outcome = await after_the_crash(worker, run)
        assert isinstance(outcome, Discarded) and outcome.why is Why.STAGING_DIFFERS
        assert "0 are there" in outcome.detail
        committed(await worker.run(toy.MOVES, journal.chain))
        assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, journal.chain)
    finally:
        await place.close()
        server.stop()
