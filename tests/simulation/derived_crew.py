"""Owns real workers in a simulated world of derived data: they follow, plan, claim, run and commit
at once, with toy jobs in plain Python in the place of Spark, and die.

A worker dies at any statement; from then on every statement of its fails, as with a killed process,
and another one starts in its place. Its leases end by themselves. Time is real here, and so is the
order in which things happen: a seed chooses what is tried, the machine what comes of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests import toy
from tests.dispatching import LIMITS, spec
from tests.simulation.derived_world import DerivedWorld
from tests.simulation.test_crash_points import Crash
from tests.workers import CONFIG
from tests.workers import Worker as Hands
from unfork import errors
from unfork.app import invalidations
from unfork.app.derived import DerivedDataset
from unfork.app.versions import PartitionRead
from unfork.chain.span import Span
from unfork.jobs.commit import Commits
from unfork.jobs.execute import Claimed, InThread
from unfork.jobs.finished import Finished
from unfork.jobs.lease import Lease, Leases, Policy
from unfork.jobs.lineage import Lineage
from unfork.jobs.state import Fingerprint
from unfork.jobs.steps import Steps
from unfork.jobs.survey import Survey
from unfork.jobs.worker import Happened, Pace, Worker

QUICK = Pace(follow_s=0.02, dispatch_s=0.1, away_s=0.05)
#: A worker that died is missed after a moment; a busy machine may pause one for as long.
POLICY = Policy(lease_s=6.0, backoff_s=0.02, backoff_s_max=0.2, attempts_max=1000)
DATASETS = {dataset.job: dataset for dataset in (*toy.EVERY, toy.SEEN)}


class Mortal:
    """A probe of one worker's statements: at a chosen one it dies, and stays dead."""

    def __init__(self, statements: int) -> None:
        self.left = statements

    def spare(self) -> None:
        """Lets it live for ever, unless it is dead already."""
        if self.left >= 0:
            self.left = 2**62

    def __call__(self, statement: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash(statement)


class Plain:
    """Computes toy datasets, each input read in a state that holds the block of the run."""

    def __init__(self, world: DerivedWorld, hands: Hands) -> None:
        self.world = world
        self.hands = hands

    async def execute(self, claimed: Claimed, in_thread: InThread) -> Finished:
        world, run, build = self.world, claimed.run, claimed.build
        dice, span = world.dice, run.span
        if dice.random() < 0.03:
            raise errors.JobFailed("a job that throws", job=run.job)
        inputs = await world.inputs(self.hands, build.dataset, from_raw=dice.random() < 0.5)
        chain = inputs.chain
        if not chain or chain[-1].number < span.last:
            raise errors.BlockReplaced("it is gone, or has not come yet")
        if run.last is not None and chain[span.last] != run.last:
            raise errors.BlockReplaced("another block is there")
        await asyncio.sleep(dice.choice([0, 0, 0, 0.02, 0.1]))
        parent = chain[span.first - 1] if span.first else None
        parts: tuple[PartitionRead, ...] = ()
        if run.partition is not None:
            parent_hash = parent.hash if parent else None
            last = chain[span.last]
            parts = (
                PartitionRead(key=run.partition, span=span, parent_hash=parent_hash, last=last),
            )
        finished = await self.hands.compute(
            build,
            claimed.lease,
            chain[span.first : span.last + 1],
            parent=parent,
            contents=inputs.contents,
            earlier=chain[: span.first],
            seen=run.outdated,
            partitions=parts,
            as_read=inputs.as_read,
            config_hash=run.config_hash,
        )
        if dice.random() < 0.1:
            try:
                return await world.staged(self.hands, finished)
            except errors.SchemaOutdated as error:
                raise errors.SnapshotLost("its lease was lost, and its staging with it") from error
        return finished

    def interrupt(self, lease: Lease) -> None:
        """What runs here ends by itself."""


class Crew:
    """Three workers, each of which is replaced when it dies."""

    def __init__(self, world: DerivedWorld) -> None:
        self.world = world
        self.workers: dict[str, Worker] = {}
        self.deaths = 0
        self.stopping = asyncio.Event()
        self._mortals: list[Mortal] = []
        self.outcomes: dict[str, int] = {}
        self.datasets = {dataset.job: dataset for dataset in world.datasets}

    async def live(self, name: str) -> None:
        """One worker after another under one name."""
        while not self.stopping.is_set():
            dice = self.world.dice
            mortal = Mortal(dice.choice([200, 1000, 3000]) + dice.randrange(300))
            hands = Hands(self.world.place, self.world.upstream, name=name, probe=mortal)
            self.workers[name] = worker = self._worker(name, hands, mortal)
            try:
                await worker.work(self.stopping)
            except Crash as crash:
                self.deaths += 1
                self.world.told.append(f"{name} died at {crash}")
            finally:
                await hands.database.close()

    def let_live(self) -> None:
        """From now on nobody dies who has not died yet."""
        for mortal in self._mortals:
            mortal.spare()

    def has_ended(self, count: int) -> bool:
        """Whether so many runs have ended, one way or another."""
        return sum(self.outcomes.values()) >= count

    def rests(self) -> bool:
        """Whether nobody sees anything left to do at the chain's head."""
        head = self.world.checks.position()
        return all(worker.rests_at(head) for worker in self.workers.values())

    def _worker(self, name: str, hands: Hands, mortal: Mortal) -> Worker:
        place, database = self.world.place, hands.database
        if self.world.is_quiet:
            mortal.spare()
        self._mortals.append(mortal)
        prints = {job: Fingerprint(CONFIG, one.schema_hash) for job, one in self.datasets.items()}
        return Worker(
            name,
            lineage=Lineage([spec(dataset) for dataset in self.datasets.values()]),
            refs=hands.refs,
            survey=Survey(place.name, database, held={"blocks"}, fingerprints=prints),
            steps=Steps(place.name, database, declare=_declare, lock_timeout_ms=2000),
            leases=Leases(place.name, database, policy=POLICY),
            commits=Commits(place.name, database),
            executor=Plain(self.world, hands),
            limits=LIMITS,
            pace=QUICK,
            listener=self._heard,
        )

    def _heard(self, happened: Happened) -> None:
        self.outcomes[happened.outcome] = self.outcomes.get(happened.outcome, 0) + 1
        told = f"{happened.job} {happened.kind.value} {happened.span} {happened.outcome}"
        self.world.told.append(f"{told} {happened.detail}")


async def _declare(job: str) -> DerivedDataset:
    return DATASETS[job]


async def correct(world: DerivedWorld, hands: Hands) -> None:
    """One block of `moves` holds more from now on, and is put on record to be done again."""
    build = await hands.build(toy.MOVES)
    if world.added is None or build.watermark is None:
        return
    block = world.dice.choice(world.checks.path(build.watermark))
    world.correct(block)
    async with hands.database.session() as session, session.transaction():
        await invalidations.record(
            session,
            hands.queries,
            dataset=toy.MOVES.name,
            span=Span(block.number, block.number),
            outdated=[(build.id, Span(block.number, block.number))],
            reason="manual",
            event={},
        )


async def until(is_so: Callable[[], bool], seconds: float) -> bool:
    """Waits until something is so; whether it came to be in time."""
    try:
        async with asyncio.timeout(seconds):
            while not is_so():
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    return True
