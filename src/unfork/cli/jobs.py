"""Owns `unfork jobs`: how every job stands, and the verbs that pause, resume and release one."""

from __future__ import annotations

from typing import Any

import click

from unfork import wiring
from unfork.app import schema as app_schema
from unfork.app.generations import Generations, Job
from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.cli import looking, output, tools
from unfork.cli.context import (
    Context,
    as_json,
    chain_option,
    database_option,
    finish,
    flags_for,
    one_chain,
)
from unfork.config.tree import Chain, Config
from unfork.errors import Misconfigured
from unfork.jobs.catalog import Catalog
from unfork.jobs.lease import Lease, Leases
from unfork.jobs.report import JobReport

COLUMNS = ("job", "dataset", "status", "watermark", "lag", "rows", "to do again", "failed", "why")
#: Parts and failures of one job that a person is shown; JSON has them all.
SHOWN_MAX = 5


class SpanType(click.ParamType[Span]):
    """first:last, both included."""

    name = "a:b"

    def convert(self, value: Any, param: Any, ctx: Any) -> Span:
        """Reads it."""
        try:
            return value if isinstance(value, Span) else spans.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SPAN = SpanType()


@click.group(invoke_without_command=True)
@chain_option
@database_option
@as_json
@click.pass_context
def command(ctx: click.Context, chain: str | None, db: str | None) -> None:
    """Show every job: status, watermark, lag, what is to be done again and why, failures.

    With a verb: preview, pause, resume or release one.
    """
    if ctx.invoked_subcommand is not None:
        return
    context = ctx.ensure_object(Context)
    loaded = context.loaded(flags_for(chain, db))
    jobs = looking.read_jobs(loaded)
    known = one_chain(loaded.config, chain)
    with tools.databases(loaded.config) as where:
        found = finish(looking.look(loaded.config, jobs, where, known))
    reports = found.reports
    context.output.result(
        {"chain": known.name, "jobs": [one.document() for one in reports]},
        table(reports),
        *details(reports),
    )


@command.command()
@click.argument("job", required=False)
@click.option("--all", "is_all", is_flag=True, help="Every job.")
@chain_option
@database_option
@as_json
@click.pass_obj
def pause(
    context: Context, job: str | None, is_all: bool, chain: str | None, db: str | None
) -> None:
    """Stop planning a job; it keeps its checkpoint, and what runs now is finished."""
    _set_paused(context, job, is_all, chain, db, is_paused=True)


@command.command()
@click.argument("job", required=False)
@click.option("--all", "is_all", is_flag=True, help="Every job.")
@chain_option
@database_option
@as_json
@click.pass_obj
def resume(
    context: Context, job: str | None, is_all: bool, chain: str | None, db: str | None
) -> None:
    """Let a paused job go on where it stopped."""
    _set_paused(context, job, is_all, chain, db, is_paused=False)


@command.command()
@click.argument("job")
@click.option("--span", type=SPAN, help="Only blocks that touch these; else all that failed.")
@chain_option
@database_option
@as_json
@click.pass_obj
def release(
    context: Context, job: str, span: Span | None, chain: str | None, db: str | None
) -> None:
    """Let blocks that failed too often be tried again at once."""
    loaded = context.loaded(flags_for(chain, db))
    looking.one_job(looking.read_jobs(loaded), job)
    known = one_chain(loaded.config, chain)
    with tools.databases(loaded.config) as where:
        released = finish(_release(loaded.config, where, known, job, span))
    text = [f"released {job} {lease.span}" for lease in released]
    context.output.result(
        {"chain": known.name, "job": job, "released": [lease.span for lease in released]},
        *(text or [f"nothing of {job} has failed"]),
    )


