"""Owns `unfork backfill`: blocks of a dataset computed again, after showing what that takes.

The request is a record in the database, so it outlives this process: whoever works carries it out,
and saying the same again goes on with it. Unless told otherwise the command works on it itself,
beside any other worker, with a progress bar.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from unfork import wiring
from unfork.chain.span import Span
from unfork.cli import looking, progress, tools
from unfork.cli.context import (
    Context,
    as_json,
    chain_option,
    database_option,
    finish,
    flags_for,
    one_chain,
    run,
    yes_option,
)
from unfork.cli.jobs import SPAN
from unfork.cli.looking import Look
from unfork.config.load import Loaded
from unfork.config.tree import Chain
from unfork.errors import Misconfigured
from unfork.jobs import backfill, explain
from unfork.jobs.backfill import Anew, InPlace, Nothing, Proposal
from unfork.jobs.catalog import Catalog
from unfork.jobs.lineage import Lineage, Touched
from unfork.jobs.plan import plan
from unfork.jobs.report import Standing
from unfork.jobs.request import Requests
from unfork.jobs.run import Cause, Plan, Total
from unfork.jobs.spec import JobSpec

if TYPE_CHECKING:
    from unfork.app.derived import DerivedDataset
    from unfork.wiring_jobs import Computing

#: Seconds between two looks at how much is left.
LOOK_INTERVAL_S = 0.5

#: Why a backfill comes to nothing by itself, so that waiting for it would have no end.
HOPELESS = (Cause.POISONED, Cause.PAUSED, Cause.UNAVAILABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a wish means, and what it costs."""

    proposal: Proposal
    #: Runs that it takes.
    runs: int
    blocks: int
    #: About; None where nobody can tell.
    rows: int | None
    #: What may have to be computed again further down.
    follows: tuple[Touched, ...]
    #: Blocks that somebody asked for already and that are not done.
    left: int

    @property
    def how(self) -> str:
        """The proposal in a word."""
        match self.proposal:
            case InPlace():
                return "in place"
            case Anew():
                return "anew"
            case Nothing():
                return "nothing"


class Spark:
    """Spark with the jobs it computes, started when it is first needed."""

    def __init__(self, loaded: Loaded, jobs: Catalog) -> None:
        self._loaded = loaded
        self._jobs = jobs
        self._stack = ExitStack()
        #: None while it is not started.
        self.known: Computing | None = None

    def computing(self) -> Computing:
        """Started, and asked what every job writes."""
        if self.known is None:
            from unfork import wiring_jobs
            from unfork.jobs import session

            spark = self._stack.enter_context(session.opened(self._loaded.config))
            self.known = wiring_jobs.prepared(self._loaded, self._jobs, spark)
        return self.known

    def close(self) -> None:
        """Ends it, where it was started."""
        self._stack.close()


