"""A dispatcher for tests: surveys, plans, takes steps, and runs toy jobs as the plan says.

It is what a worker does, one thing at a time, with plain Python in the place of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from tests import toy
from tests.journals import Journal
from tests.workers import Worker
from unfork.app.derived import DerivedDataset
from unfork.app.versions import PartitionRead
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.lease import Lease
from unfork.jobs.lineage import Lineage
from unfork.jobs.plan import plan
from unfork.jobs.request import Requests
from unfork.jobs.run import Action, Plan, Run
from unfork.jobs.spec import JobSpec, Mode, OnChange, Rule, Strategy
from unfork.jobs.state import Fingerprint
from unfork.jobs.steps import Steps
from unfork.jobs.survey import Survey, Surveyed
from unfork.jobs.work import Limits

LIMITS = Limits(range_size=10, live_blocks_max=4, runs_max=8)


def spec(dataset: DerivedDataset, *, on_change: OnChange = OnChange.STOP) -> JobSpec:
    """The job of a toy dataset."""
    return JobSpec(
        name=dataset.job,
        inputs=dataset.inputs,
        lookups=dict.fromkeys(dataset.lookups, toy.LOOKUP),
        input_names=dataset.inputs,
        output=dataset.name,
        mode=Mode(dataset.mode),
        strategy=Strategy(dataset.strategy),
        unique_key=dataset.key,
        partitioning=dataset.partitioning,
        rules={column: Rule(rule) for column, rule in dataset.rules.items()},
        transform="toy:transform",
        on_change=on_change,
    )


@dataclass
class Claimed:
    """A run that was claimed."""

    run: Run
    lease: Lease


class Dispatcher:
    """One worker that does what plans say."""

    def __init__(
        self,
        worker: Worker,
        journal: Journal,
        *datasets: DerivedDataset,
        specs: Sequence[JobSpec] = (),
        config: str = "config-1",
    ) -> None:
        self.worker = worker
        self.journal = journal
        # Versions are dated by the database; a test's time comes after all of them.
        worker.time.now = max(worker.time.now, datetime(2100, 1, 1, tzinfo=UTC))
        self.declared = {dataset.job: dataset for dataset in datasets or toy.EVERY}
        self.lineage = Lineage(specs or [spec(one) for one in self.declared.values()])
        chain, database = worker.place.name, worker.database
        self.survey = Survey(
            chain,
            database,
            held={"blocks"},
            fingerprints={
                job: Fingerprint(config, dataset.schema_hash)
                for job, dataset in self.declared.items()
            },
            now=worker.time,
        )
        self.steps = Steps(chain, database, declare=self.declare, lock_timeout_ms=5000)
        self.requests = Requests(chain, database, declare=self.declare, lock_timeout_ms=5000)

    async def declare(self, job: str) -> DerivedDataset:
        return self.declared[job]

    def change(self, job: str, config: str, dataset: DerivedDataset | None = None) -> None:
        """Gives a job other code, and perhaps other columns."""
        self.declared[job] = dataset or self.declared[job]
        self.survey.fingerprints[job] = Fingerprint(config, self.declared[job].schema_hash)

    async def plan(self) -> tuple[Surveyed, Plan]:
        surveyed = await self.survey.take()
        return surveyed, plan(self.lineage, surveyed.state, LIMITS)

    async def planned(self) -> tuple[Surveyed, Plan]:
        """The plan once all its steps are taken."""
        for _ in range(20):
            surveyed, made = await self.plan()
            for step in made.steps:
                await self.steps.take(step, surveyed.builds)
            if not made.steps:
                return surveyed, made
        raise AssertionError(f"steps without end: {made.steps}")

    async def claim(self, run: Run, surveyed: Surveyed) -> Claimed | None:
        assert run.generation is not None
        build = surveyed.builds[run.generation]
        if run.lease is not None:
            lease = await self.worker.leases.reclaim(
                build, id=run.lease, worker=self.worker.name, config_hash=run.config_hash
            )
        else:
            lease = await self.worker.claim(
                build, run.span, kind=run.kind, config_hash=run.config_hash
            )
        return None if lease is None else Claimed(replace(run, span=lease.span), lease)

    async def compute(self, claimed: Claimed, surveyed: Surveyed) -> Finished:
        run, journal = claimed.run, self.journal
        assert run.generation is not None
        parent = None if run.span.first == journal.first else journal.at(run.span.first - 1)
        parts: tuple[PartitionRead, ...] = ()
        if run.partition is not None:
            part = PartitionRead(
                key=run.partition,
                span=run.span,
                parent_hash=parent.hash if parent else None,
                last=journal.at(run.span.last),
            )
            parts = (part,)
        build, blocks = surveyed.builds[run.generation], journal.blocks(run.span)
        earlier = [ref for ref in journal.chain if ref.number < run.span.first]
        # A column that a test has added is empty.
        empty = dict.fromkeys(build.dataset.names)
        return await self.worker.compute(
            build,
            claimed.lease,
            blocks,
            parent=parent,
            rows=[{**empty, **row} for row in toy.computed(build.dataset, blocks, earlier=earlier)],
            seen=run.outdated,
            partitions=parts,
            config_hash=run.config_hash,
        )

    async def run(self, run: Run, surveyed: Surveyed) -> Committed | Discarded | None:
        """Carries out one run; None where it could not be claimed, or was only undone."""
        if run.action is Action.REPLAY:
            assert run.generation is not None
            await self.steps.replay(run, surveyed.builds[run.generation])
            return None
        claimed = await self.claim(run, surveyed)
        if claimed is None:
            return None
        return await self.worker.commits.commit(await self.compute(claimed, surveyed))

    async def settle(self) -> list[Run]:
        """Follows the chain and carries out plans until nothing is left; what was run."""
        await self.worker.follow()
        ran: list[Run] = []
        for _ in range(400):
            self.worker.time.pass_s(100)
            surveyed, made = await self.planned()
            if not made.runs:
                return ran
            await self.run(made.runs[0], surveyed)
            ran.append(made.runs[0])
        raise AssertionError(f"not settled: {made}")

    async def require_exact(self) -> None:
        """Every dataset is what the chain says, computed from scratch."""
        chain = self.journal.chain
        for dataset in self.declared.values():
            held = await self.worker.held(dataset)
            assert held == toy.plain(toy.expected(dataset, chain)), dataset.name
