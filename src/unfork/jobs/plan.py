"""Owns the plan: which runs a state calls for, in which order, and why.

Pure: specifications, lineage and a state in, a plan out. Jobs are looked at in the order of the
lineage; each sees what its inputs include now, so a run is planned only when all its inputs cover
the span on the same chain. A change below goes up one job at a time: a run that leaves its rows
equal ends it, one that does not invalidates what reads them, and the next plan shows that.

What a changed configuration means: rows that do not depend on each other may go on from the next
block (`on_change: continue`); everything else stops until a person asks for a backfill, and is then
built beside the served build and swapped.

Invariants: runs of one build never overlap, each other or a lease; a serial build has one run at
most, at its watermark; the same state gives the same plan.
"""

from __future__ import annotations

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.errors import DatasetStale
from unfork.jobs import cursor, partitioned, whole
from unfork.jobs.lineage import Lineage
from unfork.jobs.run import (
    Abandon,
    Build,
    Cause,
    GoOn,
    Idle,
    Plan,
    Reason,
    Register,
    Run,
    Stale,
    Step,
    Swap,
)
from unfork.jobs.spec import JobSpec, OnChange
from unfork.jobs.state import Fingerprint, Generation, Kind, State
from unfork.jobs.view import View
from unfork.jobs.work import Limits, Part, Work

#: The order of runs: the head first, then what is wrong, then history.
RANKS = {Kind.LIVE: 0, Kind.RECOMPUTE: 1, Kind.BACKFILL: 2}

DEFAULT_LIMITS = Limits()


def plan(lineage: Lineage, state: State, limits: Limits = DEFAULT_LIMITS) -> Plan:
    """What to do next for one chain."""
    parts: list[Part] = []
    stale: list[Stale] = []
    view = View(lineage, state) if state.head is not None and state.first is not None else None
    for spec in lineage.order:
        found = _obstacle(spec, state)
        if found is not None or view is None:
            parts.append(Part(idle=[found or _idle(spec, Cause.WAITING, "there is no block yet")]))
            continue
        job = _Job(view, spec, limits)
        parts.append(job.plan())
        stale += job.stale
    beside = {one.id for one in state.generations if not one.is_served}
    places = {spec.name: place for place, spec in enumerate(lineage.order)}

    def rank(run: Run) -> tuple[bool, int, int, int]:
        # A build that nobody reads yet comes after everything that is served.
        return run.generation in beside, RANKS[run.kind], places[run.job], run.span.first

    return Plan(
        steps=tuple(step for part in parts for step in part.steps),
        runs=tuple(sorted((run for part in parts for run in part.runs), key=rank)),
        idle=tuple(idle for part in parts for idle in part.idle),
        stale=tuple(stale),
        totals=tuple(total for part in parts for total in part.totals),
    )


def stop(found: Stale) -> DatasetStale:
    """The error of a dataset whose job may not go on by itself."""
    return DatasetStale(
        f"the code or settings of job `{found.job}` changed; `unfork backfill {found.job} --stale` "
        f"shows what it takes to compute `{found.dataset}` anew",
        job=found.job,
        dataset=found.dataset,
    )


def _obstacle(spec: JobSpec, state: State) -> Idle | None:
    """Why a job is not looked at at all, None where it is."""
    if spec.unavailable is not None:
        return _idle(spec, Cause.UNAVAILABLE, spec.unavailable)
    if spec.reads and not state.has_calls:
        why = "it asks contracts, and this chain has no source.urls to ask"
        return _idle(spec, Cause.UNAVAILABLE, why)
    if spec.name not in state.fingerprints:
        return _idle(spec, Cause.UNAVAILABLE, "nobody said what it would compute with")
    if spec.name in state.paused:
        return _idle(spec, Cause.PAUSED, f"paused; `unfork jobs resume {spec.name}` lets it go on")
    return None


def _idle(spec: JobSpec, cause: Cause, why: str) -> Idle:
    return Idle(job=spec.name, cause=cause, span=None, why=why)


