"""Goal: what people are told about jobs is what the plan does, and a backfill costs what is said.

Method: the planner's small world, and its state as it comes.
"""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta
from pathlib import Path

import pytest

from tests.planning_world import JOBS, LIMITS, World
from unfork.chain.span import Span
from unfork.cli import jobs as commands
from unfork.cli import output
from unfork.jobs import backfill, report
from unfork.jobs.backfill import Anew, InPlace
from unfork.jobs.catalog import Catalog
from unfork.jobs.plan import plan
from unfork.jobs.report import Extras, JobReport, Standing
from unfork.jobs.run import Action
from unfork.jobs.spec import JobSpec, Mode, Strategy
from unfork.jobs.state import Status

SOURCE = JobSpec(
    name="block_follower", inputs=(), input_names=(), output="block_follower",
    mode=Mode.CURSOR, strategy=Strategy.REPLACE, is_source=True,
)  # fmt: skip


def settled(blocks: int = 40, floor: int = 25) -> World:
    world = World()
    world.extend(range(blocks))
    world.finalize(floor)
    world.settle()
    return world


def told(world: World, extras: Extras | None = None) -> dict[str, JobReport]:
    catalog = Catalog(specs=(SOURCE, *JOBS), lineage=world.lineage, folder=Path())
    head = world.head.number if world.chain else None
    found = report.jobs(catalog, world.state(), world.plan(), extras or Extras(), head=head)
    assert json.dumps([one.document() for one in found], default=output.plain)
    return {one.job: one for one in found}


def test_jobs_are_told_in_the_order_of_the_file_and_a_current_one_needs_no_words() -> None:
    world = settled()
    found = told(world)
    assert list(found) == ["block_follower", *(spec.name for spec in JOBS)]
    assert found["block_follower"].standing is Standing.SOURCE
    transfers = found["transfers"]
    assert (transfers.standing, transfers.why, transfers.lag) == (Standing.CURRENT, "", 0)
    assert transfers.watermark == world.head
    assert transfers.rows == len(world.found("transfers"))
    assert (transfers.stale, transfers.failures, transfers.active) == ((), (), ())


def test_a_job_that_was_never_run_is_due_and_has_no_watermark() -> None:
    world = World()
    world.extend(range(3))
    transfers = told(world)["transfers"]
    assert transfers.standing is Standing.DUE
    assert (transfers.watermark, transfers.lag, transfers.rows) == (None, None, None)


def test_new_blocks_make_a_job_due_and_say_how_far_it_lags() -> None:
    world = settled()
    world.extend(range(3))
    found = told(world)
    assert (found["transfers"].standing, found["transfers"].lag) == (Standing.DUE, 3)
    assert found["doubled"].standing is Standing.WAITING


def test_a_paused_job_is_shown_as_paused_with_its_checkpoint() -> None:
    world = settled()
    world.extend(range(3))
    world.paused.add("transfers")
    transfers = told(world)["transfers"]
    assert transfers.standing is Standing.PAUSED
    assert "unfork jobs resume transfers" in transfers.why
    assert transfers.watermark is not None and transfers.lag == 3


@pytest.mark.parametrize(("attempt", "standing"), [(1, Standing.FAILING), (5, Standing.POISONED)])
def test_what_failed_is_told_with_its_error(attempt: int, standing: Standing) -> None:
    world = settled()
    world.extend(range(2))
    run = next(run for run in world.plan().runs if run.job == "transfers")
    flight = world.claim(run)
    world.fail(flight)
    lease = world.leases[flight.lease]
    world.leases[lease.id] = dataclasses.replace(
        lease, attempt=attempt, not_before=world.now + timedelta(hours=1)
    )
    row = {
        "generation_id": run.generation, "job": "transfers", "kind": "live", "status": "FAILED",
        "first": run.span.first, "last": run.span.last, "attempt": attempt, "leased_by": "one",
        "not_before": None, "error": "ValueError: broken",
    }  # fmt: skip
    transfers = told(world, Extras(leases=[row]))["transfers"]
    assert transfers.standing is standing
    assert [(one.span, one.error) for one in transfers.failures] == [
        (run.span, "ValueError: broken")
    ]


def test_somebody_at_work_is_told_with_the_blocks() -> None:
    world = settled()
    world.extend(range(2))
    run = next(run for run in world.plan().runs if run.job == "transfers")
    world.claim(run)
    row = {
        "generation_id": run.generation, "job": "transfers", "kind": "live",
        "status": Status.ACTIVE.value, "first": run.span.first, "last": run.span.last,
        "attempt": 0, "leased_by": "one", "not_before": None, "error": None,
    }  # fmt: skip
    transfers = told(world, Extras(leases=[row]))["transfers"]
    assert transfers.standing is Standing.RUNNING
    assert [(one.span, one.worker) for one in transfers.active] == [(run.span, "one")]


