"""Owns what people are told about jobs and their datasets: how far, how well, and why not further.

Pure but for the last function. Everything is taken from the state that plans are made from and from
the plan itself, so that what is shown and what happens cannot differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from unfork.app import schema as app_schema
from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.jobs import schema
from unfork.jobs.catalog import Catalog
from unfork.jobs.run import Cause, Idle, Plan
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import Generation, State, Status


class Standing(StrEnum):
    """How a job stands; of several, the first that applies."""

    #: It is raw ingestion itself.
    SOURCE = "source"
    #: It fills the lake.
    LAKE = "lake"
    #: This release, or this chain's scope, does not have what it takes.
    UNAVAILABLE = "unavailable"
    PAUSED = "paused"
    #: Blocks failed too often; a person or new code releases them.
    POISONED = "poisoned"
    #: Its code or settings changed, and it waits for a backfill.
    STALE = "stale"
    #: Something failed and is tried again later.
    FAILING = "failing"
    #: Somebody computes it now.
    RUNNING = "running"
    #: There is something to do, and nobody does it yet.
    DUE = "due"
    #: Its inputs do not have what it needs yet.
    WAITING = "waiting"
    CURRENT = "current"


CAUSES = (
    (Cause.UNAVAILABLE, Standing.UNAVAILABLE),
    (Cause.PAUSED, Standing.PAUSED),
    (Cause.POISONED, Standing.POISONED),
    (Cause.STALE, Standing.STALE),
    (Cause.BACKOFF, Standing.FAILING),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Blocks that failed and are not done."""

    span: Span
    #: How often.
    attempt: int
    #: When they are tried again; None where that has come.
    not_before: datetime | None
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Active:
    """Blocks that somebody computes now."""

    span: Span
    kind: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StalePart:
    """Blocks whose rows are not what would be computed now."""

    span: Span
    #: Partitions, or versions, that it touches.
    partitions: int
    #: What happened, and to what.
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What people want to know and plans do not depend on."""

    leases: Sequence[Mapping[str, Any]] = ()
    runs: Sequence[Mapping[str, Any]] = ()
    sizes: Sequence[Mapping[str, Any]] = ()
    #: What ran by the clock last, a row a task.
    tasks: Sequence[Mapping[str, Any]] = ()
    #: What checks that only warn have found.
    findings: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport:
    """One job."""

    job: str
    dataset: str
    inputs: tuple[str, ...]
    mode: str
    strategy: str
    standing: Standing
    #: A sentence about it, empty where there is nothing to say.
    why: str
    #: The last block up to which its dataset is complete.
    watermark: BlockRef | None
    #: Blocks that the chain has and the dataset does not; None where nothing was computed.
    lag: int | None
    #: Rows of the dataset, None where nobody counted.
    rows: int | None
    #: The number of the build that is served, None where there is none.
    generation: int | None
    #: The build beside it: its number and how far it has come; None where there is none.
    building: tuple[int, BlockRef | None] | None
    stale: tuple[StalePart, ...]
    failures: tuple[Failure, ...]
    #: What checks that only warn have found in rows that are published.
    findings: tuple[str, ...]
    active: tuple[Active, ...]
    #: The last run, as the table `runs` has it.
    last_run: Mapping[str, Any] | None

    def document(self) -> dict[str, Any]:
        """The report as values that JSON has; every key is always there."""
        number, mark = self.building or (None, None)
        return {
            "job": self.job,
            "dataset": self.dataset,
            "inputs": list(self.inputs),
            "mode": self.mode,
            "strategy": self.strategy,
            "status": self.standing.value,
            "why": self.why,
            "watermark": self.watermark,
            "lag": self.lag,
            "rows": self.rows,
            "generation": self.generation,
            "building": None if number is None else {"generation": number, "watermark": mark},
            "stale": [
                {"span": part.span, "partitions": part.partitions, "why": part.why}
                for part in self.stale
            ],
            "failures": [
                {
                    "span": failure.span,
                    "attempt": failure.attempt,
                    "not_before": failure.not_before,
                    "error": failure.error,
                }
                for failure in self.failures
            ],
            "findings": list(self.findings),
            "active": [
                {"span": active.span, "kind": active.kind, "worker": active.worker}
                for active in self.active
            ],
            "last_run": None if self.last_run is None else dict(self.last_run),
        }


def jobs(
    catalog: Catalog, state: State, plan: Plan, extras: Extras, *, head: int | None
) -> tuple[JobReport, ...]:
    """Every job in the order of the file; `head` is the last block of the raw store."""
    return tuple(_job(spec, state, plan, extras, head) for spec in catalog.specs)


def stale_parts(spec: JobSpec, state: State) -> tuple[StalePart, ...]:
    """What of a job's served dataset is not what would be computed now, and why.

    Blocks side by side with the same reason are one part.
    """
    served, _ = _builds(spec, state)
    print_ = state.fingerprints.get(spec.name)
    if served is None or print_ is None:
        return ()
    parts: dict[str, list[StalePart]] = {}
    other = "computed with other code or settings"
    if not served.versions and served.config_hash != print_.config_hash and served.watermark:
        _add(parts, Span(served.first, served.watermark.number), other)
    for version in served.versions:
        span = Span(version.first, version.last)
        if version.config_hash != print_.config_hash:
            _add(parts, span, other)
        if not version.is_valid:
            _add(parts, span, _reasons(served, state, span) or "an input changed")
    if spec.partitioning is None and served.watermark is not None:
        covered = Span(served.first, served.watermark.number)
        for row in state.outdated:
            inside = spans.intersect(row.span, covered) if row.generation == served.id else None
            if inside is not None:
                _add(parts, inside, f"{row.reason} of {row.dataset}")
    found = [part for same in parts.values() for part in same]
    return tuple(sorted(found, key=lambda part: (part.span, part.why)))


async def extras(chain: str, database: Database) -> Extras:
    """Reads what plans do not depend on."""
    queries = schema.bound(chain)
    async with database.session() as session:
        return Extras(
            leases=await session.rows(queries["report_leases"]),
            runs=await session.rows(queries["report_runs"]),
            sizes=await session.rows(queries["report_sizes"], schema=app_schema.name(chain)),
            tasks=await session.rows(queries["tasks_last"]),
            findings=await session.rows(queries["report_findings"]),
        )


def _job(spec: JobSpec, state: State, plan: Plan, extras: Extras, head: int | None) -> JobReport:
    served, building = _builds(spec, state)
    mine = {build.id for build in (served, building) if build is not None}
    leases = [row for row in extras.leases if row["generation_id"] in mine]
    active = [row for row in leases if row["status"] == Status.ACTIVE]
    standing, why = _standing(spec, plan, is_active=bool(active))
    watermark = None if served is None else served.watermark
    return JobReport(
        job=spec.name,
        dataset=spec.output,
        inputs=spec.inputs,
        mode=spec.mode.value,
        strategy=spec.strategy.value,
        standing=standing,
        why=why,
        watermark=watermark,
        lag=None if watermark is None or head is None else max(0, head - watermark.number),
        rows=_rows(served),
        generation=None if served is None else served.number,
        building=None if building is None else (building.number, building.watermark),
        stale=stale_parts(spec, state),
        failures=tuple(
            Failure(
                span=Span(row["first"], row["last"]),
                attempt=row["attempt"],
                not_before=row["not_before"],
                error=row["error"] or "",
            )
            for row in leases
            if row["status"] == Status.FAILED
        ),
        findings=tuple(row["message"] for row in extras.findings if row["job"] == spec.name),
        active=tuple(
            Active(span=Span(row["first"], row["last"]), kind=row["kind"], worker=row["leased_by"])
            for row in active
        ),
        last_run=next((row for row in extras.runs if row["job"] == spec.name), None),
    )


def _builds(spec: JobSpec, state: State) -> tuple[Generation | None, Generation | None]:
    """The served build of a job's dataset, and the one beside it."""
    mine = [one for one in state.generations if one.dataset == spec.output]
    served = next((one for one in mine if one.is_served), None)
    return served, next((one for one in mine if not one.is_served), None)


