"""Workers with a real Spark that die at a chosen moment of a run, for tests of what that leaves.

A worker that is dead does nothing more: every statement of it fails, and what it told its server
is forgotten with its connections. What it asked of Spark goes on by itself, unheard: that is worse
than a process that ends, whose Spark ends with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from dataclasses import dataclass, field

from tests.engines import ROUNDS_MAX, Engine
from tests.simulation.test_crash_points import Crash
from tests.workers import TestTime
from unfork import wiring
from unfork.app.derived import DerivedDataset
from unfork.app.refs import Refs
from unfork.hot.advance import Upstream
from unfork.jobs import survey as surveys
from unfork.jobs.commit import Commits
from unfork.jobs.execute import Claimed, Executor, InThread
from unfork.jobs.finished import Finished
from unfork.jobs.lease import Lease, Leases, Policy
from unfork.jobs.lineage import Lineage
from unfork.jobs.spark.place import Place
from unfork.jobs.steps import Steps
from unfork.jobs.survey import Survey
from unfork.jobs.worker import Pace, Worker

#: Runs are one at a time, so that a death is that of one run.
PACE = Pace(live_runs_max=1, history_runs_max=1)
POLICY = Policy(backoff_s=0.01, backoff_s_max=0.01)
#: Seconds that Spark may take to end what nobody waits for any more.
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Death:
    """A moment of a run: at the last of some points that are passed one after another."""

    name: str
    #: Patterns of points: statements, before or after, and what the executor says.
    points: tuple[str, ...]


CLAIM = Death("claim", ("after lease_(re)?claim",))
PIN = Death("pin", ("after pins_register",))
SNAPSHOT = Death("snapshot", ("after snapshot_export",))
ROOM = Death("make room for staging", ("after staging_create",))
READ = Death("read", ("reading",))
COMPUTED = Death("computed or staged", ("computed",))
BEFORE = Death("before commit", ("computed", "before held_patience"))
IN_COMMIT = Death("in commit", ("computed", "after held_patience", "before commit"))
AFTER = Death("after commit", ("computed", "after held_patience", "after commit"))

#: The deaths of a run whose rows are handed to the driver.
OF_DRIVER = (CLAIM, READ, COMPUTED, BEFORE, IN_COMMIT, AFTER)
#: The deaths of a run whose rows are read and staged by tasks.
OF_TASKS = (CLAIM, ROOM, PIN, SNAPSHOT, READ, COMPUTED, BEFORE, IN_COMMIT, AFTER)


class Mortal:
    """Dies at a moment, and stays dead; without one it lives."""

    def __init__(self, death: Death | None) -> None:
        self.is_dead = False
        self._points = list(death.points) if death is not None else []

    def __call__(self, point: str) -> None:
        if self._points and re.fullmatch(self._points[0], point):
            del self._points[0]
            self.is_dead = not self._points
        if self.is_dead:
            raise Crash(point)


class Doomed:
    """The real executor of a worker that may die while Spark computes, or right after it."""

    def __init__(self, executor: Executor, mortal: Mortal, left: list[threading.Event]) -> None:
        self._executor = executor
        self._mortal = mortal
        self._left = left

    async def execute(self, claimed: Claimed, in_thread: InThread) -> Finished:
        async def watched(work: object) -> Finished:
            begun, ended = threading.Event(), threading.Event()
            self._left.append(ended)

            def computing() -> Finished:
                begun.set()
                try:
                    return work()  # type: ignore[operator, no-any-return]
                finally:
                    ended.set()

            running = asyncio.ensure_future(in_thread(computing))
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.to_thread(begun.wait)
            self._mortal("reading")
            finished = await running
            self._mortal("computed")
            return finished

        return await self._executor.execute(claimed, watched)

    def interrupt(self, lease: Lease) -> None:
        if not self._mortal.is_dead:
            self._executor.interrupt(lease)


@dataclass
class Mortals:
    """Workers of an engine, one after another; time passes between them, as a test has it."""

    engine: Engine
    time: TestTime = field(default_factory=TestTime)
    #: What was asked of Spark, each with its end.
    left: list[threading.Event] = field(default_factory=list)

    async def live(self, *jobs: str, death: Death | None = None) -> bool:
        """One worker works on these jobs until there is nothing left to do; whether it died."""
        # Whoever had a lease before is missed by now.
        self.time.pass_s(1000)
        mortal = Mortal(death)
        place = self.engine.chain.place
        raw, app = place.database(probe=mortal), place.app_database(probe=mortal)
        person = Leases(place.name, place.app_database(), now=self.time)
        worker = self._worker(jobs, mortal, raw, app)
        for _ in range(ROUNDS_MAX):
            with contextlib.suppress(Crash):
                await worker.reap()
                # What failed rests for a moment, and what failed too often waits for a person.
                self.time.pass_s(0.1)
                for job in jobs:
                    await person.release(job)
                is_more = await worker.follow() or await worker.dispatch() or worker.is_running
            await worker.settled()
            if mortal.is_dead or not is_more:
                break
        else:
            raise AssertionError("there is no end of it")
        for database in (raw, app):
            await database.close()
        return mortal.is_dead

    async def die(self, *jobs: str, at: tuple[Death, ...]) -> None:
        """One worker after another dies at the moments given, each of which must come."""
        for death in at:
            assert await self.live(*jobs, death=death), f"{jobs} never came to `{death.name}`"

    async def ended(self) -> None:
        """Waits until Spark has ended what nobody waits for any more."""
        for event in self.left:
            assert await asyncio.to_thread(event.wait, PATIENCE_S)

    def _worker(
        self, jobs: tuple[str, ...], mortal: Mortal, raw: wiring.Database, app: wiring.Database
    ) -> Worker:
        made, name = self.engine.computing, self.engine.chain.place.name
        config, whole = made.loaded.config, made.catalog.lineage
        chain = config.chains[0]
        datasets = made.declarations.datasets
        chosen = [whole.jobs[job] for job in jobs]
        above = [spec for job in jobs for spec in whole.upstream(job)]
        survey = Survey(
            name,
            app,
            held=surveys.held(chain),
            fingerprints=surveys.fingerprints(made.catalog),
            now=self.time,
        )
        for job, dataset in datasets.items():
            survey.learn(job, dataset.schema_hash)

        async def declare(job: str) -> DerivedDataset:
            return datasets[job]

        executor = Executor(
            made.spark,
            Place(config=config, chain=chain),
            made.declarations,
            raw=raw,
            app=app,
            config=str(self.engine.chain.file),
            local_blocks_max=config.planning.live_blocks_max,
        )
        return Worker(
            "mortal",
            lineage=Lineage(list({spec.name: spec for spec in (*above, *chosen)}.values())),
            refs=Refs(name, app, Upstream(name, raw)),
            survey=survey,
            steps=Steps(name, app, declare=declare, lock_timeout_ms=5000),
            leases=Leases(name, app, policy=POLICY, now=self.time),
            commits=Commits(name, app, now=self.time),
            executor=Doomed(executor, mortal, self.left),
            limits=wiring.limits(config),
            pace=PACE,
        )
