"""Owns the engine that tests run jobs on: the real one, over a chain that the test has drawn.

Blocks go into a raw store, a worker plans, claims, computes on Spark, checks and commits into
Postgres, and forks are unwound as they are anywhere else; what tests see is what people would read.
Only the source of the blocks is another one, and each run has schemas of its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import SparkSession

from unfork import wiring, wiring_jobs
from unfork.app import schema as app_schema
from unfork.config import load, tree
from unfork.config.load import Loaded
from unfork.database.queries import Query
from unfork.hot.store import HotStore
from unfork.jobs import catalog
from unfork.jobs.catalog import Catalog
from unfork.jobs.lineage import Lineage
from unfork.jobs.run import Cause
from unfork.jobs.worker import Worker
from unfork.testing import batches, rows
from unfork.testing.drawn import CHAIN_ID, Chain, Move
from unfork.testing.rows import Rows
from unfork.wiring_jobs import Computing

#: Rounds after which work that does not end is a mistake.
ROUNDS_MAX = 500

#: What stands for a variable that the file names and the environment lacks: nobody asks it.
UNSET = "http://127.0.0.1:1"

_VARIABLE = re.compile(r"(?<!\$)\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Failed(AssertionError):
    """A job could not go on: its code raised, or its rows fail a check."""

    def __init__(self, failure: str, found: Rows) -> None:
        super().__init__(failure)
        #: What people still read: the rows of before.
        self.rows = found


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The jobs of one unfork.yaml, asked of Spark."""

    loaded: Loaded
    catalog: Catalog
    computing: Computing


@dataclass
class Engine:
    """A Spark and a Postgres, and what was computed with them."""

    spark: SparkSession
    #: Where Postgres is.
    url: str
    #: For what belongs to one run.
    folder: Path
    _projects: dict[tuple[Path, int], Project] = field(default_factory=dict)
    _numbers: Any = field(default_factory=itertools.count)

    def project(self, file: Path) -> Project:
        """The jobs of a file; raises ConfigInvalid as every command does."""
        key = file, file.stat().st_mtime_ns
        if key not in self._projects:
            loaded = load.load(file, env=_environment(file), fallback={"name": "drawn"})
            jobs = catalog.read(loaded)
            computing = wiring_jobs.prepared(loaded, jobs, self.spark)
            self._projects[key] = Project(loaded=loaded, catalog=jobs, computing=computing)
        return self._projects[key]

    def states(
        self, project: Project, job: str, chain: Chain, *, block_by_block: bool = False
    ) -> list[Rows]:
        """What people read of a job's dataset after each move of the chain."""
        known = project.catalog.lineage.jobs
        if job not in known or not known[job].is_planned:
            raise KeyError(f"no job is called `{job}`; there are {', '.join(known) or 'none'}")
        return asyncio.run(self._states(project, job, chain, block_by_block))

    async def _states(
        self, project: Project, job: str, drawn: Chain, block_by_block: bool
    ) -> list[Rows]:
        name = f"drawn_{next(self._numbers)}"
        chain = tree.Chain(name=name, traces=True, partition_sizes=_small())
        loaded = self._loaded(project, chain)
        where = wiring.Urls(raw=self.url, app=self.url)
        await wiring.migrate(loaded.config, where, chain)
        computing = Computing(
            loaded=loaded,
            spark=self.spark,
            catalog=project.catalog,
            declarations=project.computing.declarations,
        )
        # What is computed at most so often elsewhere is computed whenever it is due here.
        needed = project.catalog.lineage.needed(job).order
        only = Lineage(dataclasses.replace(spec, min_interval_s=0.0) for spec in needed)
        found: list[Rows] = []
        async with (
            wiring.store(loaded.config, where, chain) as store,
            wiring_jobs.worker(computing, where, chain, name="test", only=only) as worker,
        ):
            await store.open()
            await store.claim(chain_id=CHAIN_ID, start=drawn.first)
            try:
                for move in drawn.moves:
                    await _unwind(store, move)
                    size = 1 if block_by_block else len(move.blocks)
                    for at in range(0, len(move.blocks), size):
                        await store.commit(batches.batch(*move.blocks[at : at + size]))
                        await _settle(worker)
                    state = await self._read(loaded.config, chain, only, job, drawn)
                    state.failure = state.failure or _obstacle(worker)
                    found.append(state)
            finally:
                await worker.stop()
        return found

    def _loaded(self, project: Project, chain: tree.Chain) -> Loaded:
        """The project's configuration with a chain and databases of the test's own."""
        folder = self.folder / chain.name
        folder.mkdir(parents=True)
        file = folder / load.FILE_NAME
        database = {"raw_url": self.url}
        document = {
            "data_dir": str(folder),
            "database": database,
            "chains": [{"name": chain.name, "traces": True}],
            "jobs": [],
        }
        # Tasks of Spark read it: they know a chain by the file that configures it.
        file.write_text(yaml.safe_dump(document))
        mine = load.load(file, env={}).config
        config = project.loaded.config.model_copy(
            update={
                "data_dir": mine.data_dir,
                "database": mine.database,
                "payloads": mine.payloads,
                "chains": (chain,),
                "schedules": (),
            }
        )
        return Loaded(config=config, file=file, origins=project.loaded.origins)

    async def _read(
        self, config: tree.Config, chain: tree.Chain, only: Lineage, job: str, drawn: Chain
    ) -> Rows:
        """What people read now, and what went wrong."""
        schema = app_schema.name(chain.name)
        output = only.jobs[job].output
        async with wiring.database(config, self.url) as pool, pool.session() as session:

            async def asked(text: str) -> list[dict[str, Any]]:
                return await session.rows(Query("test", text.replace("{app}", f'"{schema}"')))

            failed = await asked(
                "SELECT job, error FROM {app}.worker_leases WHERE status = 'FAILED' ORDER BY id"
            )
            warned = await asked(
                "SELECT message FROM {app}.indexing_errors"
                " WHERE NOT resolved AND severity = 'WARN' AND message LIKE 'check %%' ORDER BY id"
            )
            served = await asked("SELECT dataset FROM {app}.generations WHERE state = 'served'")
            held = []
            if any(row["dataset"] == output for row in served):
                held = await asked(f'SELECT * FROM {{app}}."{output}"')
        kept = [rows.plain(row) for row in held if not row.pop("is_orphaned", False)]
        failure = "; ".join(f"{row['job']}: {rows.message(row['error'] or '')}" for row in failed)
        return Rows(
            rows.ordered(kept),
            named=drawn.named,
            failure=failure or None,
            warnings=[row["message"] for row in warned],
        )


