"""Goal: the steps of a plan can be taken by several workers at once, late, and twice, and leave
what one of them would have left.

Method: toy jobs, drawn chains, a real Postgres, plans that are kept for later.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests import toy
from tests.dispatching import Dispatcher, spec
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker
from unfork.app.derived import DerivedDataset
from unfork.chain.span import Span
from unfork.datasets.dataset import Column, Kind
from unfork.jobs.backfill import Anew, propose, stale_spans
from unfork.jobs.finished import Committed
from unfork.jobs.run import Abandon, Cause, Forget, GoOn, Register, Swap
from unfork.jobs.spec import OnChange
from unfork.jobs.state import Kind as LeaseKind

#: The dataset with another column.
WIDER = replace(toy.MOVES, columns=(*toy.MOVES.columns, Column("extra", Kind.INT, nullable=True)))


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def settled(
    place: Place,
    journal: Journal,
    *datasets: DerivedDataset,
    on_change: OnChange = OnChange.STOP,
) -> Dispatcher:
    specs = [spec(dataset, on_change=on_change) for dataset in datasets]
    found = Dispatcher(Worker(place, journal), journal, *datasets, specs=specs)
    await found.settle()
    return found


async def ask_anew(found: Dispatcher, job: str) -> None:
    surveyed = await found.survey.take()
    proposal = propose(found.lineage.jobs[job], surveyed.state, None)
    assert isinstance(proposal, Anew)
    assert await found.requests.put(found.lineage.jobs[job], proposal, surveyed)


async def test_a_new_job_is_registered_once_however_many_see_it(any_place: Place) -> None:
    journal = Journal().commit("a1-a2")
    found = Dispatcher(Worker(any_place, journal), journal, toy.MOVES)
    await found.worker.follow()
    surveyed, made = await found.plan()
    assert [type(step) for step in made.steps] == [Register]
    assert [run.generation for run in made.runs] == [None], "the plan shows what it will run"
    await asyncio.gather(*(found.steps.take(made.steps[0], surveyed.builds) for _ in range(4)))
    assert len(await found.worker.generations.all()) == 1
    _, made = await found.plan()
    assert not made.steps


async def test_a_changed_job_stops_its_dataset_until_it_is_asked_for_and_then_built_beside(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 5))
    found = await settled(place, journal, toy.MOVES, toy.ALERTS)
    found.change("find_moves", "config-2", WIDER)
    journal.commit("a6")
    assert await found.settle() == []
    _, made = await found.plan()
    idle = {one.job: one for one in made.idle}
    assert idle["find_moves"].cause is Cause.STALE
    assert "unfork backfill find_moves --stale" in idle["find_moves"].why
    assert [stale.spans for stale in made.stale] == [(Span(1, 5),)]
    await ask_anew(found, "find_moves")
    # The old build is served to the end, as it was.
    expected = toy.expected(toy.MOVES, journal.chain[:5])
    assert await found.worker.held(toy.MOVES) == toy.plain(expected)
    surveyed, made = await found.plan()
    while not made.steps:
        await found.run(made.runs[0], surveyed)
        surveyed, made = await found.plan()
    swap = made.steps[0]
    assert isinstance(swap, Swap)
    await asyncio.gather(*(found.steps.take(swap, surveyed.builds) for _ in range(3)))
    served = await found.worker.build(WIDER)
    assert (served.number, served.config_hash) == (2, "config-2")
    assert "extra" in (await found.worker.held(WIDER))[0]
    # Late again: nothing is there to be swapped any more.
    await found.steps.take(swap, surveyed.builds)
    assert (await found.worker.build(WIDER)).id == served.id


async def test_a_build_that_is_no_longer_wanted_is_given_up_and_only_that_one(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 5))
    found = await settled(place, journal, toy.MOVES, toy.BALANCES)
    found.change("sum_balances", "config-2")
    await ask_anew(found, "sum_balances")
    found.change("sum_balances", "config-3")
    surveyed, made = await found.plan()
    assert [type(step) for step in made.steps] == [Abandon]
    await found.steps.take(made.steps[0], surveyed.builds)
    await ask_anew(found, "sum_balances")
    building = await found.worker.build(toy.BALANCES, "building")
    # The step of the first build, taken once more by somebody who is late.
    await found.steps.take(made.steps[0], surveyed.builds)
    assert await found.worker.build(toy.BALANCES, "building") == building
    await found.settle()
    assert (await found.worker.build(toy.BALANCES)).config_hash == "config-3"
    await found.require_exact()


async def test_a_job_that_goes_on_names_the_block_and_records_what_it_reads_now(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 5))
    found = await settled(place, journal, toy.MOVES, on_change=OnChange.CONTINUE)
    found.change("find_moves", "config-2", replace(toy.MOVES, inputs=("blocks", "logs")))
    journal.commit("a6-a7")
    await found.worker.follow()
    surveyed, made = await found.plan()
    assert [(type(step), step.boundary) for step in made.steps] == [(GoOn, 6)]
    for _ in range(2):
        await found.steps.take(made.steps[0], surveyed.builds)
    await found.settle()
    state = (await found.survey.take()).state
    versions = state.generations[0].versions
    assert [(v.first, v.last, v.config_hash) for v in versions] == [
        (1, 5, "config-1"),
        (6, 7, "config-2"),
    ]
    assert [job.inputs for job in await found.worker.generations.jobs()] == [("blocks", "logs")]
    _, made = await found.plan()
    assert [(stale.spans, stale.boundary) for stale in made.stale] == [((Span(1, 5),), 6)]


async def test_what_was_done_again_is_no_longer_stale_however_small_the_runs(
    any_place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 33)).finalize(20).commit("a34")
    found = await settled(any_place, journal, toy.MOVES, on_change=OnChange.CONTINUE)
    found.change("find_moves", "config-2")
    journal.commit(drawing("a", 35, 37))
    await found.settle()
    moves = found.lineage.jobs["find_moves"]
    surveyed = await found.survey.take()
    assert stale_spans(moves, surveyed.state) == (Span(1, 34),)
    # Some of it first, from the middle, then all that is left; a fork takes the end of it.
    for wanted, left in (
        ([Span(12, 14)], (Span(1, 11), Span(15, 34))),
        (None, ()),
    ):
        asked = stale_spans(moves, surveyed.state) if wanted is None else wanted
        await found.requests.put(moves, propose(moves, surveyed.state, asked), surveyed)
        await found.settle()
        surveyed = await found.survey.take()
        assert stale_spans(moves, surveyed.state) == left
        for version in surveyed.state.generations[0].versions:
            blocks = journal.blocks(Span(version.first, version.last))
            assert version.rows == len(toy.computed(toy.MOVES, blocks))
    journal.unwind(25).commit(drawing("b", 26, 31))
    await found.settle()
    surveyed = await found.survey.take()
    assert sum(v.rows or 0 for v in surveyed.state.generations[0].versions) == len(
        await found.worker.held(toy.MOVES)
    )
    await found.require_exact()


async def test_a_job_whose_columns_changed_never_goes_on_in_its_old_table(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 5))
    found = await settled(place, journal, toy.MOVES, on_change=OnChange.CONTINUE)
    before = await found.worker.build(toy.MOVES)
    # Somebody planned without asking Spark for the columns.
    found.change("find_moves", "config-2", WIDER)
    surveyed = await found.survey.take()
    step = GoOn(
        job="find_moves", dataset="moves", generation=before.id, config_hash="config-2",
        boundary=6, why="",
    )  # fmt: skip
    await found.steps.take(step, surveyed.builds)
    assert await found.worker.build(toy.MOVES) == before


async def test_a_lease_that_somebody_took_up_again_is_not_forgotten(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    found = await settled(place, journal, toy.MOVES)
    journal.commit("a10-a11")
    await found.worker.follow()
    surveyed, made = await found.planned()
    claimed = await found.claim(made.runs[0], surveyed)
    assert claimed is not None
    await found.worker.leases.fail(claimed.lease, ValueError("broken"))
    build = await found.worker.build(toy.MOVES)
    step = Forget(
        job="find_moves", dataset="moves", generation=build.id, leases=(claimed.lease.id,), why=""
    )
    found.worker.time.pass_s(400)
    again = await found.worker.leases.reclaim(build, worker="other", config_hash="config-1")
    assert again is not None and again.id == claimed.lease.id
    await found.steps.take(step, surveyed.builds)
    assert await found.worker.leases.renew(again), "it is held by another worker now"
    await found.worker.leases.fail(again, ValueError("broken"))
    await found.steps.take(step, surveyed.builds)
    assert await found.worker.leases.all() == []


async def test_a_build_that_a_correction_broke_is_begun_again_and_finished(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 30)).finalize(25)
    found = await settled(place, journal, toy.MOVES, toy.FIRSTS)
    found.change(toy.FIRSTS.job, "config-2")
    await ask_anew(found, toy.FIRSTS.job)
    surveyed, made = await found.planned()
    (run,) = made.runs
    assert isinstance(await found.run(run, surveyed), Committed)
    # Below the floor nothing can be undone, in the new build as little as in the old one.
    moves = await found.worker.build(toy.MOVES)
    lease = await found.worker.claim(moves, Span(5, 5), kind=LeaseKind.RECOMPUTE)
    assert lease is not None
    fix = await found.worker.compute(moves, lease, [journal.at(5)], parent=journal.at(4), rows=[])
    assert toy.transfers(journal.at(5))
    assert isinstance(await found.worker.commits.commit(fix), Committed)
    await found.settle()
    assert (await found.worker.build(toy.FIRSTS)).number == 3
    assert await found.worker.held(toy.FIRSTS) == toy.expected(toy.FIRSTS, journal.chain)