class _Job:
    """One job: which builds there are, and what each needs."""

    def __init__(self, view: View, spec: JobSpec, limits: Limits) -> None:
        self.view = view
        self.spec = spec
        self.limits = limits
        self.fingerprint: Fingerprint = view.state.fingerprints[spec.name]
        self.stale: list[Stale] = []
        self.part = Part()

    def plan(self) -> Part:
        served = self.view.served(self.spec.output)
        building = self.view.building(self.spec.output)
        if self._lacks_raw():
            return self.part
        if served is None:
            self._begin()
            return self.part
        is_served_wanted = self._serve(served, building)
        if building is not None:
            self._build(served, building, is_served_wanted=is_served_wanted)
        if not (self.part.runs or self.part.idle or self.part.steps):
            self._rest(Cause.BUSY, "somebody computes it now")
        return self.part

    def _lacks_raw(self) -> bool:
        for name in self.spec.awaited:
            is_raw = self.view.lineage.writer(name) is None
            if is_raw and name not in (*self.view.state.held, *self.spec.optional):
                self._rest(Cause.UNAVAILABLE, f"this chain's scope does not fetch `{name}`")
                return True
        return False

    def _begin(self) -> None:
        """A job that was never run: its first build, and what it will run."""
        first = self.view.first
        self._step(
            Register(
                job=self.spec.name,
                dataset=self.spec.output,
                first=first,
                config_hash=self.fingerprint.config_hash,
                why="it is new",
            )
        )
        empty = Generation(
            id=0,
            dataset=self.spec.output,
            number=1,
            first=first,
            config_hash=self.fingerprint.config_hash,
            schema_hash="",
            is_served=True,
            watermark=None,
        )
        self._work(empty)

    def _serve(self, served: Generation, building: Generation | None) -> bool:
        """Plans the served build; whether it is computed with what the job says now."""
        is_same_schema = self.fingerprint.schema_hash in (None, served.schema_hash)
        is_same = is_same_schema and served.config_hash == self.fingerprint.config_hash
        may_go_on = is_same_schema and (served.is_empty or self._continues())
        if not is_same and not may_go_on:
            self._note_stale(served, is_stopped=True)
            if served.is_empty and building is None:
                self._rebuild("its columns changed before anything was computed")
            elif building is None:
                self._rest(Cause.STALE, str(stop(self.stale[-1])))
            return False
        self._note_stale(served, is_stopped=False)
        if not is_same:
            self._step(
                GoOn(
                    job=self.spec.name,
                    dataset=self.spec.output,
                    generation=served.id,
                    config_hash=self.fingerprint.config_hash,
                    boundary=served.next,
                    why=f"its code or settings changed; block {served.next} is the first with them",
                )
            )
        if building is not None and self._is_near(building, served):
            self._rest(Cause.WAITING, "the build beside it is about to take its place")
        elif not self._work(served) and building is None:
            self._rebuild("a correction lies below what can be undone")
        return True

    def _build(self, served: Generation, building: Generation, *, is_served_wanted: bool) -> None:
        """Plans the build beside the served one, and its swap."""
        is_same_schema = self.fingerprint.schema_hash in (None, building.schema_hash)
        if not is_same_schema or building.config_hash != self.fingerprint.config_hash:
            self._step(
                Abandon(
                    job=self.spec.name,
                    dataset=self.spec.output,
                    generation=building.id,
                    why="its code or settings changed again while it was built",
                )
            )
            if not is_served_wanted:
                self._rest(Cause.STALE, str(stop(self.stale[-1])))
            return
        if building.next >= self._reach(served) and self._is_right(building):
            self._step(
                Swap(
                    job=self.spec.name,
                    dataset=self.spec.output,
                    generation=building.id,
                    why=f"it includes as much as the served one, up to block {building.next - 1}",
                )
            )
            return
        if not is_served_wanted:
            cause = (Reason.CHANGED_CONFIG, "a new build, with the job's new code or settings")
        elif any(row.reason != "manual" for row in self.view.outdated(served.id)):
            cause = (Reason.INVALIDATION, "a new build, since the served one cannot be corrected")
        else:
            cause = (Reason.BACKFILL, "a new build, as a person asked for")
        if not self._work(building, cause):
            why = "a correction lies below what the new build can undo"
            self._rebuild(why, broken=building.id)

    def _work(self, generation: Generation, cause: tuple[Reason, str] | None = None) -> bool:
        """Plans one build; False where it has to be built anew."""
        if not self.view.is_placed(generation) and self.spec.mode is not Mode.FULL:
            self._rest(Cause.WAITING, "waits until the fork is unwound in it")
            return True
        work = Work(
            self.view,
            self.spec,
            generation,
            fingerprint=self.fingerprint,
            limits=self.limits,
            cause=cause,
        )
        is_mendable = True
        match self.spec.mode:
            case Mode.CURSOR:
                is_mendable = cursor.plan(work)
            case Mode.PARTITION:
                partitioned.plan(work)
            case Mode.FULL:
                whole.plan(work)
        self.part.steps += work.part.steps
        self.part.runs += work.part.runs
        self.part.idle += work.part.idle
        self.part.totals += work.part.totals
        return is_mendable

    def _rebuild(self, why: str, *, broken: int | None = None) -> None:
        self._step(
            Build(
                job=self.spec.name,
                dataset=self.spec.output,
                first=self.view.first,
                config_hash=self.fingerprint.config_hash,
                broken=broken,
                why=why,
            )
        )

    def _continues(self) -> bool:
        return self.spec.on_change is OnChange.CONTINUE and not self.spec.is_serial

    def _is_near(self, building: Generation, served: Generation) -> bool:
        """Whether a build has all but caught up, so that the served one lets it."""
        is_wanted = building.config_hash == self.fingerprint.config_hash
        return is_wanted and building.next + self.limits.live_blocks_max >= self._reach(served)

    def _reach(self, generation: Generation) -> int:
        """The block after the highest that a build shows readers something of.

        A version that is to be done again is still served, so it counts; what a shorter fork took
        away does not, or a build could never catch up with it.
        """
        shown = [version.last for version in generation.versions[-1:]]
        return min(max([generation.next, *(last + 1 for last in shown)]), self.view.head.number + 1)

    def _is_right(self, generation: Generation) -> bool:
        """Whether nothing of a build is to be done again."""
        rows = self.view.outdated(generation.id)
        is_open = any(row.span.first < generation.next for row in rows)
        return self.view.is_placed(generation) and not is_open

    def _note_stale(self, served: Generation, *, is_stopped: bool) -> None:
        """Records what was computed with something else than the job says now."""
        now = self.fingerprint.config_hash
        old = [
            Span(version.first, version.last)
            for version in served.versions
            if version.config_hash != now
        ]
        if is_stopped and not old and served.watermark is not None:
            old = [Span(served.first, served.watermark.number)]
        if old or is_stopped:
            merged = spans.merge(old)
            boundary = None if is_stopped or not merged else merged[-1].last + 1
            self.stale.append(
                Stale(
                    job=self.spec.name,
                    dataset=self.spec.output,
                    spans=merged,
                    boundary=boundary,
                )
            )

    def _step(self, step: Step) -> None:
        self.part.steps.append(step)

    def _rest(self, cause: Cause, why: str) -> None:
        self.part.idle.append(_idle(self.spec, cause, why))