@command.command()
@click.argument("job")
@click.option("--span", type=SPAN, help="These blocks; the last ones when left out.")
@click.option(
    "--last", type=click.IntRange(1), metavar="N", help="So many of the last blocks; 20 else."
)
@click.option(
    "--limit", type=click.IntRange(0), default=20, show_default=True, help="Rows to show."
)
@click.option("--watch", is_flag=True, help="Stay, and show it anew when a file is saved.")
@chain_option
@as_json
@click.pass_obj
def preview(
    context: Context,
    job: str,
    span: Span | None,
    last: int | None,
    limit: int,
    watch: bool,
    chain: str | None,
) -> int | None:
    """Compute what a job would write by its code as it is now; writes and publishes nothing.

    Shows the rows, how they differ from what is stored of the same blocks, and which checks they
    fail. The job need not have run before; inputs that are not stored are computed in memory.
    """
    # Spark is large, and the other verbs have no use for it.
    from unfork.cli import previewing

    if span is not None and last is not None:
        raise click.UsageError("say --span or --last, not both")
    wish = previewing.Wish(
        job=job,
        span=span,
        last=last or previewing.BLOCKS,
        limit=limit,
        chain=chain,
        is_watched=watch,
    )
    if watch:
        previewing.watch(context, wish)
        return None
    return previewing.once(context, wish)


def table(reports: tuple[JobReport, ...]) -> Any:
    """The jobs as a table."""
    rows = (
        (
            one.job,
            one.dataset,
            one.standing.value,
            one.watermark and one.watermark.number,
            one.lag,
            one.rows,
            sum(len(part.span) for part in one.stale) or None,
            len(one.failures) or None,
            one.why,
        )
        for one in reports
    )
    return output.table(COLUMNS, rows)


def details(reports: tuple[JobReport, ...]) -> list[str]:
    """What a person wants to know of the jobs that are not simply current."""
    lines = []
    for one in reports:
        if one.building is not None:
            number, mark = one.building
            lines.append(f"{one.dataset}: build {number} beside it includes up to {mark or 'none'}")
        for part in one.stale[:SHOWN_MAX]:
            lines.append(f"{one.dataset} {part.span} ({part.partitions} parts): {part.why}")
        lines += _more(one.dataset, len(one.stale), "parts to do again")
        for failure in one.failures[:SHOWN_MAX]:
            lines.append(
                f"{one.job} {failure.span} failed {failure.attempt} times: {failure.error}"
            )
        lines += _more(one.job, len(one.failures), "failures")
        lines += [f"{one.job} warns: {finding}" for finding in one.findings[:SHOWN_MAX]]
        lines += _more(one.job, len(one.findings), "warnings")
    return lines


def _more(name: str, count: int, what: str) -> list[str]:
    return [f"{name}: {count - SHOWN_MAX:,} more {what}"] if count > SHOWN_MAX else []


def _set_paused(
    context: Context,
    job: str | None,
    is_all: bool,
    chain: str | None,
    db: str | None,
    *,
    is_paused: bool,
) -> None:
    if (job is None) != is_all:
        raise click.UsageError("name one job, or say --all")
    loaded = context.loaded(flags_for(chain, db))
    jobs = looking.read_jobs(loaded)
    if job is not None:
        looking.one_job(jobs, job)
    known = one_chain(loaded.config, chain)
    with tools.databases(loaded.config) as where:
        names = finish(_pause(loaded.config, where, known, jobs, job, is_paused=is_paused))
    verb = "paused" if is_paused else "goes on"
    context.output.result(
        {"chain": known.name, "jobs": names, "paused": is_paused},
        *(f"{name} {'is ' if is_paused else ''}{verb}" for name in names),
    )


async def _pause(
    config: Config,
    where: wiring.Urls,
    chain: Chain,
    jobs: Catalog,
    job: str | None,
    *,
    is_paused: bool,
) -> list[str]:
    async with wiring.database(config, where.app) as pool:
        async with pool.session() as session:
            await app_schema.migrations(chain.name).require(session)
        generations = Generations(chain.name, pool)
        await generations.note(
            Job(name=spec.name, dataset=spec.output, inputs=spec.inputs, is_paused=False)
            for spec in jobs.lineage.order
            if spec.is_planned
        )
        paused = await generations.pause(job, is_paused=is_paused)
        if not paused:
            raise Misconfigured(
                f"job `{job}` cannot be run here, so it cannot be paused; `unfork jobs` says why"
            )
        return paused


async def _release(
    config: Config, where: wiring.Urls, chain: Chain, job: str, span: Span | None
) -> list[Lease]:
    async with wiring.database(config, where.app) as pool:
        async with pool.session() as session:
            await app_schema.migrations(chain.name).require(session)
        return await Leases(chain.name, pool).release(job, span)