@click.command()
@click.argument("job")
@click.option("--span", "wanted", type=SPAN, multiple=True, help="These blocks; may be repeated.")
@click.option("--stale", is_flag=True, help="What was computed with other code or settings.")
@click.option("--all", "is_all", is_flag=True, help="Everything.")
@click.option("--detach", is_flag=True, help="Put it on record, and leave it to the workers.")
@chain_option
@database_option
@yes_option
@as_json
@click.pass_obj
def command(
    context: Context,
    job: str,
    wanted: tuple[Span, ...],
    stale: bool,
    is_all: bool,
    detach: bool,
    chain: str | None,
    db: str | None,
    yes: bool,
) -> int | None:
    """Compute blocks of a job's dataset again; shows plan and cost, then asks, then works on it.

    Safe through forks, beside other workers and against itself: asking twice is asking once. What
    is interrupted goes on when the same is said again, or when a worker runs.
    """
    if bool(wanted) + stale + is_all != 1:
        raise click.UsageError("say which blocks: --span a:b, --stale or --all")
    loaded = context.loaded(flags_for(chain, db))
    known = one_chain(loaded.config, chain)
    jobs = looking.read_jobs(loaded)
    spec = looking.one_job(jobs, job)
    spark = Spark(loaded, jobs)
    try:
        with tools.databases(loaded.config) as where:
            found = finish(looking.look(loaded.config, jobs, where, known))
            if _may_differ(spec, found):
                context.output.note("asking Spark for the columns that the job returns now")
                datasets = spark.computing().declarations.datasets
                columns = {job: dataset.schema_hash for job, dataset in datasets.items()}
                found = finish(looking.look(loaded.config, jobs, where, known, columns=columns))
            offer = _offer(spec, found, None if is_all else wanted or _stale(spec, found))
            if isinstance(offer.proposal, Nothing) and not offer.left:
                why = offer.proposal.why
                context.output.result(_document(known, spec, offer, is_done=True), why)
                return None
            context.output.note("\n".join(_lines(spec, offer)))
            if not yes and not context.output.confirm("Compute that again?"):
                document = _document(known, spec, offer, is_done=False)
                context.output.result(document, "nothing was changed")
                return 1
            asked = finish(_ask(loaded, where, found, spec, offer, spark))
            if detach:
                text = "on record" if asked else "was on record already"
                document = _document(known, spec, offer, asked=asked, is_done=False)
                context.output.result(document, f"{text}; `unfork jobs` shows how far it is")
                return None
            computing = spark.computing()
            left = run(lambda stopping: carry_out(computing, where, known, spec, stopping))
    finally:
        spark.close()
    done = "done" if not left else f"{left:,} blocks are left; say the same again, or run a worker"
    document = _document(known, spec, offer, asked=asked, is_done=not left, left=left)
    context.output.result(document, f"{spec.output}: {done}")
    return None


def _may_differ(spec: JobSpec, found: Look) -> bool:
    """Whether the columns may have changed: only with the code, and only where rows are there."""
    state = found.surveyed.state
    served = [g for g in state.generations if g.dataset == spec.output and g.is_served]
    wanted = state.fingerprints.get(spec.name)
    return bool(served) and wanted is not None and served[0].config_hash != wanted.config_hash


def _stale(spec: JobSpec, found: Look) -> tuple[Span, ...]:
    return backfill.stale_spans(spec, found.surveyed.state)


def _offer(spec: JobSpec, found: Look, wanted: tuple[Span, ...] | None) -> Offer:
    """What the wish means for the dataset as it is now, and what it takes."""
    told = next(one for one in found.reports if one.job == spec.name)
    if told.standing in (Standing.UNAVAILABLE, Standing.PAUSED, Standing.POISONED):
        raise Misconfigured(f"job `{spec.name}` cannot be computed now: {told.why}")
    state = found.surveyed.state
    proposal = backfill.propose(spec, state, wanted)
    after = backfill.applied(spec, state, proposal)
    made = plan(found.catalog.lineage, after, found.limits)
    is_beside = isinstance(proposal, Anew)
    builds = {
        one.id
        for one in after.generations
        if one.dataset == spec.output and one.is_served is not is_beside
    }
    totals = [one for one in made.totals if one.job == spec.name and one.generation in builds]
    return Offer(
        proposal=proposal,
        runs=sum(one.runs for one in totals),
        blocks=0 if isinstance(proposal, Nothing) else sum(map(len, proposal.spans)),
        rows=sum(one.rows or 0 for one in totals) if all(_is_known(totals)) else None,
        follows=explain.follows(made, found.catalog.lineage, after),
        left=backfill.left(spec, state),
    )


def _is_known(totals: Sequence[Total]) -> Iterator[bool]:
    yield bool(totals)
    for one in totals:
        yield one.rows is not None


