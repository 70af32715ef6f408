"""Goal: what the planner sees is what the database holds, of one moment, and plans made from it
lead to datasets that are what the chain says, through forks, failures and corrections.

Method: toy jobs in plain Python, drawn chains, a real Postgres; a dispatcher that does what plans
say, one run at a time.
"""

from __future__ import annotations

import asyncio

from tests import toy
from tests.dispatching import Dispatcher
from tests.journals import Journal
from tests.places import Place
from tests.workers import TestTime, Worker, committed
from unfork.app.derived import DerivedDataset
from unfork.chain.span import Span
from unfork.config import tree
from unfork.jobs import survey
from unfork.jobs.backfill import Anew, InPlace, propose
from unfork.jobs.lease import Policy
from unfork.jobs.run import Action, Cause, Reason
from unfork.jobs.state import Kind, Status, Version


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


def dispatching(place: Place, journal: Journal, *datasets: DerivedDataset) -> Dispatcher:
    return Dispatcher(Worker(place, journal), journal, *datasets)


async def test_before_anything_was_followed_there_is_no_block_and_nothing_to_do(
    place: Place,
) -> None:
    found = dispatching(place, Journal())
    surveyed, made = await found.plan()
    assert surveyed.state.head is None
    assert surveyed.state.refs == ()
    assert surveyed.builds == {}
    assert not made.runs and not made.steps
    assert {idle.cause for idle in made.idle} == {Cause.WAITING}


async def test_a_survey_tells_everything_that_a_plan_depends_on(any_place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12)).finalize(5).commit("a13")
    found = dispatching(any_place, journal, toy.MOVES, toy.BALANCES, toy.PAGES)
    worker = found.worker
    await worker.follow()
    surveyed, _ = await found.planned()
    moves = next(b for b in surveyed.builds.values() if b.dataset == toy.MOVES)
    committed(await worker.run(toy.MOVES, journal.chain, last=7))
    ahead = await worker.claim(moves, Span(10, 11), kind=Kind.BACKFILL)
    assert ahead is not None
    done = await worker.compute(moves, ahead, journal.blocks(Span(10, 11)), parent=journal.at(9))
    committed(await worker.commits.commit(done))
    failed = await worker.claim(moves, Span(8, 9))
    assert failed is not None
    await worker.leases.fail(failed, ValueError("broken"))
    await worker.generations.pause("cut_pages")
    journal.unwind(11).commit(drawing("b", 12, 14))
    await worker.follow()

    state = (await found.survey.take()).state
    assert state.now == worker.time.now
    assert (state.first, state.head, state.floor) == (1, journal.at(14), journal.at(5))
    assert state.refs == tuple(journal.blocks(Span(5, 14)))
    assert state.days == toy.days(journal.chain)
    assert state.held == {"blocks"}
    assert state.paused == {"cut_pages"}
    assert set(state.fingerprints) == {"find_moves", "sum_balances", "cut_pages"}
    built = {one.dataset: one for one in state.generations}
    assert built["moves"].watermark == journal.at(7)
    assert built["moves"].schema_hash == toy.MOVES.schema_hash
    assert built["moves"].is_served and built["moves"].first == 1
    assert [(v.first, v.last) for v in built["moves"].versions] == [(1, 7), (10, 11)]
    assert built["moves"].versions[0].last_hash == journal.at(7).hash
    assert built["balances"].is_empty
    # Blocks up to the floor left no history to undo them by.
    assert built["balances"].history_floor == 5
    leases = {(one.kind, one.span, one.status): one for one in state.leases}
    tried = leases[Kind.LIVE, Span(8, 9), Status.FAILED]
    assert tried.attempt == 1
    assert tried.not_before is not None and tried.not_before > state.now
    assert leases[Kind.BACKFILL, Span(10, 11), Status.COMPLETED].last_hash == journal.at(11).hash
    assert surveyed.builds.keys() == {one.id for one in state.generations}


async def test_versions_that_did_not_change_are_not_made_again(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 14))
    found = dispatching(place, journal, toy.MOVES, toy.PAGES)
    await found.settle()

    async def pages() -> dict[str, Version]:
        state = (await found.survey.take()).state
        return {
            v.key: v for one in state.generations if one.dataset == "pages" for v in one.versions
        }

    before = await pages()
    journal.commit("a15-a16")
    await found.settle()
    after = await pages()
    assert after["5-9"] is before["5-9"]
    assert after["15-19"].last == 16
    journal.unwind(8).commit("b9-b10")
    await found.settle()
    again = await pages()
    assert again["0-4"] is before["0-4"] and again["5-9"] != before["5-9"]


async def test_plans_lead_to_exact_datasets_through_forks_in_every_mode_and_strategy(
    any_place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 23)).finalize(6).commit("a24")
    found = dispatching(any_place, journal)
    await found.settle()
    await found.require_exact()
    # Another fork over midnight, a longer one, one that is shorter, one that flips back.
    journal.unwind(20).commit(drawing("b", 21, 26))
    await found.settle()
    await found.require_exact()
    journal.unwind(18).commit(drawing("c", 19, 20))
    await found.settle()
    await found.require_exact()
    journal.finalize(15).commit(drawing("c", 21, 30)).unwind(25).commit(drawing("d", 26, 41))
    await found.settle()
    await found.require_exact()
    assert (await found.plan())[1].runs == ()
    assert not (await found.survey.take()).state.leases


