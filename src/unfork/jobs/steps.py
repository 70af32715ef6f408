"""Owns the steps of a plan: what is made, swapped or given up before runs can be claimed.

Several workers see the same state and take the same steps. Each step names what it was planned
for, and does nothing where that is no longer so: whoever comes second changes nothing, and a plan
that was made before another one was carried out does no harm. After a step the state is read again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import assert_never

from unfork import telemetry
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation, Generations, NotReady
from unfork.chain.block import BlockRef
from unfork.database.database import Database
from unfork.jobs import held, rewind, schema
from unfork.jobs.rewind import TooDeep
from unfork.jobs.run import Abandon, Action, Build, Forget, GoOn, Register, Run, Step, Swap

log = telemetry.logger(__name__)

#: What a job's dataset is, by the job's name; it may take asking Spark.
Declare = Callable[[str], Awaitable[DerivedDataset]]


class Steps:
    """Takes the steps of one chain's plans."""

    def __init__(
        self, chain: str, database: Database, *, declare: Declare, lock_timeout_ms: int = 500
    ) -> None:
        self._chain = chain
        self._queries = schema.bound(chain)
        self._database = database
        self._declare = declare
        self._generations = Generations(chain, database, lock_timeout_ms=lock_timeout_ms)

    async def take(self, step: Step, builds: Mapping[int, Generation]) -> None:
        """Takes one step of a plan that was made from these builds; safe to repeat.

        Raises a Retryable where a reader or another worker is in the way for too long.
        """
        telemetry.event(
            log, "step", step=type(step).__name__.lower(), dataset=step.dataset, why=step.why
        )
        match step:
            case Register():
                await self._generations.register(
                    await self._declare(step.job), config_hash=step.config_hash, first=step.first
                )
            case Build():
                await self._build(step, builds)
            case Swap():
                swapped = await self._generations.swap(step.dataset, generation=step.generation)
                if isinstance(swapped, NotReady):
                    telemetry.event(log, "swap_not_ready", dataset=step.dataset)
            case Abandon():
                await self._generations.abandon(step.dataset, generation=step.generation)
            case GoOn():
                await self._go_on(step, builds)
            case Forget():
                await self._forget(step, builds)
            case _:
                assert_never(step)

    async def replay(self, run: Run, build: Generation) -> BlockRef | TooDeep | None:
        """Undoes a serial build so that a run of action replay becomes one that extends it.

        Nothing is undone where somebody has corrected it meanwhile. Returns the watermark then,
        or TooDeep: the next plan builds the dataset anew.
        """
        assert run.action is Action.REPLAY
        async with self._database.session() as session:
            found = await session.row(
                self._queries["steps_open"], generation_id=build.id, ids=list(run.outdated)
            )
        assert found is not None
        if not found["is_open"]:
            return build.watermark
        return await rewind.rewind(self._chain, self._database, build, to=run.span.first - 1)

    async def _build(self, step: Build, builds: Mapping[int, Generation]) -> None:
        served = [
            build
            for build in builds.values()
            if build.dataset.name == step.dataset and build.state == "served"
        ]
        await self._generations.build(
            await self._declare(step.job),
            config_hash=step.config_hash,
            first=step.first,
            beside=served[0].id if served else None,
            broken=step.broken,
        )

    async def _go_on(self, step: GoOn, builds: Mapping[int, Generation]) -> None:
        build = builds[step.generation]
        declared = await self._declare(step.job)
        if declared.schema_hash != build.schema_hash:
            # Planned by somebody who did not know the columns; a plan that knows them stops.
            telemetry.event(log, "columns_changed", dataset=step.dataset)
            return
        await self._generations.go_on(build, config_hash=step.config_hash, dataset=declared)

    async def _forget(self, step: Forget, builds: Mapping[int, Generation]) -> None:
        """Under the lock of the build, so that no commit counts on one of them meanwhile."""
        build = builds[step.generation]
        async with self._database.session() as session:
            async with session.transaction(self._queries["held_patience"]):
                await held.lock(session, self._queries, build, with_dependents=False)
                await session.run(
                    self._queries["steps_forget"], ids=list(step.leases), generation_id=build.id
                )