def test_stale_parts_say_which_blocks_and_why() -> None:
    world = settled()
    world.correct(12, 1000)
    found = told(world)
    assert [(part.span, part.why) for part in found["transfers"].stale] == [
        (Span(12, 12), "correction of logs")
    ]
    daily = found["daily"].stale
    assert len(daily) == 1 and "correction of blocks" in daily[0].why
    world.settings["alerts"] = 2
    alerts = told(world)["alerts"]
    assert alerts.standing is Standing.STALE
    assert "unfork backfill alerts --stale" in alerts.why
    whys = {part.why: part.span for part in alerts.stale}
    assert whys["computed with other code or settings"] == Span(0, 39)


def test_the_cost_of_a_backfill_in_place_is_what_its_plan_counts() -> None:
    world = settled()
    spec = world.lineage.jobs["transfers"]
    state = world.state()
    proposal = backfill.propose(spec, state, [Span(3, 30)])
    assert isinstance(proposal, InPlace)
    made = plan(world.lineage, backfill.applied(spec, state, proposal), LIMITS)
    total = next(total for total in made.totals if total.job == "transfers")
    assert (total.runs, total.blocks) == (2, 28)
    world.ask_backfill("transfers", [Span(3, 30)])
    asked = world.plan()
    spans = [run.span for run in asked.runs if run.job == "transfers"]
    assert spans == [run.span for run in made.runs if run.job == "transfers"]
    assert backfill.left(spec, world.state()) == 28
    world.commit(world.claim(asked.runs[0]))
    assert 0 < backfill.left(spec, world.state()) < 28
    world.settle()
    assert backfill.left(spec, world.state()) == 0


def test_the_cost_of_partitions_done_again_counts_whole_partitions() -> None:
    world = settled()
    spec, state = world.lineage.jobs["tens"], world.state()
    proposal = backfill.propose(spec, state, [Span(12, 21)])
    made = plan(world.lineage, backfill.applied(spec, state, proposal), LIMITS)
    assert [run.span for run in made.runs if run.job == "tens"] == [Span(10, 19), Span(20, 29)]


def test_the_cost_of_a_dataset_built_anew_is_all_of_it() -> None:
    world = settled()
    world.settings["balances"] = 2
    spec, state = world.lineage.jobs["balances"], world.state()
    proposal = backfill.propose(spec, state, backfill.stale_spans(spec, state))
    assert isinstance(proposal, Anew)
    made = plan(world.lineage, backfill.applied(spec, state, proposal), LIMITS)
    total = next(total for total in made.totals if total.job == "balances")
    assert total.blocks == 40
    assert next(run for run in made.runs if run.job == "balances").action is Action.EXTEND
    world.ask_backfill("balances", None)
    assert backfill.left(spec, world.state()) == 40
    world.settle()
    assert backfill.left(spec, world.state()) == 0
    assert told(world)["balances"].standing is Standing.CURRENT


def test_nothing_is_left_of_what_nobody_asked_for() -> None:
    world = settled()
    for spec in world.lineage.order:
        assert backfill.left(spec, world.state()) == 0
        proposal = backfill.propose(spec, world.state(), [])
        assert backfill.applied(spec, world.state(), proposal) == world.state()
    assert backfill.left(world.lineage.order[0], World().state()) == 0


def test_a_failing_check_is_told_with_its_rows_and_a_warning_stays_until_it_is_mended() -> None:
    world = settled()
    failed = "[E520] `transfers` is not published: check `small` failed for blocks 3..3"
    lease = {
        "id": 1,
        "generation_id": next(
            one.id for one in world.state().generations if one.dataset == "transfers"
        ),
        "job": "transfers",
        "kind": "live",
        "first": 3,
        "last": 3,
        "status": Status.FAILED,
        "attempt": 2,
        "leased_by": "somebody",
        "lease_expires_at": None,
        "not_before": None,
        "error": failed,
    }
    message = "check `old` failed for blocks 9..9"
    warned = {"job": "transfers", "block_number": 9, "message": message}
    found = told(world, Extras(leases=[lease], findings=[warned]))
    transfers = found["transfers"]
    assert transfers.findings == (message,)
    lines = commands.details(tuple(found.values()))
    assert f"transfers 3..3 failed 2 times: {failed}" in lines
    assert f"transfers warns: {message}" in lines
    assert [one.job for one in found.values() if one.findings] == ["transfers"]
