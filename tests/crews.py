"""Workers for tests, over real Postgres and a raw journal in memory, with plain Python for Spark.

A test decides when a job waits, throws or never ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests import toy
from tests.dispatching import LIMITS, spec
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker as Hands
from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.app.refs import Refs
from unfork.app.versions import PartitionRead
from unfork.database.session import Probe
from unfork.jobs.commit import Commits
from unfork.jobs.execute import Claimed, InThread
from unfork.jobs.finished import Finished
from unfork.jobs.lease import Lease, Leases, Policy
from unfork.jobs.lineage import Lineage
from unfork.jobs.state import Fingerprint
from unfork.jobs.steps import Steps
from unfork.jobs.survey import Survey
from unfork.jobs.verdict import Anchor, AsRead
from unfork.jobs.worker import Happened, Pace, Worker

#: Seconds that anything may take here.
PATIENCE_S = 60.0
CONFIG = "config-1"
QUICK = Pace(follow_s=0.01, dispatch_s=0.05, away_s=0.05)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


@dataclass
class Plain:
    """Computes toy datasets from the journal as it is; `work` runs in the thread of the run."""

    hands: Hands
    journal: Journal
    work: Callable[[Claimed], None] = lambda claimed: None
    interrupted: list[Lease] = field(default_factory=list)

    async def execute(self, claimed: Claimed, in_thread: InThread) -> Finished:
        run, journal = claimed.run, self.journal
        if run.span.last > journal.first + len(journal.chain) - 1:
            raise errors.BlockReplaced("it has not come yet")
        chain = await self.hands.refs.state()
        blocks = journal.blocks(run.span)
        parent = journal.at(run.span.first - 1) if run.span.first > journal.first else None
        anchor = Anchor(span=run.span, parent_hash=parent.hash if parent else None, last=blocks[-1])
        parts: tuple[PartitionRead, ...] = ()
        if run.partition is not None:
            part = PartitionRead(
                key=run.partition,
                span=run.span,
                parent_hash=anchor.parent_hash,
                last=anchor.last,
            )
            parts = (part,)

        def compute() -> Finished:
            self.work(claimed)
            dataset = claimed.build.dataset
            return Finished(
                build=claimed.build,
                lease=claimed.lease,
                anchor=anchor,
                as_read=AsRead(
                    epoch=chain.epoch, floor=chain.floor.number if chain.floor else None
                ),
                rows=toy.arrow(dataset, toy.computed(dataset, blocks)),
                partitions=parts,
                config_hash=run.config_hash,
                invalidations=run.outdated,
            )

        return await in_thread(compute)

    def interrupt(self, lease: Lease) -> None:
        self.interrupted.append(lease)


@dataclass
class Crew:
    """Workers of one place."""

    hands: Hands
    journal: Journal
    executor: Plain
    workers: list[Worker]
    #: Their work; one of them that ends has failed.
    tasks: list[asyncio.Task[None]]
    datasets: Sequence[DerivedDataset]
    happened: list[Happened]

    async def until(self, is_so: Callable[[], bool] | None = None) -> None:
        """Waits until a condition holds, or every dataset has come to the head."""
        async with asyncio.timeout(PATIENCE_S):
            while not (is_so() if is_so else await self.is_current()):
                for task in self.tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.02)

    async def is_current(self) -> bool:
        head = self.journal.chain[-1]
        return all(worker.rests_at(head) for worker in self.workers)

    async def require_exact(self) -> None:
        for dataset in self.datasets:
            held = await self.hands.held(dataset)
            assert held == toy.plain(toy.expected(dataset, self.journal.chain)), dataset.name


@asynccontextmanager
async def crew(
    place: Place,
    journal: Journal,
    *datasets: DerivedDataset,
    workers: int = 1,
    pace: Pace = QUICK,
    policy: Policy | None = None,
    config: str = CONFIG,
    work: Callable[[Claimed], None] = lambda claimed: None,
    probe: Probe | None = None,
    executor: type[Plain] = Plain,
) -> AsyncIterator[Crew]:
    """Workers that are at work while the block runs."""
    hands = Hands(place, journal)
    computing = executor(hands, journal, work)
    happened: list[Happened] = []
    chosen = datasets or toy.EVERY
    declared = {dataset.job: dataset for dataset in chosen}

    async def declare(job: str) -> DerivedDataset:
        return declared[job]

    made = []
    for number in range(workers):
        database = place.app_database(probe=probe, idle_s_max=2.0)
        prints = {job: Fingerprint(config, one.schema_hash) for job, one in declared.items()}
        made.append(
            Worker(
                f"worker-{number}",
                lineage=Lineage([spec(one) for one in declared.values()]),
                refs=Refs(place.name, database, journal),
                survey=Survey(place.name, database, held={"blocks"}, fingerprints=prints),
                steps=Steps(place.name, database, declare=declare, lock_timeout_ms=5000),
                leases=Leases(place.name, database, policy=policy),
                commits=Commits(place.name, database),
                executor=computing,
                limits=LIMITS,
                pace=pace,
                listener=happened.append,
            )
        )
    stopping = asyncio.Event()
    tasks = [asyncio.create_task(worker.work(stopping)) for worker in made]
    try:
        yield Crew(hands, journal, computing, made, tasks, chosen, happened)
    finally:
        stopping.set()
        await asyncio.gather(*tasks)
