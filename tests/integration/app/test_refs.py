"""Goal: the app side follows the journal exactly, and a fork undoes every dataset with the refs.

Method: drawn chains in a journal in memory, toy datasets of every strategy and mode in a real
Postgres, compared with a full computation in plain Python.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests import toy
from tests.drawn import ref
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker, committed
from unfork import errors
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.jobs.state import Kind

IN_BLOCKS = (toy.MOVES, toy.ALERTS, toy.FIRSTS, toy.BALANCES)
IN_PARTS = (toy.DAILY, toy.PAGES, toy.TOTALS)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def run_all(worker: Worker, chain: list[BlockRef]) -> None:
    """Lets every job catch up with the chain."""
    for dataset in IN_BLOCKS:
        if await worker.run(dataset, chain) is None:
            assert (await worker.build(dataset)).watermark == chain[-1]
    for dataset in IN_PARTS:
        await worker.run_partitions(dataset, chain)


async def require_exact(worker: Worker, chain: list[BlockRef]) -> None:
    """Every dataset is what a full computation over its chain gives, and none is outdated."""
    for dataset in toy.EVERY:
        assert (await worker.build(dataset)).watermark == chain[-1], dataset.name
        assert await worker.held(dataset) == toy.expected(dataset, chain), dataset.name
    assert await worker.unprocessed() == []


async def test_blocks_above_the_floor_are_known_and_those_below_are_forgotten(
    any_place: Place,
) -> None:
    journal = Journal().commit("a1-b2-c3")
    worker = Worker(any_place, journal)
    await worker.follow()
    assert await worker.refs.refs(Span(0, 9)) == journal.chain
    journal.finalize(2).commit("d4-e5")
    await worker.follow()
    state = await worker.refs.state()
    assert (state.position, state.floor, state.seq) == (ref("e5"), ref("b2"), 2)
    assert await worker.refs.refs(Span(0, 9)) == journal.chain[1:]


async def test_a_floor_that_falls_upstream_does_not_fall_here(place: Place) -> None:
    journal = Journal().finalize(3).commit(drawing("a", 1, 5))
    worker = Worker(place, journal)
    await worker.follow()
    journal.finalize(2).commit("a6")
    await worker.follow()
    assert (await worker.refs.state()).floor == ref("a3")


async def test_an_advance_is_applied_once_whoever_applies_it(place: Place) -> None:
    journal = Journal().commit("a1-b2-c3")
    first, second = Worker(place, journal), Worker(place, journal)
    advance = await journal.advance(after=0, position=None)
    assert advance is not None
    done = await asyncio.gather(first.refs.apply(advance), second.refs.apply(advance))
    assert [one is None for one in done].count(True) == 1
    assert await first.refs.apply(advance) is None
    assert await first.refs.refs(Span(0, 9)) == journal.chain


async def test_a_fork_undoes_every_dataset_and_what_is_left_is_of_the_ancestor(
    any_place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = Worker(any_place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)
    journal.unwind(12)
    await worker.follow()
    for dataset in IN_BLOCKS:
        assert (await worker.build(dataset)).watermark == journal.at(12)
        assert await worker.held(dataset) == toy.expected(dataset, journal.chain), dataset.name
    journal.commit(drawing("b", 13, 23))
    await worker.follow()
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)


async def test_a_fork_that_takes_everything_leaves_nothing(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = Worker(place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    await run_all(worker, journal.chain)
    journal.unwind(None)
    await worker.follow()
    state = await worker.refs.state()
    assert (state.position, state.floor) == (None, None)
    assert await worker.refs.refs(Span(0, 99)) == []
    for dataset in toy.EVERY:
        assert (await worker.build(dataset)).watermark is None
    for dataset in IN_BLOCKS:
        assert await worker.held(dataset) == []
    journal.commit(drawing("b", 1, 12))
    await worker.follow()
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)


async def test_a_fork_and_the_blocks_after_it_can_be_applied_as_one(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = Worker(place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    await run_all(worker, journal.chain)
    journal.unwind(6).commit(drawing("b", 7, 11)).unwind(4).commit(drawing("c", 5, 10))
    step = await worker.refs.step()
    assert step is not None and step.is_unwind and step.base == ref("a4")
    assert step.after.position == ref("c10")
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)


async def test_a_fork_that_flips_back_counts_the_old_rows_again(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = Worker(place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    await run_all(worker, journal.chain)
    journal.unwind(5).commit(drawing("b", 6, 13))
    await worker.follow()
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)
    journal.unwind(5).commit(drawing("a", 6, 14))
    await worker.follow()
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)


async def test_rows_of_append_stay_and_are_flagged_at_any_depth(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = Worker(place, journal)
    await worker.register(toy.ALERTS)
    await worker.follow()
    await worker.run(toy.ALERTS, journal.chain)
    old = toy.expected(toy.ALERTS, journal.chain[6:])
    assert old, "the drawn blocks hold no alert"
    journal.unwind(6).commit(drawing("b", 7, 20))
    await worker.follow()
    await worker.run(toy.ALERTS, journal.chain)
    # The floor passes the fork, and with it every ref that could tell the two apart.
    journal.finalize(19).commit("b21")
    await worker.follow()
    await worker.run(toy.ALERTS, journal.chain)
    rows = await place.app_rows("SELECT * FROM {app}.alerts WHERE is_orphaned")
    for row in rows:
        del row["is_orphaned"]
    assert toy.plain(rows) == old
    assert await worker.held(toy.ALERTS) == toy.expected(toy.ALERTS, journal.chain)


async def test_days_follow_the_chain_through_a_fork_over_midnight(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 30))
    worker = Worker(place, journal)
    await worker.follow()
    assert await worker.refs.days() == list(toy.days(journal.chain))
    journal.unwind(13).commit(drawing("b", 14, 33))
    await worker.follow()
    assert await worker.refs.days() == list(toy.days(journal.chain))


async def test_a_fork_below_the_floor_is_refused_and_changes_nothing(place: Place) -> None:
    journal = Journal().finalize(5).commit(drawing("a", 1, 9))
    worker = Worker(place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    await run_all(worker, journal.chain)
    before = await worker.refs.state()
    chain = list(journal.chain)
    journal.unwind(4)
    with pytest.raises(errors.ForkConflict, match="final"):
        await worker.refs.step()
    assert await worker.refs.state() == before
    await require_exact(worker, chain)


async def test_a_journal_of_another_store_is_refused(place: Place) -> None:
    worker = Worker(place, Journal().commit("a1-b2-c3"))
    await worker.follow()
    before = await worker.refs.state()
    other = Worker(place, Journal().commit("a1").commit("x2-y3-z4"))
    with pytest.raises(errors.Inconsistent, match="unfork reset"):
        await other.refs.step()
    assert await worker.refs.state() == before


@pytest.mark.parametrize("target", [None, 2, 5, 7])
async def test_an_operator_goes_below_the_floor_and_every_dataset_follows(
    place: Place, target: int | None
) -> None:
    journal = Journal().finalize(3).commit(drawing("a", 1, 9))
    worker = Worker(place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    await run_all(worker, journal.chain)
    journal.finalize(6).commit("a10")
    await worker.follow()
    journal.unwind(target, by_operator=True)
    await worker.follow()
    state = await worker.refs.state()
    assert state.position == (journal.at(target) if target else None)
    assert state.floor == (ref("a6") if target == 7 else state.position)
    assert state.epoch == (1 if target == 7 else 2)
    journal.commit(drawing("b", (target or 0) + 1, 12))
    await worker.follow()
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)
    # What was rebuilt can be undone again.
    journal.unwind((target or 0) + 1).commit(drawing("c", (target or 0) + 2, 13))
    await worker.follow()
    await run_all(worker, journal.chain)
    await require_exact(worker, journal.chain)


async def test_history_and_refs_below_the_floor_are_pruned(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 30))
    worker = Worker(place, journal)
    await worker.register(toy.BALANCES)
    await worker.follow()
    await worker.run(toy.BALANCES, journal.chain)
    journal.finalize(28).commit("a31")
    await worker.follow()
    rows = await place.app_rows("SELECT min(block_number) AS lowest FROM {app}.history")
    assert rows[0]["lowest"] is None or rows[0]["lowest"] > 28
    journal.unwind(28).commit(drawing("b", 29, 32))
    await worker.follow()
    committed(await worker.run(toy.BALANCES, journal.chain))
    assert await worker.held(toy.BALANCES) == toy.expected(toy.BALANCES, journal.chain)


async def recorded(place: Place) -> list[dict[str, Any]]:
    return await place.app_rows("SELECT * FROM {app}.data_invalidations ORDER BY created_at")


async def test_a_fork_is_recorded_with_its_tips_and_with_the_blocks_of_every_job(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = Worker(place, journal)
    await worker.register(*toy.EVERY)
    await worker.follow()
    await worker.run(toy.MOVES, journal.chain)
    await worker.run(toy.BALANCES, journal.chain, last=8)
    await worker.run(toy.ALERTS, journal.chain, last=5)
    await worker.run_partitions(toy.PAGES, journal.chain)
    journal.unwind(6).commit(drawing("b", 7, 13))
    await worker.follow()
    (event,) = await recorded(place)
    assert event["dataset"] == "blocks"
    assert (event["scope"], event["reason"]) == ("row_range", "reorg")
    assert event["row_filter"] == {"block_number": {"gte": 7, "lte": 12}}
    assert event["source_event"] == {
        "old_tip": {"number": 12, "hash": "0x" + b"a12".hex()},
        "new_tip": {"number": 13, "hash": "0x" + b"b13".hex()},
        "fork_block": {"number": 6, "hash": "0x" + b"a6".hex()},
    }
    assert event["processed_at"] is None
    outdated = {(one.job, one.span) for one in await worker.unprocessed()}
    # Of the pages 5-9 and 10-12, side by side, one span is made.
    assert outdated == {
        ("find_moves", Span(7, 12)),
        ("sum_balances", Span(7, 8)),
        ("cut_pages", Span(5, 12)),
    }


async def test_a_job_added_later_does_not_wait_on_what_happened_before(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = Worker(place, journal)
    await worker.register(toy.MOVES)
    await worker.follow()
    await worker.run(toy.MOVES, journal.chain)
    journal.unwind(6).commit(drawing("b", 7, 9))
    await worker.follow()
    await worker.register(toy.BALANCES)
    assert {one.job for one in await worker.unprocessed()} == {"find_moves"}
    await worker.run(toy.MOVES, journal.chain)
    (event,) = await recorded(place)
    assert event["processed_at"] is not None
    assert len(event["processed_by"]) == 1


async def test_what_a_run_mends_in_part_stays_open_for_the_rest(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12))
    worker = Worker(place, journal)
    await worker.register(toy.MOVES)
    await worker.follow()
    await worker.run(toy.MOVES, journal.chain)
    journal.unwind(4).commit(drawing("b", 5, 12))
    await worker.follow()
    await worker.run(toy.MOVES, journal.chain, last=7)
    (left,) = await worker.unprocessed()
    assert left.span == Span(8, 12)
    await worker.run(toy.MOVES, journal.chain)
    assert await worker.unprocessed() == []
    (event,) = await recorded(place)
    assert event["processed_at"] is not None


async def test_a_fork_in_the_middle_of_nothing_is_recorded_as_done(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 5)).unwind(3)
    worker = Worker(place, Journal().commit(drawing("a", 1, 5)))
    await worker.follow()
    follower = Worker(place, journal)
    await follower.follow()
    (event,) = await recorded(place)
    assert event["processed_at"] is not None and event["processed_by"] == []


async def test_leases_above_the_ancestor_end_and_completed_ones_are_cut_to_it(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = Worker(place, journal)
    (build,) = await worker.register(toy.MOVES)
    await worker.follow()
    for span in (Span(5, 9), Span(10, 14)):
        await worker.run(toy.MOVES, journal.chain, kind=Kind.BACKFILL, span=span)
    running = await worker.claim(build, Span(15, 20), kind=Kind.BACKFILL)
    below = await worker.claim(build, Span(1, 4), kind=Kind.BACKFILL)
    assert running is not None and below is not None
    journal.unwind(7)
    await worker.follow()
    left = {(lease.span, lease.status) for lease in await worker.leases.all()}
    assert left == {(Span(5, 7), "COMPLETED"), (Span(1, 4), "ACTIVE")}
    assert not await worker.leases.renew(running)
    assert await worker.leases.renew(below)
