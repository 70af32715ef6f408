"""Owns `unfork ingest`: one chain, in the foreground. Its flags and exit codes are stable."""

from __future__ import annotations

import asyncio

import click

from unfork import wiring
from unfork.cli import progress
from unfork.cli.context import Context, as_json, one_chain, refuse_unknown_jobs, run
from unfork.cli.following import Reason, follow
from unfork.cli.output import JsonOutput
from unfork.cli.progress import Tally
from unfork.config.load import Flag

#: The flag that names the chain, and so adds one that no file lists.
CHAIN = "--chain"

REASONS: dict[Reason, str] = {
    "until_block": "the block was reached",
    "until_idle": "nothing more came",
    "stopped": "told to stop",
}


@click.command()
@click.option(CHAIN, required=True, metavar="NAME", help="Names the chain and its schemas.")
@click.option("--source", metavar="URL", multiple=True, help="JSON-RPC endpoint; may be repeated.")
@click.option("--db", metavar="URL", help="Postgres for the tables, else the configured one.")
@click.option(
    "--from", "start", type=click.IntRange(0), metavar="N", help="The first block to hold."
)
@click.option("--until-block", type=click.IntRange(0), metavar="N", help="End once N is stored.")
@click.option(
    "--until-idle",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End once everything known is stored and nothing new came for so long.",
)
@as_json
@click.pass_obj
def command(
    context: Context,
    chain: str,
    source: tuple[str, ...],
    db: str | None,
    start: int | None,
    until_block: int | None,
    until_idle: float | None,
) -> None:
    """Follow one chain in the foreground, through every fork.

    Applies migrations first when the database has none of this chain's schemas. Ends with 0 when
    the end condition is met or it is told to stop (SIGTERM, Ctrl-C); docs/errors.md lists the other
    exit codes.
    """
    if until_block is not None and until_idle is not None:
        raise click.UsageError("say --until-block or --until-idle, not both")
    loaded = context.loaded(_flags(chain, source, db, start))
    refuse_unknown_jobs(loaded)
    config = loaded.config
    followed = one_chain(config, chain)
    if len(config.chains) > 1 and loaded.where(("chains", config.chains.index(followed))) == CHAIN:
        context.output.note(
            f"chain {chain} is not listed beside {config.chains[0].name}: add it under `chains:`, "
            "so that status and the other commands know it"
        )
    tally = Tally(chain=chain)
    with wiring.urls(config) as where:

        async def work(stopping: asyncio.Event) -> Reason:
            is_quiet = isinstance(context.output, JsonOutput)
            async with progress.shown([tally], is_quiet=is_quiet):
                return await follow(
                    config,
                    where,
                    followed,
                    tally,
                    stopping,
                    until_block=until_block,
                    until_idle_s=until_idle,
                )

        reason = run(work)
    context.output.result(
        {**tally.document(), "reason": reason}, progress.line(tally), f"ended: {REASONS[reason]}"
    )


def _flags(chain: str, source: tuple[str, ...], db: str | None, start: int | None) -> list[Flag]:
    adds = bool(source)
    at = ("chains", chain)
    flags = [Flag(path=(*at, "name"), value=chain, flag=CHAIN, adds_chain=adds)]
    if source:
        flags.append(Flag(path=(*at, "source", "urls"), value=list(source), flag="--source"))
    if start is not None:
        flags.append(Flag(path=(*at, "start"), value=start, flag="--from"))
    if db is not None:
        for name in ("raw_url", "app_url"):
            flags.append(Flag(path=("database", name), value=db, flag="--db"))
    return flags
