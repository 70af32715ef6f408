"""Owns `unfork work`: a worker in the foreground; as many may run as there are machines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import click

from unfork import wiring
from unfork.cli import progress, working
from unfork.cli.context import Context, as_json, run
from unfork.cli.following import prepare
from unfork.cli.output import JsonOutput
from unfork.cli.working import WorkTally
from unfork.config.tree import Chain, Config
from unfork.errors import ConfigInvalid

#: Seconds between two looks whether there is anything left to do.
LOOK_INTERVAL_S = 0.1


@click.command()
@click.option("--chain", metavar="NAME", help="Work for this chain alone.")
@click.option(
    "--until-idle",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End once nothing was left to do for so long.",
)
@as_json
@click.pass_obj
def command(context: Context, chain: str | None, until_idle: float | None) -> None:
    """Compute derived data: follow the chain, plan, claim, run on Spark, commit.

    Several workers may run at once, on several machines; each takes what the others have not.
    Ctrl-C or SIGTERM ends it cleanly.
    """
    loaded = context.loaded()
    chains = _chosen(loaded.config, chain)
    tallies = [WorkTally(chain=each.name) for each in chains]
    is_quiet = isinstance(context.output, JsonOutput)
    with wiring.urls(loaded.config) as where:

        async def worked(stopping: asyncio.Event) -> None:
            for each in chains:
                await prepare(loaded.config, where, each)
            async with progress.shown([], is_quiet=is_quiet, beside=tallies):
                async with _ending(tallies, until_idle, stopping):
                    await working.work(loaded, where, chains, tallies, stopping)

        run(worked)
    for tally in tallies:
        if tally.halt is not None:
            raise tally.halt
    document = {"chains": {tally.chain: tally.document() for tally in tallies}}
    context.output.result(document, *(tally.board() for tally in tallies))


def _chosen(config: Config, name: str | None) -> list[Chain]:
    chains = [chain for chain in config.chains if name in (None, chain.name)]
    if not chains:
        names = ", ".join(chain.name for chain in config.chains)
        raise ConfigInvalid(f"no chain is called {name!r}; there are {names or 'none'}")
    return chains


@contextlib.asynccontextmanager
async def _ending(
    tallies: list[WorkTally], idle_s: float | None, stopping: asyncio.Event
) -> AsyncIterator[None]:
    """Sets the event once no worker had anything to do for so long."""
    watching = None if idle_s is None else asyncio.create_task(_watch(tallies, idle_s, stopping))
    try:
        yield
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _watch(tallies: list[WorkTally], idle_s: float, stopping: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    since = loop.time()
    while loop.time() - since < idle_s:
        await asyncio.sleep(LOOK_INTERVAL_S)
        if not all(_rests(tally) for tally in tallies):
            since = loop.time()
    stopping.set()


def _rests(tally: WorkTally) -> bool:
    worker = tally.worker
    return worker is not None and worker.seen is not None and worker.rests_at(worker.seen[0].head)
