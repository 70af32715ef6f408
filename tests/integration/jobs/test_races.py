"""Goal: each race that a naive commit loses is won, whoever comes first.

Method: the phases of a run are taken one by one while the chain moves; where two transactions must
meet, a third connection holds a table that one of them needs, so that it stands still in the middle
of its work until the other one waits for it. Nothing is left to timing. Toy datasets, a real
Postgres, a plain computation over the whole chain to compare with.

The races about staging are in test_staging.py, those about late workers in test_lease.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from tests import toy
from tests.drawn import ref
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker, committed, partitions
from unfork.app.derived import DerivedDataset
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Why

IN_BLOCKS = (toy.MOVES, toy.ALERTS, toy.FIRSTS, toy.BALANCES)
each = pytest.mark.parametrize("dataset", toy.EVERY, ids=lambda dataset: dataset.name)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def following(place: Place, journal: Journal, *datasets: DerivedDataset) -> Worker:
    worker = Worker(place, journal)
    await worker.register(*datasets)
    await worker.follow()
    return worker


async def run_all(worker: Worker, dataset: DerivedDataset, chain: Sequence[BlockRef]) -> Committed:
    """Computes everything that is missing of a dataset."""
    if dataset.mode is Mode.CURSOR:
        return committed(await worker.run(dataset, chain))
    return committed(await worker.run_partitions(dataset, chain))


async def read(
    worker: Worker,
    dataset: DerivedDataset,
    chain: Sequence[BlockRef],
    *,
    above: int,
    kind: Kind = Kind.LIVE,
) -> Finished:
    """A run over the blocks above a number: claimed, read, not committed."""
    build = await worker.build(dataset)
    parts = [part for part in partitions(dataset, chain) if part.span.last > above]
    span = Span(above + 1, chain[-1].number)
    if dataset.mode is not Mode.CURSOR:
        span, kind = Span(parts[0].span.first, span.last), Kind.RECOMPUTE
    seen = await worker.open_ids(build, span)
    lease = await worker.claim(build, span, kind=kind)
    assert lease is not None
    known = {block.number: block for block in chain}
    return await worker.compute(
        build,
        lease,
        [known[number] for number in range(span.first, span.last + 1)],
        parent=known.get(span.first - 1),
        partitions=tuple(parts) if dataset.mode is Mode.PARTITION else (),
        seen=seen,
    )


async def read_again(worker: Worker, run: Finished, chain: Sequence[BlockRef]) -> Finished:
    """The same lease, with what is there by now."""
    known = {block.number: block for block in chain}
    span = run.lease.span
    parts = partitions(run.build.dataset, [b for b in chain if b.number <= span.last])
    return await worker.compute(
        run.build,
        run.lease,
        [known[number] for number in range(span.first, span.last + 1)],
        parent=known.get(span.first - 1),
        partitions=tuple(part for part in parts if part.span.first >= span.first)
        if run.partitions
        else (),
        seen=run.invalidations,
    )


def why(outcome: Committed | Discarded) -> Why:
    assert isinstance(outcome, Discarded), outcome
    return outcome.why


@asynccontextmanager
async def standing_still(place: Place, table: str) -> AsyncIterator[None]:
    """Whoever needs the table stands still inside this."""
    async with await psycopg.AsyncConnection.connect(place.app_dsn or place.dsn) as connection:
        await connection.execute(f'LOCK TABLE "{place.app}".{table} IN ACCESS EXCLUSIVE MODE')
        yield


async def until_waiting(place: Place, count: int) -> None:
    """Returns once so many others wait for a lock."""
    text = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    connecting = psycopg.AsyncConnection.connect(place.app_dsn or place.dsn, autocommit=True)
    async with await connecting as connection:
        async with asyncio.timeout(60):
            while True:
                row = await (await connection.execute(text)).fetchone()
                assert row is not None
                if row[0] >= count:
                    return
                await asyncio.sleep(0.01)


# A fork and a run.


@each
async def test_a_fork_between_plan_and_snapshot(any_place: Place, dataset: DerivedDataset) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(any_place, journal, dataset)
    await run_all(worker, dataset, journal.chain[:7])
    before = await worker.held(dataset)
    planned = await read(worker, dataset, journal.chain, above=7)
    journal.unwind(9).commit(drawing("b", 10, 16))
    # The raw store is on another fork already, the app side does not know it yet.
    early = await read_again(worker, planned, journal.chain)
    assert why(await worker.commits.commit(early)) is Why.ORPHANED
    assert await worker.held(dataset) == before
    planned = await read(worker, dataset, [ref(f"a{n}") for n in range(1, 15)], above=7)
    late = await read_again(worker, planned, journal.chain)
    await worker.follow()
    # The fork took the lease with it, since a block of it is gone.
    assert why(await worker.commits.commit(late)) is Why.LEASE_LOST
    await run_all(worker, dataset, journal.chain)
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


@each
async def test_a_run_that_read_the_old_fork(any_place: Place, dataset: DerivedDataset) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(any_place, journal, dataset)
    await run_all(worker, dataset, journal.chain[:7])
    old = await read(worker, dataset, journal.chain, above=7)
    journal.unwind(9).commit(drawing("b", 10, 16))
    await worker.follow()
    assert why(await worker.commits.commit(old)) is Why.LEASE_LOST
    # Even with a lease of its own what was read is not believed.
    fresh = await read(worker, dataset, journal.chain[:14], above=7)
    forged = replace(old, lease=fresh.lease, build=fresh.build)
    if fresh.lease.span == old.lease.span:
        assert why(await worker.commits.commit(forged)) is Why.ORPHANED
    else:
        await worker.leases.give_back(fresh.lease)
    await run_all(worker, dataset, journal.chain)
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


@each
async def test_a_fork_waits_for_a_commit_that_is_under_way_and_undoes_it(
    place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(place, journal, dataset)
    run = await read(worker, dataset, journal.chain, above=0)
    journal.unwind(9).commit(drawing("b", 10, 16))
    async with standing_still(place, "runs"):
        commit = asyncio.create_task(worker.commits.commit(run))
        await until_waiting(place, 1)
        fork = asyncio.create_task(worker.refs.step())
        await until_waiting(place, 2)
    committed(await commit)
    assert (applied := await fork) is not None and applied.is_unwind
    if dataset.mode is Mode.CURSOR:
        assert (await worker.build(dataset)).watermark == ref("a9")
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain[:9])
    await run_all(worker, dataset, journal.chain)
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


@each
async def test_a_commit_waits_for_a_fork_that_is_under_way_and_is_discarded(
    place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(place, journal, dataset)
    run = await read(worker, dataset, journal.chain, above=0)
    journal.unwind(9).commit(drawing("b", 10, 16))
    async with standing_still(place, "data_invalidations"):
        fork = asyncio.create_task(worker.refs.step())
        await until_waiting(place, 1)
        commit = asyncio.create_task(worker.commits.commit(run))
        await until_waiting(place, 2)
    assert await fork is not None
    assert why(await commit) is Why.LEASE_LOST
    assert await worker.held(dataset) == []
    await run_all(worker, dataset, journal.chain)
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


@pytest.mark.parametrize("dataset", (toy.MOVES, toy.ALERTS), ids=lambda dataset: dataset.name)
async def test_a_range_completed_ahead_and_then_forked_away(
    any_place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(any_place, journal, dataset)
    for span in (Span(6, 10), Span(11, 15), Span(16, 20)):
        outcome = committed(await worker.run(dataset, journal.chain, kind=Kind.BACKFILL, span=span))
        assert outcome.watermark is None
        assert await worker.held(dataset) == [], "rows ahead of the watermark are not read"
    journal.unwind(12).commit(drawing("b", 13, 22))
    await worker.follow()
    outcome = committed(await worker.run(dataset, journal.chain, last=5))
    assert outcome.watermark == ref("a12")
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain[:12])
    await run_all(worker, dataset, journal.chain)
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)
    assert await worker.leases.all() == []


async def test_a_backfill_that_read_the_old_fork(any_place: Place) -> None:
    journal = Journal().finalize(2).commit(drawing("a", 1, 12))
    worker = await following(any_place, journal, toy.MOVES)
    chain = journal.chain[:8]
    old = await read(worker, toy.MOVES, chain, above=3, kind=Kind.BACKFILL)
    journal.unwind(5).commit(drawing("b", 6, 30)).finalize(20)
    await worker.follow()
    # The floor has passed what it read: nobody knows the refs there any more.
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(4, 8), kind=Kind.BACKFILL)
    assert lease is not None
    assert why(await worker.commits.commit(replace(old, lease=lease))) is Why.UNVERIFIABLE
    committed(await worker.run(toy.MOVES, journal.chain, kind=Kind.BACKFILL, span=Span(4, 8)))
    await run_all(worker, toy.MOVES, journal.chain[:3])
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, journal.chain[:8])


@pytest.mark.parametrize("dataset", IN_BLOCKS, ids=lambda dataset: dataset.name)
async def test_two_inputs_at_different_forks(any_place: Place, dataset: DerivedDataset) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(any_place, journal, dataset)
    run = await read(worker, dataset, journal.chain, above=0)
    # One input was read on this chain, which ties the run to it; the rows came from the other one.
    other = [ref(f"x{number}") for number in range(1, 14)] + [journal.at(14)]
    rows = toy.arrow(dataset, toy.computed(dataset, other))
    assert rows.num_rows > 3
    assert why(await worker.commits.commit(replace(run, rows=rows))) is Why.ORPHANED
    assert await worker.held(dataset) == []
    assert await worker.leases.all() == []
    await run_all(worker, dataset, journal.chain)
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


async def test_a_merge_applied_out_of_order(any_place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 30))
    worker = await following(any_place, journal, toy.BALANCES)
    build = await worker.build(toy.BALANCES)
    assert await worker.claim(build, Span(11, 20), kind=Kind.BACKFILL) is None
    # Even with a lease that should not be: +5 of block 150 before +3 of block 110 would lose the 3
    # when it is undone to block 120.
    lease = await worker.claim(build, Span(1, 10), kind=Kind.BACKFILL)
    assert lease is not None
    await any_place.app_rows("UPDATE {app}.worker_leases SET span = '[11,21)'")
    (lease,) = await worker.leases.all()
    blocks = journal.blocks(Span(11, 20))
    run = await worker.compute(build, lease, blocks, parent=journal.at(10))
    assert why(await worker.commits.commit(run)) is Why.NOT_NEXT
    assert await worker.held(toy.BALANCES) == []
    for last in (10, 20):
        committed(await worker.run(toy.BALANCES, journal.chain, last=last))
    journal.unwind(15)
    await worker.follow()
    assert await worker.held(toy.BALANCES) == toy.expected(toy.BALANCES, journal.chain)


# A correction and a run that reads what is corrected.


async def corrected(worker: Worker, journal: Journal, *, last: int) -> Finished:
    """A run that takes every row away from the blocks up to `last`."""
    moves = await worker.build(toy.MOVES)
    lease = await worker.claim(moves, Span(1, last), kind=Kind.RECOMPUTE)
    assert lease is not None
    return await worker.compute(moves, lease, journal.chain[:last], parent=None, rows=[])


@pytest.mark.parametrize(
    "dataset", (toy.DAILY, toy.PAGES, toy.TOTALS), ids=lambda dataset: dataset.name
)
async def test_a_first_version_whose_input_was_corrected_meanwhile_is_outdated(
    any_place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(any_place, journal, toy.MOVES, dataset)
    await run_all(worker, toy.MOVES, journal.chain)
    late = await read(worker, dataset, journal.chain, above=0)
    assert committed(await worker.commits.commit(await corrected(worker, journal, last=12))).changed
    committed(await worker.commits.commit(late))
    build = await worker.build(dataset)
    assert build.watermark is None
    assert {one.generation_id for one in await worker.unprocessed()} == {build.id}
    seen = await worker.open_ids(build, Span(1, 12))
    again = await read(worker, dataset, journal.chain, above=0)
    nothing = replace(again, rows=toy.arrow(dataset, []), invalidations=tuple(seen))
    committed(await worker.commits.commit(nothing))
    assert (await worker.build(dataset)).watermark == ref("a12")
    assert await worker.held(dataset) == [] and await worker.unprocessed() == []


async def test_a_partition_that_grew_by_blocks_corrected_meanwhile_is_not_passed(
    any_place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(any_place, journal, toy.MOVES, toy.PAGES)
    await run_all(worker, toy.MOVES, journal.chain)
    await run_all(worker, toy.PAGES, journal.chain[:12])
    late = await read(worker, toy.PAGES, journal.chain, above=12)
    moves = await worker.build(toy.MOVES)
    lease = await worker.claim(moves, Span(13, 14), kind=Kind.RECOMPUTE)
    assert lease is not None
    fix = await worker.compute(moves, lease, journal.chain[12:], parent=journal.at(12), rows=[])
    assert committed(await worker.commits.commit(fix)).changed
    assert (await worker.build(toy.PAGES)).watermark == ref("a12")
    committed(await worker.commits.commit(late))
    # What it holds now is of block 14, by rows that are no more: it includes nothing of it.
    assert (await worker.build(toy.PAGES)).watermark == ref("a9")


@pytest.mark.parametrize(
    "dataset", [d for d in toy.EVERY if d is not toy.MOVES], ids=lambda dataset: dataset.name
)
async def test_nobody_begins_to_read_what_is_being_corrected(
    any_place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(any_place, journal, toy.MOVES, dataset)
    await run_all(worker, toy.MOVES, journal.chain)
    fix = await corrected(worker, journal, last=12)
    build = await worker.build(dataset)
    kind = Kind.LIVE if dataset.mode is Mode.CURSOR else Kind.RECOMPUTE
    async with standing_still(any_place, "runs"):
        commit = asyncio.create_task(worker.commits.commit(fix))
        await until_waiting(any_place, 1)
        # It would read rows that are about to be others; and it does not wait, for there may be
        # other work.
        assert await worker.claim(build, Span(1, 12), kind=kind) is None
    assert committed(await commit).changed
    assert await worker.claim(build, Span(1, 12), kind=kind) is not None
    assert await worker.unprocessed() == []


async def test_nobody_tries_again_what_reads_rows_that_are_being_corrected(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(place, journal, toy.MOVES, toy.ALERTS)
    await run_all(worker, toy.MOVES, journal.chain)
    build = await worker.build(toy.ALERTS)
    lease = await worker.claim(build, Span(1, 12))
    assert lease is not None
    await worker.leases.fail(lease, ValueError("no"))
    worker.time.pass_s(60)
    again = {"worker": worker.name, "config_hash": build.config_hash}
    fix = await corrected(worker, journal, last=12)
    async with standing_still(place, "runs"):
        commit = asyncio.create_task(worker.commits.commit(fix))
        await until_waiting(place, 1)
        assert await worker.leases.reclaim(build, **again) is None
    assert committed(await commit).changed
    assert await worker.leases.reclaim(build, **again) is not None


async def test_a_commit_of_new_blocks_keeps_nobody_from_a_lease(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(place, journal, toy.MOVES)
    run = await read(worker, toy.MOVES, journal.chain[:6], above=0, kind=Kind.BACKFILL)
    async with standing_still(place, "runs"):
        commit = asyncio.create_task(worker.commits.commit(run))
        await until_waiting(place, 1)
        build = await worker.build(toy.MOVES)
        assert await worker.claim(build, Span(7, 12), kind=Kind.BACKFILL) is not None
    committed(await commit)


async def test_blocks_claimed_while_their_commit_is_under_way_are_committed_once(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(place, journal, toy.MOVES)
    run = await read(worker, toy.MOVES, journal.chain[:6], above=0, kind=Kind.BACKFILL)
    build = await worker.build(toy.MOVES)
    async with standing_still(place, "runs"):
        commit = asyncio.create_task(worker.commits.commit(run))
        await until_waiting(place, 1)
        # It has seen no watermark yet, and the lease of the first run is as good as gone.
        claim = asyncio.create_task(worker.claim(build, Span(1, 6), kind=Kind.BACKFILL))
        await until_waiting(place, 2)
    committed(await commit)
    lease = await claim
    assert lease is not None
    again = await worker.compute(build, lease, journal.chain[:6], parent=None)
    assert why(await worker.commits.commit(again)) is Why.NOT_NEXT
    assert await worker.leases.all() == []
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, journal.chain[:6])


async def test_of_two_commits_that_end_one_event_the_last_marks_it_done(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(place, journal, toy.MOVES, toy.ALERTS)
    for dataset in (toy.MOVES, toy.ALERTS):
        await run_all(worker, dataset, journal.chain)
    journal.unwind(9).commit(drawing("b", 10, 12))
    await worker.follow()
    runs = [await read(worker, d, journal.chain, above=9) for d in (toy.MOVES, toy.ALERTS)]
    async with standing_still(place, "runs"):
        commits = [asyncio.create_task(worker.commits.commit(run)) for run in runs]
        await until_waiting(place, 2)
    for commit in commits:
        committed(await commit)
    events = await place.app_rows("SELECT processed_at, processed_by FROM {app}.data_invalidations")
    assert len(events) == 1
    assert events[0]["processed_at"] is not None and len(events[0]["processed_by"]) == 2


async def test_two_live_runs_of_one_build_are_never_claimed_at_once(any_place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(any_place, journal, toy.PAGES)
    build = await worker.build(toy.PAGES)
    leases = []
    for span in (Span(1, 4), Span(5, 9)):
        lease = await worker.claim(build, span, kind=Kind.LIVE)
        assert lease is not None
        leases.append(lease)
        await worker.leases.fail(lease, ValueError("no"))
    worker.time.pass_s(60)
    again = {"worker": worker.name, "config_hash": build.config_hash}
    # Somebody else takes the second one up, and is seen to only when he is done.
    dsn = any_place.app_dsn or any_place.dsn
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute(
            f'UPDATE "{any_place.app}".worker_leases SET status = %s, lease_expires_at = %s'
            " WHERE id = %s",
            ["ACTIVE", worker.time.now + timedelta(hours=1), leases[1].id],
        )
        claim = asyncio.create_task(worker.leases.reclaim(build, id=leases[0].id, **again))
        await until_waiting(any_place, 1)
    assert await claim is None
    assert await worker.leases.reclaim(build, id=leases[0].id, **again) is None
    await worker.leases.give_back(leases[1])
    assert await worker.leases.reclaim(build, id=leases[0].id, **again) is not None


# A fork and what it leaves behind.


async def test_a_day_that_a_fork_left_without_a_block_is_gone(
    any_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [ref(f"a{n}") for n in range(1, 40) if toy.transfers(ref(f"a{n}"))]
    first, second = blocks[0].number, blocks[0].number + 1
    journal = Journal(first=first).commit(drawing("a", first, first + 3))
    other = [ref(f"b{n}") for n in range(second, second + 4)]
    times = {
        block.hash: toy.EPOCH + timedelta(hours=9 * place)
        for place, block in enumerate(journal.chain)
    }
    times |= {block.hash: toy.EPOCH + timedelta(days=3, hours=n) for n, block in enumerate(other)}
    monkeypatch.setattr(toy, "TIMES", times)
    worker = Worker(any_place, journal)
    await worker.register(toy.DAILY, first=first)
    await worker.follow()
    await run_all(worker, toy.DAILY, journal.chain)
    journal.unwind(first).commit(drawing("b", second, second + 3))
    await worker.follow()
    await run_all(worker, toy.DAILY, journal.chain)
    assert await worker.held(toy.DAILY) == toy.expected(toy.DAILY, journal.chain)
    assert (await worker.build(toy.DAILY)).watermark == journal.chain[-1]
    keys = await any_place.app_rows("SELECT partition_key FROM {app}.partition_versions ORDER BY 1")
    assert [row["partition_key"] for row in keys] == ["2024-01-01", "2024-01-04"]


async def test_rows_that_a_fork_brought_back_give_way_to_what_is_computed_now(
    any_place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 3)).commit(drawing("b", 4, 6))
    worker = await following(any_place, journal, toy.FIRSTS)

    def first(account: bytes, block: BlockRef) -> dict[str, object]:
        sender = toy.ACCOUNTS[0]
        place = {"block_number": block.number, "block_hash": block.hash}
        return {**place, "account": account, "sender": sender}

    one, two = toy.ACCOUNTS[1:3]
    old = [first(one, ref("b6")), first(two, ref("b5"))]
    run = await read(worker, toy.FIRSTS, journal.chain, above=0)
    committed(await worker.commits.commit(replace(run, rows=toy.arrow(toy.FIRSTS, old))))
    journal.unwind(3).commit(drawing("c", 4, 6))
    await worker.follow()
    journal.unwind(3).commit(drawing("b", 4, 6))
    await worker.follow()
    # What it is computed from was corrected while its blocks were off the chain.
    new = [first(one, ref("b4")), first(one, ref("b6"))]
    for last in (5, 6):
        above = (await worker.build(toy.FIRSTS)).next - 1
        run = await read(worker, toy.FIRSTS, journal.chain[:last], above=above)
        rows = [row for row in new if above < row["block_number"] <= last]
        committed(await worker.commits.commit(replace(run, rows=toy.arrow(toy.FIRSTS, rows))))
    assert await worker.held(toy.FIRSTS) == toy.plain([new[0]])
