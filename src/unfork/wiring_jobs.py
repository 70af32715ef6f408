"""Owns the composition of what computes: Spark, the jobs of a configuration, and their workers.

It stands beside wiring.py because Spark is large: whoever only follows a chain never loads it.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from unfork import wiring
from unfork.app.derived import DerivedDataset
from unfork.app.refs import Refs
from unfork.chain.span import Span
from unfork.config import tree
from unfork.config.load import Loaded
from unfork.errors import SchemaOutdated
from unfork.hot import schema as raw_schema
from unfork.hot.advance import Upstream
from unfork.jobs import catalog, compaction, project, session, thread
from unfork.jobs.builtin import COMPACTION
from unfork.jobs.calling import Caller
from unfork.jobs.catalog import Catalog
from unfork.jobs.commit import Commits
from unfork.jobs.compact import Compacted, Compaction
from unfork.jobs.declaration import Declarations
from unfork.jobs.execute import Executor
from unfork.jobs.inputs import Inputs
from unfork.jobs.lease import Leases, Policy
from unfork.jobs.lineage import Lineage
from unfork.jobs.preview import Preview, Previews
from unfork.jobs.spark import place as places
from unfork.jobs.spark.place import Place
from unfork.jobs.state import Kind
from unfork.jobs.steps import Steps
from unfork.jobs.tasks import Tasks
from unfork.jobs.worker import Chore, Happened, Pace, Worker

#: Seconds after which a worker that stopped in the middle of a transaction keeps nobody waiting.
FROZEN_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """A Spark, and the jobs that it computes."""

    loaded: Loaded
    spark: SparkSession
    catalog: Catalog
    declarations: Declarations


@asynccontextmanager
async def computing(loaded: Loaded) -> AsyncIterator[Computing]:
    """Starts Spark and asks it what every job writes; raises ConfigInvalid with every problem.

    It takes seconds, in a thread of its own.
    """
    jobs = catalog.read(loaded)
    stack = ExitStack()
    spark = await thread.run(lambda: stack.enter_context(session.opened(loaded.config)))
    try:
        yield await thread.run(lambda: prepared(loaded, jobs, spark))
    finally:
        await thread.run(stack.close)


def prepared(
    loaded: Loaded, jobs: Catalog, spark: SparkSession, *, is_changing: bool = False
) -> Computing:
    """The jobs, asked of a Spark that runs already and is given the project's own modules.

    With `is_changing` they may be other ones the next time. Raises ConfigInvalid with every
    problem, CodeNotSent where the modules cannot get there.
    """
    _let_import(jobs.folder)
    if is_changing:
        project.carry(jobs)
    elif loaded.config.spark.ship_code or session.is_local(loaded.config.spark):
        project.send(spark, jobs, session.folder(loaded.config))
    families = {chain.family for chain in loaded.config.chains}
    raw = {one.name: one for family in families for one in raw_schema.datasets(family)}
    declarations = Declarations(jobs, raw.values())
    declarations.ask(spark)
    return Computing(loaded=loaded, spark=spark, catalog=jobs, declarations=declarations)


@asynccontextmanager
async def worker(
    made: Computing,
    where: wiring.Urls,
    chain: tree.Chain,
    *,
    name: str | None = None,
    only: Lineage | None = None,
    listener: Callable[[Happened], None] = lambda happened: None,
) -> AsyncIterator[Worker]:
    """A worker of one chain, not started yet; with `only`, for these jobs and nothing else."""
    config = made.loaded.config
    datasets = made.declarations.datasets

    async def declare(job: str) -> DerivedDataset:
        return datasets[job]

    async with (
        wiring.database(config, where.raw, service="jobs", idle_s_max=FROZEN_S) as raw,
        wiring.database(config, where.app, service="jobs", idle_s_max=FROZEN_S) as app,
        _calling(made, chain) as caller,
    ):
        survey = wiring.survey(chain, app, made.catalog)
        for job, dataset in datasets.items():
            survey.learn(job, dataset.schema_hash)
        file = made.loaded.file
        policy = Policy(lease_s=config.work.lease_s)
        name = name or unique_name()
        tasks = Tasks(
            chain.name,
            app,
            config.schedules,
            wiring.scheduled(config, where, chain),
            worker=name,
            policy=policy,
        )
        refs = Refs(chain.name, app, Upstream(chain.name, raw))
        chores: list[Chore] = [tasks] if config.schedules else []
        settings = compaction.of(made.catalog.specs)
        if settings is not None:
            chores.append(
                Compaction(
                    made.spark,
                    Place(config=config, chain=chain),
                    settings,
                    raw=raw,
                    app=app,
                    refs=refs,
                    versions=wiring.lake(config, app, chain)[0],
                    worker=name,
                    config=None if file is None else str(file.resolve()),
                    listener=lambda compacted: listener(_happened(compacted)),
                )
            )
        yield Worker(
            name,
            lineage=only or made.catalog.lineage,
            refs=refs,
            survey=survey,
            steps=Steps(
                chain.name, app, declare=declare, lock_timeout_ms=config.database.lock_timeout_ms
            ),
            leases=Leases(chain.name, app, policy=policy),
            commits=Commits(chain.name, app),
            executor=Executor(
                made.spark,
                Place(config=config, chain=chain),
                made.declarations,
                raw=raw,
                app=app,
                config=None if file is None else str(file.resolve()),
                local_blocks_max=config.planning.live_blocks_max,
                caller=caller,
            ),
            limits=wiring.limits(config),
            pace=Pace(
                live_runs_max=config.work.live_runs_max,
                history_runs_max=config.work.history_runs_max,
                run_s_max=config.work.run_max_s,
            ),
            chores=chores if only is None else (),
            listener=listener,
        )


async def preview(
    loaded: Loaded,
    jobs: Catalog,
    spark: SparkSession,
    where: wiring.Urls,
    chain: tree.Chain,
    job: str,
    *,
    span: Span | None,
    last: int,
    limit: int,
    is_changing: bool = False,
) -> Preview:
    """What a job would write, computed on a Spark that runs already; nothing is changed.

    Only the job and those it needs are asked what they write. Raises ConfigInvalid where one of
    them does not fit, and whatever keeps the job from computing.
    """
    # Of a chain whose app side was never made, nothing is stored.
    config, file = loaded.config, loaded.file
    needed = dataclasses.replace(jobs, lineage=jobs.lineage.needed(job))
    made = await thread.run(lambda: prepared(loaded, needed, spark, is_changing=is_changing))
    async with wiring.database(config, where.app) as app:
        survey = wiring.survey(chain, app, needed)
        for name, dataset in made.declarations.datasets.items():
            survey.learn(name, dataset.schema_hash)
        try:
            await survey.require()
            state = (await survey.take()).state
        except SchemaOutdated:
            state = None
    place, datasets = Place(config=config, chain=chain), made.declarations
    inputs = Inputs(spark, place, datasets, config=None if file is None else str(file.resolve()))
    async with _calling(made, chain) as caller:
        previews = Previews(
            spark,
            place,
            datasets,
            needed.lineage,
            inputs,
            calls=None if caller is None else caller.lend(job),
            state=state,
        )
        return await thread.run(lambda: previews.compute(job, span=span, last=last, limit=limit))


@asynccontextmanager
async def _calling(made: Computing, chain: tree.Chain) -> AsyncIterator[Caller | None]:
    """The node whose contracts are read, where a job reads any and there is one to ask.

    Nothing is asked of it before a run does: a node that is away keeps no other job from its work.
    """
    is_read = any(one.spec.reads for one in made.declarations.transforms.values())
    if not (is_read and chain.source.urls):
        yield None
        return
    file = made.loaded.file
    found = places.find(None if file is None else str(file.resolve()), chain.name)
    caller = Caller(
        wiring.source(chain),
        is_found_by_tasks=found.chain.source.urls == chain.source.urls,
    )
    try:
        yield caller
    finally:
        await caller.close()


def _happened(compacted: Compacted) -> Happened:
    """A partition that came into the lake, told like any other run."""
    return Happened(
        job=COMPACTION,
        kind=Kind.BACKFILL,
        span=compacted.span,
        outcome="committed",
        rows=compacted.version.rows,
        seconds=compacted.seconds,
    )


def _let_import(folder: Path) -> None:
    """Lets code of a project import its other modules, whenever it does so."""
    text = str(folder)
    if text not in sys.path:
        sys.path.append(text)


def unique_name() -> str:
    """A name that no other worker has: what it is needed for is told by people's logs."""
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(2).hex()}"