def _standing(spec: JobSpec, plan: Plan, *, is_active: bool) -> tuple[Standing, str]:
    if spec.is_source:
        return Standing.SOURCE, "raw ingestion; `unfork ingest` runs it"
    if spec.is_compaction:
        return Standing.LAKE, "fills the lake; `unfork lake` shows how far"
    idle = [one for one in plan.idle if one.job == spec.name]
    for cause, standing in CAUSES:
        told = _why(idle, cause)
        if told is not None:
            return standing, told
    if is_active:
        return Standing.RUNNING, ""
    runs = [run for run in plan.runs if run.job == spec.name]
    if runs or any(step.job == spec.name for step in plan.steps):
        return Standing.DUE, runs[0].why if runs else ""
    told = _why(idle, Cause.WAITING)
    if told is not None:
        return Standing.WAITING, told
    return Standing.CURRENT, ""


def _why(idle: Sequence[Idle], cause: Cause) -> str | None:
    return next((one.why for one in idle if one.cause is cause), None)


def _rows(served: Generation | None) -> int | None:
    """Rows that the versions count; None where there are none, or one of them was not counted."""
    counts = [version.rows for version in (served.versions if served else ())]
    if not counts or None in counts:
        return None
    return sum(count or 0 for count in counts)


def _reasons(served: Generation, state: State, span: Span) -> str:
    names = {
        f"{row.reason} of {row.dataset}"
        for row in state.outdated
        if row.generation == served.id and row.span.overlaps(span)
    }
    return ", ".join(sorted(names))


def _add(parts: dict[str, list[StalePart]], span: Span, why: str) -> None:
    """Adds a part, to the one before it where they stand side by side for the same reason."""
    same = parts.setdefault(why, [])
    if same and same[-1].span.touches(span):
        known = same.pop()
        span = Span(min(known.span.first, span.first), max(known.span.last, span.last))
        same.append(StalePart(span=span, partitions=known.partitions + 1, why=why))
    else:
        same.append(StalePart(span=span, partitions=1, why=why))