async def test_a_partition_that_a_fork_takes_away_as_a_whole_goes_with_its_rows(
    any_place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 26))
    found = dispatching(any_place, journal, toy.MOVES, toy.DAILY, toy.PAGES, toy.TOTALS)
    await found.settle()
    journal.unwind(17)
    await found.worker.follow()
    # Nothing was computed since: what is left is what begins at or below the fork.
    days = {toy.time(block).date() for block in journal.chain}
    assert {row["day"] for row in await found.worker.held(toy.DAILY)} <= days
    assert all(row["block_number"] < 20 for row in await found.worker.held(toy.PAGES))
    await found.settle()
    await found.require_exact()
    journal.unwind(None).commit(drawing("b", 1, 3))
    await found.settle()
    await found.require_exact()


async def test_a_partition_that_still_grows_is_run_at_every_look(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 6))
    found = dispatching(place, journal, toy.MOVES, toy.PAGES)
    await found.settle()
    for number in (7, 8):
        journal.commit(f"a{number}")
        ran = [run for run in await found.settle() if run.job == "cut_pages"]
        assert [(run.kind, run.span, run.partition) for run in ran] == [
            (Kind.LIVE, Span(5, number), "5-9")
        ]
    await found.require_exact()


async def test_blocks_that_failed_are_tried_again_with_their_count_and_then_left_alone(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 3))
    found = dispatching(place, journal, toy.MOVES)
    await found.worker.follow()
    for attempt in range(5):
        found.worker.time.pass_s(400)
        surveyed, made = await found.planned()
        assert [(run.span, run.attempt) for run in made.runs] == [(Span(1, 3), attempt)]
        claimed = await found.claim(made.runs[0], surveyed)
        assert claimed is not None
        await found.worker.leases.fail(claimed.lease, ValueError("broken"))
    found.worker.time.pass_s(400)
    _, made = await found.planned()
    assert not made.runs
    assert [idle.cause for idle in made.idle] == [Cause.POISONED]
    # New blocks do not get around it either: the checkpoint never passes it.
    journal.commit("a4")
    assert await found.settle() == []
    assert len(await found.worker.leases.release("find_moves")) == 1
    assert [run.span for run in await found.settle()] == [Span(1, 3), Span(4, 4)]
    await found.require_exact()


async def test_a_changed_configuration_releases_what_failed_too_often(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 3))
    found = dispatching(place, journal, toy.MOVES)
    await found.worker.follow()
    for _ in range(5):
        found.worker.time.pass_s(400)
        surveyed, made = await found.planned()
        claimed = await found.claim(made.runs[0], surveyed)
        assert claimed is not None
        await found.worker.leases.fail(claimed.lease, ValueError("broken"))
    found.change("find_moves", "fixed")
    ran = await found.settle()
    assert [run.config_hash for run in ran] == ["fixed"]
    await found.require_exact()


async def test_a_serial_dataset_is_undone_and_computed_again_where_it_can_be(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 12)).finalize(4).commit("a13")
    found = dispatching(place, journal, toy.MOVES, toy.BALANCES)
    await found.settle()
    surveyed = await found.survey.take()
    balances = found.lineage.jobs["sum_balances"]
    asked = propose(balances, surveyed.state, [Span(9, 10)])
    assert isinstance(asked, InPlace)
    assert await found.requests.put(balances, asked, surveyed)
    assert not await found.requests.put(balances, asked, surveyed), "asking twice is asking once"
    surveyed, made = await found.planned()
    assert [(run.action, run.span) for run in made.runs] == [(Action.REPLAY, Span(9, 13))]
    late = (made.runs[0], surveyed)
    ran = await found.settle()
    assert ran[0].action is Action.REPLAY
    assert {run.action for run in ran[1:]} == {Action.EXTEND}
    assert {run.reason for run in ran} == {Reason.BACKFILL}
    await found.require_exact()
    # Somebody whose plan is from before does not undo it once more.
    await found.run(*late)
    assert (await found.worker.build(toy.BALANCES)).watermark == journal.at(13)


async def test_a_serial_dataset_that_cannot_be_undone_is_built_beside_and_swapped(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 12)).finalize(8).commit("a13")
    found = dispatching(place, journal, toy.MOVES, toy.BALANCES, toy.TOTALS)
    await found.settle()
    surveyed = await found.survey.take()
    balances = found.lineage.jobs["sum_balances"]
    asked = propose(balances, surveyed.state, [Span(3, 3)])
    assert isinstance(asked, Anew)
    assert await found.requests.put(balances, asked, surveyed)
    assert not await found.requests.put(balances, asked, surveyed)
    before = await found.worker.build(toy.BALANCES)
    journal.unwind(11).commit(drawing("b", 12, 15))
    ran = await found.settle()
    assert ran
    after = await found.worker.build(toy.BALANCES)
    assert (before.number, after.number) == (1, 2)
    await found.require_exact()


