"""Owns how a plan is told: as lines for people, as plain values for scripts.

Both say for every run what, where and why, for every job without one why not, and what a change
would set in motion further down: at most, since a job whose rows come out equal ends it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from enum import Enum
from typing import Any

from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.jobs.lineage import Lineage, Touched
from unfork.jobs.run import Plan, Reason, Run, Step
from unfork.jobs.state import Kind, State


def document(plan: Plan, follows: tuple[Touched, ...] = ()) -> dict[str, Any]:
    """The plan as values that JSON has; every key is always there."""
    return {
        "steps": [{"step": _name(step), **_plain(step)} for step in plan.steps],
        "runs": [_plain(run) for run in plan.runs],
        "idle": [_plain(idle) for idle in plan.idle],
        "stale": [_plain(stale) for stale in plan.stale],
        "totals": [_plain(total) for total in plan.totals],
        "follows": [_plain(touched) for touched in follows],
    }


def lines(plan: Plan, follows: tuple[Touched, ...] = ()) -> Iterator[str]:
    """The plan as a person reads it."""
    for step in plan.steps:
        yield f"{_name(step)} {step.dataset}: {step.why}"
    for run in plan.runs:
        yield _run(run)
    planned = [run.job for run in plan.runs]
    for total in plan.totals:
        later = total.runs - planned.count(total.job)
        if later > 0:
            rows = "" if total.rows is None else f", about {total.rows:,} rows"
            yield f"{total.job}: {later:,} more runs later, {total.blocks:,} blocks in all{rows}"
    for touched in follows:
        through = ", ".join(touched.through)
        where = ", ".join(str(span) for span in touched.spans)
        yield f"{touched.job} {where} may follow, if {through} comes out differently"
    for stale in plan.stale:
        where = ", ".join(str(span) for span in stale.spans) or "all of it"
        until = "" if stale.boundary is None else f"; block {stale.boundary} is the first with new"
        yield f"{stale.dataset} {where} was computed with other code or settings{until}"
    for idle in plan.idle:
        where = "" if idle.span is None else f" {idle.span}"
        yield f"{idle.job}{where} is {idle.cause}: {idle.why}"
    if not (plan.steps or plan.runs or plan.idle):
        yield "there are no jobs"


def follows(plan: Plan, lineage: Lineage, state: State) -> tuple[Touched, ...]:
    """What the planned corrections may set in motion further down, at most."""
    if state.first is None or state.head is None:
        return ()
    found: dict[str, Touched] = {}
    is_again = (Reason.INVALIDATION, Reason.BACKFILL)
    for run in plan.runs:
        if run.kind is not Kind.RECOMPUTE or run.reason not in is_again:
            continue
        reached = lineage.cascade(
            run.dataset, [run.span], first=state.first, last=state.head.number, days=state.days
        )
        for touched in reached:
            if not lineage.jobs[touched.job].is_planned:
                continue
            known = found.get(touched.job, touched)
            found[touched.job] = Touched(
                job=touched.job,
                spans=spans.merge([*known.spans, *touched.spans]),
                through=tuple(dict.fromkeys([*known.through, *touched.through])),
            )
    order = [spec.name for spec in lineage.order]
    return tuple(sorted(found.values(), key=lambda touched: order.index(touched.job)))


def _run(run: Run) -> str:
    where = str(run.span) if run.partition is None else f"{run.partition} ({run.span})"
    rows = "" if run.rows_expected is None else f", about {run.rows_expected:,} rows"
    return f"{run.kind} {run.job} {where}: {run.action}{rows}; {run.reason}: {run.why}"


def _name(step: Step) -> str:
    return {"GoOn": "go on"}.get(type(step).__name__, type(step).__name__.lower())


def _plain(value: Any) -> Any:
    match value:
        case BlockRef():
            return {"number": value.number, "hash": "0x" + value.hash.hex()}
        case Enum():
            return value.value
        case tuple() | list():
            return [_plain(item) for item in value]
        case Span():
            return {"first": value.first, "last": value.last}
        case _ if dataclasses.is_dataclass(value):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: _plain(getattr(value, name)) for name in names}
        case _:
            return value