@dataclass(frozen=True, slots=True)
class SparkJob:
    """Runs jobs of one project over drawn chains."""

    engine: Engine
    #: The project's unfork.yaml.
    file: Path

    def __call__(self, job: str, chain: Chain, *, block_by_block: bool = False) -> Rows:
        """What people read of a job's dataset in the end; raises Failed where it could not go on.

        The job's inputs are computed first, by their own jobs. With `block_by_block` every block is
        a run of its own, as it is at the head of a chain.
        """
        found = self.states(job, chain, block_by_block=block_by_block)[-1]
        if found.failure is not None:
            raise Failed(found.failure, found)
        return found

    def states(self, job: str, chain: Chain, *, block_by_block: bool = False) -> list[Rows]:
        """The same after every move of the chain: before the first fork, after it, and so on.

        A job that could not go on says so in `failure`.
        """
        project = self.engine.project(self.file)
        return self.engine.states(project, job, chain, block_by_block=block_by_block)


async def _unwind(store: HotStore, move: Move) -> None:
    if move.ancestor is not None or move.is_restart:
        await store.unwind(move.ancestor, tip=move.blocks[-1].ref)


async def _settle(worker: Worker) -> None:
    """Lets the worker do what there is to do, to the end."""
    for _ in range(ROUNDS_MAX):
        has_moved = await worker.follow()
        again = await worker.dispatch()
        is_running = worker.is_running
        await worker.settled()
        if not (has_moved or again or is_running):
            return
    raise AssertionError(f"there is no end of it: {worker.seen}")


def _obstacle(worker: Worker) -> str | None:
    """Why a job cannot be run at all, None where all can."""
    assert worker.seen is not None
    _, plan = worker.seen
    told = [f"{idle.job}: {idle.why}" for idle in plan.idle if idle.cause is Cause.UNAVAILABLE]
    return "; ".join(told) or None


def _environment(file: Path) -> Mapping[str, str]:
    """The environment, in which no variable is missing that the file names."""
    named = _VARIABLE.findall(file.read_text(encoding="utf-8"))
    return {**dict.fromkeys(named, UNSET), **os.environ}


def _small() -> dict[str, int]:
    return dict.fromkeys(("blocks", "transactions", "logs", "traces", "withdrawals"), 1_000_000)