async def test_a_backfill_in_place_does_the_asked_blocks_again_and_nothing_else(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 22)).finalize(15).commit("a23")
    found = dispatching(place, journal, toy.MOVES, toy.PAGES)
    await found.settle()
    for job, wanted, expected in (
        ("find_moves", [Span(3, 12), Span(20, 21)], [Span(3, 9), Span(10, 12), Span(20, 21)]),
        ("cut_pages", [Span(6, 6)], [Span(5, 9)]),
    ):
        surveyed = await found.survey.take()
        asked = propose(found.lineage.jobs[job], surveyed.state, wanted)
        assert await found.requests.put(found.lineage.jobs[job], asked, surveyed)
        assert not await found.requests.put(found.lineage.jobs[job], asked, surveyed)
        ran = await found.settle()
        assert [(run.job, run.span, run.reason) for run in ran] == [
            (job, span, Reason.BACKFILL) for span in expected
        ]
        await found.require_exact()
    assert await found.worker.unprocessed() == []


async def test_a_backfill_that_is_asked_for_again_goes_on_where_it_is(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 22)).finalize(15).commit("a23")
    found = dispatching(place, journal, toy.MOVES, toy.BALANCES, toy.PAGES)
    await found.settle()
    for job, wanted in (
        ("find_moves", None),
        ("cut_pages", [Span(1, 14)]),
        ("sum_balances", [Span(18, 20)]),
    ):
        asked = found.lineage.jobs[job]
        surveyed = await found.survey.take()
        assert await found.requests.put(asked, propose(asked, surveyed.state, wanted), surveyed)
        surveyed, made = await found.planned()
        run = next(run for run in made.runs if run.job == job)
        await found.run(run, surveyed)
        # More blocks come meanwhile; somebody asks for the same once more.
        journal.commit(f"a{journal.chain[-1].number + 1}")
        await found.worker.follow()
        surveyed = await found.survey.take()
        again = propose(asked, surveyed.state, wanted)
        assert not await found.requests.put(asked, again, surveyed)
        ran = [run.span for run in await found.settle() if run.reason is Reason.BACKFILL]
        assert run.span not in ran
        await found.require_exact()
        # Once it is done, asking is asking anew.
        surveyed = await found.survey.take()
        assert await found.requests.put(asked, propose(asked, surveyed.state, wanted), surveyed)
        await found.settle()


async def test_a_fork_in_the_middle_of_a_backfill_leaves_it_exact(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 22)).finalize(9).commit("a23")
    found = dispatching(place, journal, toy.MOVES, toy.ALERTS, toy.PAGES)
    await found.settle()
    for job in ("find_moves", "cut_pages"):
        surveyed = await found.survey.take()
        spec_ = found.lineage.jobs[job]
        await found.requests.put(spec_, propose(spec_, surveyed.state, None), surveyed)
    surveyed, made = await found.planned()
    claimed = await found.claim(made.runs[-1], surveyed)
    assert claimed is not None
    late = await found.compute(claimed, surveyed)
    journal.unwind(14).commit(drawing("b", 15, 25))
    await found.worker.follow()
    await found.worker.commits.commit(late)
    await found.settle()
    await found.require_exact()
    assert await found.worker.unprocessed() == []


async def test_workers_that_dispatch_at_once_share_the_work_and_get_it_right(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 30)).finalize(24).commit("a31")
    time = TestTime()
    # All three move the time; a lease must not run out while its holder computes.
    policy = Policy(lease_s=1_000_000)
    workers = [
        Worker(place, journal, name=f"worker-{n}", time=time, policy=policy) for n in range(3)
    ]
    team = [Dispatcher(worker, journal) for worker in workers]
    await workers[0].follow()

    async def work(one: Dispatcher) -> None:
        for _ in range(60):
            surveyed, made = await one.planned()
            for run in made.runs[:2]:
                await one.run(run, surveyed)
            time.pass_s(10)

    await asyncio.gather(*(work(one) for one in team))
    journal.unwind(27).commit(drawing("b", 28, 33))
    await workers[1].follow()
    await asyncio.gather(*(work(one) for one in team))
    assert await team[0].settle() == []
    await team[0].require_exact()
    builds = await workers[0].generations.all()
    assert [build.number for build in builds] == [1] * len(toy.EVERY)
    runs = await place.app_rows("SELECT * FROM {app}.runs WHERE outcome = 'committed'")
    assert len({run["worker_name"] for run in runs}) > 1


async def test_a_scope_says_which_raw_datasets_there_are() -> None:
    whole = tree.Chain(name="a")
    assert survey.held(whole) == {"blocks", "transactions", "logs", "withdrawals"}
    assert "traces" in survey.held(tree.Chain(name="a", traces=True))
    assert survey.held(tree.Chain(name="a", scope=tree.Scope(kind="logs"))) == {"blocks", "logs"}
