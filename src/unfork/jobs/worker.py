"""Owns the worker: it follows the chain, plans, claims, computes and commits, at its own pace.

Three loops run side by side, each a step that can be called by itself: follow (apply the raw
journal to the app side), dispatch (look, plan, take steps, claim what there is room for) and reap
(take the leases of workers that are gone). What is claimed runs in threads of its own, for Spark
blocks; runs at the head and runs over history have their own room, so that a long backfill never
keeps the head waiting. Chores are done beside it all: tasks.py, compact.py. Any number of
workers may do the same: the database decides who does what.

Invariants:
- Nothing here is awaited by raw ingestion, and nothing is kept in memory that a restart misses.
- A lease is renewed while its run lasts; a run that lost it is stopped and commits nothing.
- What fails is told to its lease; what is nobody's fault gives it back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from unfork import errors, telemetry
from unfork.app.refs import Refs
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.jobs import plan as planner
from unfork.jobs import thread
from unfork.jobs.commit import Commits
from unfork.jobs.execute import Claimed, InThread
from unfork.jobs.finished import Committed, Finished
from unfork.jobs.lease import Lease, Leases
from unfork.jobs.lineage import Lineage
from unfork.jobs.run import Action, Plan, Run, Step
from unfork.jobs.state import Kind, State, Status
from unfork.jobs.steps import Steps
from unfork.jobs.survey import Survey, Surveyed
from unfork.jobs.work import Limits

log = telemetry.logger(__name__)

#: Seconds after which an unanswered commit is tried again; the second one tells what became of it.
COMMIT_AGAIN_S = 0.5

#: Seconds after which blocks that could not be claimed are planned again.
CLAIM_AGAIN_S = 0.05

#: Steps in a row, and the seconds of the pause after them.
STEPS_MAX, BREATH_S = 20, 0.05

#: Errors after which the same blocks are simply planned again.
_PLAN_AGAIN = (errors.BlockReplaced, errors.SnapshotLost)


class Executing(Protocol):
    """What computes runs."""

    async def execute(self, claimed: Claimed, in_thread: InThread) -> Finished:
        """The run with its rows."""
        ...

    def interrupt(self, lease: Lease) -> None:
        """Ends what is computed for a lease; safe where nothing is."""
        ...


class Chore(Protocol):
    """What a worker does beside its runs, at a pace of its own."""

    @property
    def rests(self) -> bool:
        """Whether nothing is left to do now."""
        ...

    async def work(self, stopping: asyncio.Event) -> None:
        """Works until it is told to stop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How much a worker does at once, and how often it looks."""

    #: Runs at the head at once.
    live_runs_max: int = 4
    #: Runs over history at once.
    history_runs_max: int = 2
    #: Seconds between two looks at the journal while nothing happens.
    follow_s: float = 0.25
    #: Seconds between two plans while nothing happens.
    dispatch_s: float = 1.0
    #: Seconds one run may take.
    run_s_max: float = 3600.0
    #: Seconds before a database that is away is asked again.
    away_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """How a run of this worker ended."""

    job: str
    kind: Kind
    span: Span
    outcome: Literal["committed", "discarded", "failed", "given_back", "lost"]
    #: Rows written.
    rows: int = 0
    #: The dataset's watermark after it, where it was committed.
    watermark: BlockRef | None = None
    #: From the claim to the end.
    seconds: float
    #: What went wrong, or why it was discarded.
    detail: str = ""


class Worker:
    """One worker of one chain."""

    def __init__(
        self,
        name: str,
        *,
        lineage: Lineage,
        refs: Refs,
        survey: Survey,
        steps: Steps,
        leases: Leases,
        commits: Commits,
        executor: Executing,
        limits: Limits | None = None,
        pace: Pace | None = None,
        chores: Sequence[Chore] = (),
        listener: Callable[[Happened], None] = lambda happened: None,
    ) -> None:
        self.name = name
        self._lineage = lineage
        self._refs = refs
        self._survey = survey
        self._steps = steps
        self._leases = leases
        self._commits = commits
        self._executor = executor
        self._limits = limits or Limits()
        self._pace = pace or Pace()
        self._chores = tuple(chores)
        self._listener = listener
        #: What the last plan was made from, and the plan; None before the first one.
        self.seen: tuple[State, Plan] | None = None
        self._nudged = asyncio.Event()
        self._changed = asyncio.Event()
        self._runs: dict[asyncio.Task[None], Kind] = {}
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def work(self, stopping: asyncio.Event) -> None:
        """Works until it is told to stop; raises what only a person can mend."""
        loops = [
            asyncio.create_task(self._loop(step, wake, pause_s))
            for step, wake, pause_s in (
                (self.follow, self._nudged, self._pace.follow_s),
                (self.dispatch, self._changed, self._pace.dispatch_s),
                (self.reap, asyncio.Event(), self._leases.policy.renew_s),
            )
        ]
        loops += [asyncio.create_task(chore.work(stopping)) for chore in self._chores]
        told = asyncio.create_task(stopping.wait())
        try:
            everything: set[asyncio.Future[Any]] = {told, self._gone, *loops}
            done, _ = await asyncio.wait(everything, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {told}:
                task.result()
        finally:
            for task in (told, *loops):
                task.cancel()
            await asyncio.gather(told, *loops, return_exceptions=True)
            await self.stop()

    def nudge(self) -> None:
        """Says that the raw journal has something new; without it the next look finds it."""
        self._nudged.set()

    async def follow(self) -> bool:
        """Applies what happened to the chain; whether something did."""
        applied = await self._refs.step()
        if applied is not None:
            self._changed.set()
        return applied is not None

    async def dispatch(self) -> bool:
        """Plans, takes steps and claims runs; whether it is worth planning again at once."""
        self._changed.clear()
        surveyed = await self._survey.take()
        made = planner.plan(self._lineage, surveyed.state, self._limits)
        self.seen = surveyed.state, made
        is_changed = False
        for step in made.steps:
            is_changed |= await self._take(step, surveyed)
        stepped = {step.job for step in made.steps}
        for run in made.runs:
            # What a step has changed is planned anew; all other jobs go on.
            if run.job in stepped or not self._has_room(run.kind):
                continue
            assert run.generation is not None, "a run without a build comes with a step"
            if run.action is Action.REPLAY:
                await self._steps.replay(run, surveyed.builds[run.generation])
                is_changed = True
            else:
                await self._claim(run, surveyed)
        return is_changed

    async def reap(self) -> bool:
        """Takes the leases of workers that did not come back; whether there were any."""
        taken = await self._leases.reap()
        if taken:
            self._changed.set()
        return False

    def rests_at(self, head: BlockRef | None) -> bool:
        """Whether everything up to a block is done, as far as it can be done now, by anybody."""
        if self.seen is None or self._runs:
            return False
        state, made = self.seen
        is_busy = any(lease.status is Status.ACTIVE for lease in state.leases)
        is_at_rest = all(chore.rests for chore in self._chores)
        return state.head == head and is_at_rest and not (is_busy or made.steps or made.runs)

    @property
    def is_running(self) -> bool:
        """Whether runs that it started have not ended."""
        return bool(self._runs)

    async def settled(self) -> None:
        """Waits until every run that was started has ended."""
        while self._runs:
            await asyncio.wait(self._runs)

    async def stop(self) -> None:
        """Ends what runs, and gives its leases back; a commit that has begun is finished."""
        for task in self._runs:
            task.cancel()
        await self.settled()

    def _has_room(self, kind: Kind) -> bool:
        is_live = kind is Kind.LIVE
        taken = sum((one is Kind.LIVE) is is_live for one in self._runs.values())
        return taken < (self._pace.live_runs_max if is_live else self._pace.history_runs_max)

    async def _take(self, step: Step, surveyed: Surveyed) -> bool:
        """Takes a step; whether it could be taken. One that waits for a reader stops nobody."""
        try:
            await self._steps.take(step, surveyed.builds)
        except errors.Retryable as error:
            telemetry.event(log, "step_waits", dataset=step.dataset, error=str(error))
            return False
        return True

    async def _claim(self, run: Run, surveyed: Surveyed) -> None:
        """Claims a run and starts it; nothing where somebody else was faster."""
        assert run.generation is not None
        build = surveyed.builds[run.generation]
        if run.lease is not None:
            lease = await self._leases.reclaim(
                build, worker=self.name, config_hash=run.trial, id=run.lease
            )
        else:
            lease = await self._leases.claim(
                build, run.span, kind=run.kind, worker=self.name, config_hash=run.trial
            )
        if lease is None:
            # Somebody else has it, or a fork or a correction is under way: that is over soon.
            asyncio.get_running_loop().call_later(CLAIM_AGAIN_S, self._changed.set)
            return
        if lease.span != run.span:
            # A fork has cut it since the plan was made.
            await self._leases.give_back(lease)
            return
        claimed = Claimed(run=run, build=build, lease=lease)
        task = asyncio.create_task(self._run(claimed))
        self._runs[task] = run.kind
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        self._changed.set()
        if not task.cancelled() and task.exception() is not None:
            log.error("unexpected", exc_info=task.exception())

    async def _run(self, claimed: Claimed) -> None:
        """One run to its end, whatever that is."""
        started = time.monotonic()
        run, lease = claimed.run, claimed.lease
        happened = await self._outcome(claimed)
        telemetry.event(
            log,
            "run",
            level=logging.WARNING if happened["outcome"] == "failed" else logging.DEBUG,
            job=run.job,
            span=lease.span,
            kind=run.kind.value,
            **happened,
        )
        self._listener(
            Happened(
                job=run.job,
                kind=run.kind,
                span=lease.span,
                seconds=time.monotonic() - started,
                **happened,
            )
        )

    async def _outcome(self, claimed: Claimed) -> dict[str, Any]:
        lease = claimed.lease
        computing = asyncio.create_task(self._compute(claimed))
        renewing = asyncio.create_task(self._renew(lease))
        try:
            await asyncio.wait({computing, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not computing.done():
                return {"outcome": "lost", "detail": "the lease was lost"}
            return await self._commit(computing.result())
        except _PLAN_AGAIN as error:
            await self._tell(self._leases.give_back(lease))
            return {"outcome": "given_back", "detail": str(error)}
        except asyncio.CancelledError:
            await self._tell(self._leases.give_back(lease))
            return {"outcome": "given_back", "detail": "the worker stops"}
        except errors.UnforkError as error:
            if isinstance(error, errors.SparkUnavailable) and not self._gone.done():
                self._gone.set_exception(error)
                self._gone.exception()  # Whoever takes steps by itself need not ask for it.
            await self._tell(self._leases.fail(lease, error, reason=claimed.run.reason.value))
            return {"outcome": "failed", "detail": str(error)}
        finally:
            if not computing.done():
                # Spark is asked to stop; a thread that does not hear it has nothing to write with.
                await self._interrupt(lease)
            for task in (computing, renewing):
                task.cancel()
            await asyncio.gather(computing, renewing, return_exceptions=True)

    async def _compute(self, claimed: Claimed) -> Finished:
        limit_s = self._pace.run_s_max
        try:
            async with asyncio.timeout(limit_s):
                return await self._executor.execute(claimed, thread.run)
        except TimeoutError:
            await self._interrupt(claimed.lease)
            raise errors.JobFailed(
                f"job `{claimed.run.job}` took longer than {limit_s:g} s (RUN_MAX_S) for blocks "
                f"{claimed.run.span}",
                job=claimed.run.job,
            ) from None

    async def _commit(self, finished: Finished) -> dict[str, Any]:
        """Commits a run; once begun it is not left, for its answer says what became of it."""
        committing = asyncio.create_task(self._committed(finished))
        try:
            return await asyncio.shield(committing)
        except asyncio.CancelledError:
            return await committing

    async def _committed(self, finished: Finished) -> dict[str, Any]:
        until = time.monotonic() + self._leases.policy.lease_s
        while True:
            try:
                outcome = await self._commits.commit(finished)
                break
            except errors.DatabaseUnavailable:
                if time.monotonic() >= until:
                    raise
                await asyncio.sleep(COMMIT_AGAIN_S)
        if isinstance(outcome, Committed):
            return {"outcome": "committed", "rows": outcome.rows, "watermark": outcome.watermark}
        return {"outcome": "discarded", "detail": f"{outcome.why.value}: {outcome.detail}"}

    async def _renew(self, lease: Lease) -> None:
        """Renews a lease in time for as long as it can be; ends when it is lost."""
        pause_s = self._leases.policy.renew_s
        while True:
            await asyncio.sleep(pause_s)
            try:
                if not await self._leases.renew(lease):
                    return
                pause_s = self._leases.policy.renew_s
            except errors.Retryable:
                pause_s = min(self._pace.away_s, pause_s)

    async def _interrupt(self, lease: Lease) -> None:
        with suppress(Exception):
            await thread.run(lambda: self._executor.interrupt(lease))

    async def _tell(self, telling: Coroutine[Any, Any, Any]) -> None:
        """Tells the database what became of a lease; where it is away, the reaper will see.

        Once begun it is not left: a worker that stops would leave a lease behind as if it had died.
        """
        task = asyncio.create_task(telling)
        try:
            try:
                await asyncio.shield(task)
            except asyncio.CancelledError:
                await task
        except errors.Retryable as error:
            telemetry.event(log, "lease_left", error=str(error))

    async def _loop(
        self, step: Callable[[], Awaitable[bool]], wake: asyncio.Event, pause_s: float
    ) -> None:
        """Takes one step after another, and pauses where there is nothing more to do.

        Also now and then where there always is: a step that only seems to change something must
        not keep the process from everything else.
        """
        count = 0
        while True:
            count += 1
            try:
                is_more = await step()
                if is_more and count % STEPS_MAX:
                    continue
                wait_s = BREATH_S if is_more else pause_s
            except errors.Retryable as error:
                telemetry.event(log, "worker_waits", error=str(error))
                wait_s = self._pace.away_s
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await wake.wait()
            if wake is self._nudged:
                wake.clear()
