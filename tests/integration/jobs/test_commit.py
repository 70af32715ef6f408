"""Goal: a run is committed as a whole and only onto the chain it has read; anything else leaves no
trace. Method: drawn chains that move between the phases of a run, toy datasets, a real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests import toy
from tests.drawn import ref
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker, committed, partitions
from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.rewind import TooDeep, rewind
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Why

IN_BLOCKS = (toy.MOVES, toy.ALERTS, toy.FIRSTS, toy.BALANCES)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def following(place: Place, journal: Journal, *datasets: DerivedDataset) -> Worker:
    worker = Worker(place, journal)
    await worker.register(*datasets)
    await worker.follow()
    return worker


async def planned(
    worker: Worker,
    dataset: DerivedDataset,
    blocks: Sequence[BlockRef],
    parent: BlockRef | None,
    *,
    kind: Kind = Kind.LIVE,
) -> Finished:
    """A run that was claimed and has read its blocks, and is not committed yet."""
    build = await worker.build(dataset)
    span = Span(blocks[0].number, blocks[-1].number)
    lease = await worker.claim(build, span, kind=kind)
    assert lease is not None
    return await worker.compute(build, lease, blocks, parent=parent)


def discarded(outcome: Committed | Discarded | None) -> Why:
    assert isinstance(outcome, Discarded), outcome
    return outcome.why


async def test_rows_watermark_and_lease_move_together(any_place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(any_place, journal, *IN_BLOCKS)
    for dataset in IN_BLOCKS:
        outcome = committed(await worker.run(dataset, journal.chain))
        assert outcome.watermark == journal.at(12)
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain)
    assert await worker.leases.all() == []
    runs = await any_place.app_rows("SELECT * FROM {app}.runs ORDER BY id")
    assert {row["outcome"] for row in runs} == {"committed"}
    assert runs[0]["row_count"] == len(toy.expected(toy.MOVES, journal.chain))


@pytest.mark.parametrize("dataset", IN_BLOCKS, ids=lambda dataset: dataset.name)
async def test_a_run_that_read_the_old_fork_is_discarded_without_a_trace(
    place: Place, dataset: DerivedDataset
) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = await following(place, journal, dataset)
    committed(await worker.run(dataset, journal.chain, last=6))
    run = await planned(worker, dataset, journal.blocks(Span(7, 12)), journal.at(6))
    journal.unwind(8).commit(drawing("b", 9, 12))
    # Read after the fork upstream, committed before it is known here, and after it is.
    forked = await planned_again(worker, run, journal)
    assert discarded(await worker.commits.commit(forked)) is Why.ORPHANED
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain[:6])
    await worker.follow()
    assert discarded(await worker.commits.commit(run)) is Why.LEASE_LOST
    assert (await worker.build(dataset)).watermark == ref("a6")
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain[:6])
    committed(await worker.run(dataset, journal.chain))
    assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


async def planned_again(worker: Worker, run: Finished, journal: Journal) -> Finished:
    """The same lease, with the blocks that are there by now: a fork between plan and read."""
    blocks = journal.blocks(run.anchor.span)
    return await worker.compute(
        run.build, run.lease, blocks, parent=journal.at(blocks[0].number - 1)
    )


async def test_a_backfill_that_read_a_fork_which_the_floor_has_passed_is_discarded(
    place: Place,
) -> None:
    journal = Journal().finalize(2).commit(drawing("a", 1, 12))
    worker = await following(place, journal, toy.MOVES)
    run = await planned(
        worker, toy.MOVES, journal.blocks(Span(4, 8)), journal.at(3), kind=Kind.BACKFILL
    )
    journal.unwind(5).commit(drawing("b", 6, 30)).finalize(20)
    await worker.follow()
    build = await worker.build(toy.MOVES)
    # The lease is gone with the fork; even with a new one the old rows are not believed.
    lease = await worker.claim(build, Span(4, 8), kind=Kind.BACKFILL)
    assert lease is not None
    late = Finished(
        build=build,
        lease=lease,
        anchor=run.anchor,
        as_read=run.as_read,
        rows=run.rows,
        config_hash=run.config_hash,
    )
    assert discarded(await worker.commits.commit(late)) is Why.UNVERIFIABLE
    committed(await worker.run(toy.MOVES, journal.chain, kind=Kind.BACKFILL, span=Span(4, 8)))
    committed(await worker.run(toy.MOVES, journal.chain, last=3))
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, journal.chain[:8])


async def test_a_range_completed_ahead_and_then_forked_away_is_never_passed(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.MOVES)
    for span in (Span(6, 10), Span(11, 15)):
        outcome = committed(
            await worker.run(toy.MOVES, journal.chain, kind=Kind.BACKFILL, span=span)
        )
        assert outcome.watermark is None
        assert await worker.held(toy.MOVES) == [], "rows ahead of the watermark are not read"
    journal.unwind(12).commit(drawing("b", 13, 22))
    await worker.follow()
    outcome = committed(await worker.run(toy.MOVES, journal.chain, last=5))
    assert outcome.watermark == ref("a12")
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, journal.chain[:12])
    committed(await worker.run(toy.MOVES, journal.chain))
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, journal.chain)
    assert await worker.leases.all() == []


async def test_the_watermark_does_not_pass_a_gap_nor_hashes_that_do_not_link(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.MOVES)
    build = await worker.build(toy.MOVES)
    for span in (Span(6, 10), Span(14, 20)):
        await worker.run(toy.MOVES, journal.chain, kind=Kind.BACKFILL, span=span)
    committed(await worker.run(toy.MOVES, journal.chain, last=5))
    assert (await worker.build(toy.MOVES)).watermark == ref("a10")
    await place.app_rows("UPDATE {app}.worker_leases SET parent_hash = 'other'")
    committed(await worker.run(toy.MOVES, journal.chain, last=13))
    assert (await worker.build(toy.MOVES)).watermark == ref("a13")
    assert await worker.commits.advance(build) == ref("a13")
    # What did not link is free to be computed again.
    committed(await worker.run(toy.MOVES, journal.chain))
    assert await worker.held(toy.MOVES) == toy.expected(toy.MOVES, journal.chain)


async def test_a_merge_that_comes_out_of_order_is_discarded(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 30))
    worker = await following(place, journal, toy.BALANCES)
    build = await worker.build(toy.BALANCES)
    assert await worker.claim(build, Span(11, 20), kind=Kind.BACKFILL) is None
    # Even with a lease that should not be: +5 of block 150 before +3 of block 110 would lose the 3
    # when it is undone to block 120.
    lease = await worker.claim(build, Span(1, 10), kind=Kind.BACKFILL)
    await place.app_rows("UPDATE {app}.worker_leases SET span = '[11,21)'")
    (lease,) = await worker.leases.all()
    blocks = journal.blocks(Span(11, 20))
    run = await worker.compute(build, lease, blocks, parent=journal.at(10))
    assert discarded(await worker.commits.commit(run)) is Why.NOT_NEXT
    assert await worker.held(toy.BALANCES) == []
    for last in (10, 20):
        committed(await worker.run(toy.BALANCES, journal.chain, last=last))
    journal.unwind(15)
    await worker.follow()
    assert await worker.held(toy.BALANCES) == toy.expected(toy.BALANCES, journal.chain)


async def test_a_commit_whose_answer_was_lost_does_nothing_the_second_time(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = await following(place, journal, *IN_BLOCKS)
    for dataset in IN_BLOCKS:
        run = await planned(worker, dataset, journal.chain, None)
        committed(await worker.commits.commit(run))
        assert discarded(await worker.commits.commit(run)) is Why.LEASE_LOST
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


async def test_rows_of_another_fork_inside_the_right_span_are_discarded(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = await following(place, journal, toy.MOVES)
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(1, 9))
    assert lease is not None
    # One of two inputs was read at another fork: the ends fit, a row does not.
    other = [ref(f"x{n}") for n in range(1, 9)] + [journal.at(9)]
    rows = toy.computed(toy.MOVES, other)
    run = await worker.compute(build, lease, journal.chain, parent=None, rows=rows)
    assert discarded(await worker.commits.commit(run)) is Why.ORPHANED
    assert await worker.held(toy.MOVES) == []
    assert await worker.leases.all() == []


async def test_rows_outside_the_span_are_a_fault_of_the_job(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = await following(place, journal, toy.MOVES, toy.BALANCES, toy.FIRSTS)
    for dataset in (toy.MOVES, toy.BALANCES, toy.FIRSTS):
        build = await worker.build(dataset)
        lease = await worker.claim(build, Span(1, 4))
        assert lease is not None
        rows = toy.computed(dataset, journal.chain)
        run = await worker.compute(build, lease, journal.chain[:4], parent=None, rows=rows)
        with pytest.raises(errors.RowRefused, match="rows"):
            await worker.commits.commit(run)
        assert await worker.held(dataset) == []


async def test_a_key_that_a_block_sets_twice_is_refused(place: Place) -> None:
    journal = Journal().commit("a1-b2")
    worker = await following(place, journal, toy.BALANCES)
    build = await worker.build(toy.BALANCES)
    lease = await worker.claim(build, Span(1, 2))
    assert lease is not None
    rows = 2 * [dict(toy.expected(toy.BALANCES, drawing_with_rows())[0])]
    for row in rows:
        row.update(block_number=1, block_hash=b"a1")
    run = await worker.compute(build, lease, journal.chain, parent=None, rows=rows)
    with pytest.raises(errors.RowRefused, match="twice in block 1"):
        await worker.commits.commit(run)


def drawing_with_rows() -> list[BlockRef]:
    return [ref(f"a{n}") for n in range(1, 30)]


async def test_a_fork_in_blocks_without_rows_only_moves_the_watermark(place: Place) -> None:
    empty = [n for n in range(5, 200) if not toy.transfers(ref(f"e{n}"))]
    forked = next(n for n in empty if not toy.transfers(ref(f"f{n}")) and n - 1 in range(4, 200))
    journal = Journal(first=forked - 3)
    journal.commit(drawing("a", forked - 3, forked - 1)).commit(f"e{forked}")
    worker = Worker(place, journal)
    await worker.register(toy.MOVES, toy.BALANCES, first=forked - 3)
    await worker.follow()
    for dataset in (toy.MOVES, toy.BALANCES):
        committed(await worker.run(dataset, journal.chain))
    before = await contents(place)
    journal.unwind(forked - 1).commit(f"f{forked}")
    await worker.follow()
    for dataset in (toy.MOVES, toy.BALANCES):
        outcome = committed(await worker.run(dataset, journal.chain))
        assert outcome.rows == 0 and outcome.watermark == ref(f"f{forked}")
    assert await contents(place) == before
    assert (
        await place.app_rows("SELECT * FROM {app}.history WHERE block_number = " + str(forked))
        == []
    )


async def contents(place: Place) -> list[object]:
    """The rows as they lie on disk: one that was written again lies elsewhere."""
    moves = await place.app_rows("SELECT ctid, xmin, * FROM {app}.moves_g1 ORDER BY ctid")
    balances = await place.app_rows("SELECT ctid, xmin, * FROM {app}.balances_g1 ORDER BY ctid")
    return [moves, balances]


async def test_a_partition_whose_content_is_the_same_is_anchored_anew_and_not_rewritten(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    worker = await following(place, journal, toy.PAGES)
    outcome = committed(await worker.run_partitions(toy.PAGES, journal.chain))
    assert outcome.changed == ()
    build = await worker.build(toy.PAGES)
    before = await place.app_rows("SELECT ctid, xmin, * FROM {app}.pages_g1 ORDER BY ctid")
    versions = await place.app_rows("SELECT partition_key, version FROM {app}.partition_versions")
    journal.unwind(11).commit(drawing("b", 12, 14))
    await worker.follow()
    assert (await worker.build(toy.PAGES)).watermark == ref("a9")
    outdated = await worker.unprocessed()
    assert [one.span for one in outdated] == [Span(10, 14)]
    # The job gives the same rows for the new blocks: a fork that changes nothing for it.
    wanted = [part for part in partitions(toy.PAGES, journal.chain) if part.span.last > 11]
    span = Span(wanted[0].span.first, wanted[-1].span.last)
    lease = await worker.claim(build, span, kind=Kind.RECOMPUTE)
    assert lease is not None
    old = [ref(f"a{n}") for n in range(10, 15)]
    run = await worker.compute(
        build,
        lease,
        journal.blocks(span),
        parent=journal.at(9),
        rows=toy.computed(toy.PAGES, old),
        partitions=tuple(wanted),
        seen=[one.id for one in outdated],
    )
    outcome = committed(await worker.commits.commit(run))
    assert (outcome.rows, outcome.changed, outcome.watermark) == (0, (), ref("b14"))
    assert await place.app_rows("SELECT ctid, xmin, * FROM {app}.pages_g1 ORDER BY ctid") == before
    after = await place.app_rows("SELECT partition_key, version FROM {app}.partition_versions")
    assert sorted(map(str, after)) == sorted(map(str, versions))
    assert await worker.unprocessed() == []


async def test_doing_blocks_again_rewrites_and_invalidates_only_what_changed(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.MOVES, toy.BALANCES, toy.DAILY, toy.TOTALS)
    for dataset in (toy.MOVES, toy.BALANCES):
        committed(await worker.run(dataset, journal.chain))
    for dataset in (toy.DAILY, toy.TOTALS):
        committed(await worker.run_partitions(dataset, journal.chain))
    build = await worker.build(toy.MOVES)
    full = [number for number in range(8, 16) if toy.transfers(journal.at(number))]
    corrected = full[1]
    rows = toy.computed(toy.MOVES, journal.blocks(Span(8, 15)))
    for row in rows:
        if row["block_number"] == corrected:
            row["note"] = "corrected"
    lease = await worker.claim(build, Span(8, 15), kind=Kind.RECOMPUTE)
    assert lease is not None
    run = await worker.compute(
        build, lease, journal.blocks(Span(8, 15)), parent=journal.at(7), rows=rows
    )
    outcome = committed(await worker.commits.commit(run))
    assert outcome.changed == (Span(corrected, corrected),)
    assert outcome.rows == len(toy.transfers(journal.at(corrected)))
    held = {
        tuple(row.items())
        for row in await worker.held(toy.MOVES, text="WHERE block_number BETWEEN 8 AND 15")
    }
    assert held == {tuple(row.items()) for row in rows}
    day = next(
        part
        for part in partitions(toy.DAILY, journal.chain)
        if part.span.first <= corrected <= part.span.last
    )
    assert {(one.job, one.span) for one in await worker.unprocessed()} == {
        ("sum_balances", Span(corrected, corrected)),
        ("sum_days", day.span),
        ("sum_all", Span(1, 20)),
    }
    version = await place.app_rows(
        "SELECT row_count FROM {app}.partition_versions WHERE dataset = 'moves'"
    )
    assert version == [{"row_count": len(toy.expected(toy.MOVES, journal.chain))}]
    assert (await worker.build(toy.DAILY)).watermark == (
        journal.at(day.span.first - 1) if day.span.first > 1 else None
    )


async def test_what_is_done_again_with_the_same_rows_invalidates_nothing(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.MOVES, toy.BALANCES)
    for dataset in (toy.MOVES, toy.BALANCES):
        committed(await worker.run(dataset, journal.chain))
    outcome = committed(
        await worker.run(toy.MOVES, journal.chain, kind=Kind.RECOMPUTE, span=Span(3, 17))
    )
    assert (outcome.rows, outcome.changed) == (0, ())
    assert await worker.unprocessed() == []


async def test_a_run_that_read_rows_which_were_corrected_since_leaves_its_blocks_outdated(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.MOVES, toy.TOTALS)
    committed(await worker.run(toy.MOVES, journal.chain))
    totals = await worker.build(toy.TOTALS)
    lease = await worker.claim(totals, Span(1, 20), kind=Kind.RECOMPUTE)
    assert lease is not None
    run = await worker.compute(totals, lease, journal.chain, parent=None)
    committed(await worker.commits.commit(run))
    lease = await worker.claim(totals, Span(1, 20), kind=Kind.RECOMPUTE)
    assert lease is not None
    late = await worker.compute(totals, lease, journal.chain, parent=None)
    moves = await worker.build(toy.MOVES)
    again = await worker.claim(moves, Span(1, 20), kind=Kind.RECOMPUTE)
    assert again is not None
    fixed = await worker.compute(moves, again, journal.chain, parent=None, rows=[])
    assert committed(await worker.commits.commit(fixed)).changed
    committed(await worker.commits.commit(late))
    assert {one.job for one in await worker.unprocessed()} == {"sum_all"}
    assert (await worker.build(toy.TOTALS)).watermark is None


async def test_a_serial_dataset_is_rewound_above_the_floor_and_replayed(place: Place) -> None:
    journal = Journal().finalize(5).commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.BALANCES, toy.FIRSTS)
    for dataset in (toy.BALANCES, toy.FIRSTS):
        committed(await worker.run(dataset, journal.chain))
        build = await worker.build(dataset)
        assert await rewind(place.name, worker.database, build, to=12) == ref("a12")
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain[:12])
        assert await rewind(place.name, worker.database, build, to=15) == ref("a12")
        committed(await worker.run(dataset, journal.chain))
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain)
        assert await rewind(place.name, worker.database, build, to=3) == TooDeep(lowest=5)
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain)


async def test_serial_rows_come_from_one_configuration(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = await following(place, journal, toy.BALANCES)
    build = await worker.build(toy.BALANCES)
    lease = await worker.claim(build, Span(1, 9), config_hash="config-2")
    assert lease is not None
    run = await worker.compute(build, lease, journal.chain, parent=None, config_hash="config-2")
    assert discarded(await worker.commits.commit(run)) is Why.CONFIG_CHANGED


async def test_versions_tell_which_blocks_were_computed_with_which_code(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.MOVES)
    committed(await worker.run(toy.MOVES, journal.chain, last=5))
    committed(await worker.run(toy.MOVES, journal.chain, last=10))
    build = await worker.build(toy.MOVES)
    await worker.generations.go_on(build, config_hash="config-2")
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(11, 20), config_hash="config-2")
    assert lease is not None
    run = await worker.compute(
        build,
        lease,
        journal.blocks(Span(11, 20)),
        parent=journal.at(10),
        config_hash="config-2",
    )
    committed(await worker.commits.commit(run))
    versions = await place.app_rows("SELECT * FROM {app}.partition_versions ORDER BY first_number")
    found = [
        (row["partition_key"], row["first_number"], row["last_number"], row["config_hash"])
        for row in versions
    ]
    assert found == [("0-49999", 1, 10, "config-1"), ("0-49999", 11, 20, "config-2")]
    assert [row["row_count"] for row in versions] == [
        len(toy.computed(toy.MOVES, journal.blocks(Span(1, 10)))),
        len(toy.computed(toy.MOVES, journal.blocks(Span(11, 20)))),
    ]


async def test_workers_at_once_compute_nothing_twice_and_leave_no_gap(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 60))
    worker = await following(place, journal, toy.MOVES, toy.ALERTS)
    every = [Worker(place, journal, name=f"worker-{n}", time=worker.time) for n in range(3)]

    async def work(one: Worker, dataset: DerivedDataset) -> int:
        done = 0
        for first in range(1, 60, 5):
            span = Span(first, first + 4)
            outcome = await one.run(dataset, journal.chain, kind=Kind.BACKFILL, span=span)
            done += isinstance(outcome, Committed)
        return done

    for dataset in (toy.MOVES, toy.ALERTS):
        done = await asyncio.gather(*(work(one, dataset) for one in every))
        assert sum(done) == 12
        assert (await worker.build(dataset)).watermark == ref("a60")
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain)
    assert await worker.leases.all() == []