async def _ask(
    loaded: Loaded, where: wiring.Urls, found: Look, spec: JobSpec, offer: Offer, spark: Spark
) -> bool:
    """Puts the request on record; whether something new was asked for."""
    served = [
        build.dataset
        for build in found.surveyed.builds.values()
        if build.dataset.name == spec.output and build.state == "served"
    ]

    async def declare(job: str) -> DerivedDataset:
        known = spark.known
        # Without a change of the code the columns are those of the served build.
        return served[0] if known is None else known.declarations.datasets[job]

    async with wiring.database(loaded.config, where.app) as app:
        requests = Requests(
            found.chain.name,
            app,
            declare=declare,
            lock_timeout_ms=loaded.config.database.lock_timeout_ms,
        )
        return await requests.put(spec, offer.proposal, found.surveyed)


async def carry_out(
    computing: Computing,
    where: wiring.Urls,
    chain: Chain,
    spec: JobSpec,
    stopping: asyncio.Event,
) -> int:
    """Works on the job and what it reads until all of it is done; the blocks that are left."""
    from unfork import wiring_jobs

    config, lineage = computing.loaded.config, computing.catalog.lineage
    needed = Lineage([*lineage.upstream(spec.name), spec])
    ending = asyncio.Event()
    async with (
        wiring_jobs.worker(computing, where, chain, only=needed) as worker,
        wiring.database(config, where.app) as app,
    ):
        survey = wiring.survey(chain, app, computing.catalog)
        working = asyncio.create_task(worker.work(ending))
        try:
            with progress.bar(f"computing {spec.output}") as show:
                total = 0
                while True:
                    state = (await survey.take()).state
                    left = backfill.left(spec, state)
                    total = max(total, left)
                    show(total - left, total)
                    if not left or stopping.is_set() or working.done():
                        return left
                    _require_hope(spec, plan(needed, state, wiring.limits(config)))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_INTERVAL_S):
                            await stopping.wait()
        finally:
            ending.set()
            await working


def _require_hope(spec: JobSpec, made: Plan) -> None:
    """Raises where nothing will happen before a person does something."""
    for idle in made.idle:
        if idle.job == spec.name and idle.cause in HOPELESS:
            raise Misconfigured(f"the backfill of `{spec.output}` cannot go on: {idle.why}")


def _document(
    chain: Chain,
    spec: JobSpec,
    offer: Offer,
    *,
    is_done: bool,
    asked: bool = False,
    left: int | None = None,
) -> dict[str, Any]:
    proposal = offer.proposal
    return {
        "chain": chain.name,
        "job": spec.name,
        "dataset": spec.output,
        "how": offer.how,
        "why": proposal.why,
        "spans": [] if isinstance(proposal, Nothing) else list(proposal.spans),
        "runs": offer.runs,
        "blocks": offer.blocks,
        "rows": offer.rows,
        "follows": [{"job": one.job, "spans": list(one.spans)} for one in offer.follows],
        "asked": asked,
        "done": is_done,
        "left": offer.left if left is None else left,
    }


def _lines(spec: JobSpec, offer: Offer) -> list[str]:
    """The plan and its cost, as a person reads it."""
    proposal = offer.proposal
    if isinstance(proposal, Nothing):
        return [f"{spec.output}: {offer.left:,} blocks are left of what was asked for already"]
    where = ", ".join(str(span) for span in proposal.spans)
    rows = "" if offer.rows is None else f", about {offer.rows:,} rows"
    lines = [f"{spec.output} {where}, {offer.how}: {proposal.why}"]
    lines.append(f"  {offer.runs:,} runs over {offer.blocks:,} blocks{rows}")
    if isinstance(proposal, Anew):
        lines.append("  the build that is there is served until the new one takes its place")
    if offer.left:
        lines.append(f"  {offer.left:,} blocks are left of what was asked for already")
    for touched in offer.follows:
        told = ", ".join(str(span) for span in touched.spans)
        through = ", ".join(touched.through)
        lines.append(f"  {touched.job} {told} may follow, if {through} comes out differently")
    return lines
