"""Owns `unfork up`: everything at once, each chain with a follower and a worker of its own.

Without a configured chain it runs a devnet that forks, and follows that. A chain that halts does
not stop another, and what becomes of the jobs stops no chain; the command ends when it is told to,
when every chain has ended, or, with `--blocks`, once the devnet has grown so far, everything is
stored and computed, and every block is proven.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from unfork import telemetry, wiring
from unfork.cli import output, progress, simulated, working
from unfork.cli.context import Context, as_json, run, unless_told
from unfork.cli.following import follow
from unfork.cli.output import JsonOutput
from unfork.cli.progress import Tally
from unfork.cli.verify import verified
from unfork.cli.working import WorkTally
from unfork.config.load import Loaded
from unfork.config.tree import Chain, Config
from unfork.errors import Misconfigured, UnforkError
from unfork.jobs import catalog
from unfork.verify.report import Report

if TYPE_CHECKING:
    from unfork.devnet.live import Live

log = telemetry.logger(__name__)

#: Seconds between two looks whether the follower holds the devnet's head.
LOOK_INTERVAL_S = 0.02


@dataclass(slots=True, kw_only=True)
class Summary:
    """What became of the followed chains."""

    tallies: list[Tally]
    #: The jobs of each chain; none where none are computed.
    work: list[WorkTally] = field(default_factory=list)
    #: Why a chain halted.
    halts: dict[str, UnforkError] = field(default_factory=dict)
    #: Why no jobs are computed any more.
    work_halt: UnforkError | None = None
    #: What verification found, where it was asked for.
    reports: list[Report] = field(default_factory=list)
    #: Forks that the devnet made, by depth.
    forks_made: dict[int, int] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """0, or what the first halt says, or 1 where a block is not what it should be."""
        for halt in self.halts.values():
            return halt.exit_code
        for work_halt in (self.work_halt, *(work.halt for work in self.work)):
            if work_halt is not None:
                return work_halt.exit_code
        return 0 if all(report.ok for report in self.reports) else 1


@click.command()
@click.option(
    "--blocks",
    type=click.IntRange(1),
    metavar="N",
    help="End after N devnet blocks, with every stored block verified.",
)
@click.option("--jobs/--no-jobs", "with_jobs", default=True, help="Compute derived data, or not.")
@as_json
@click.pass_obj
def command(context: Context, blocks: int | None, with_jobs: bool) -> int:
    """Follow every configured chain, or a devnet that forks where none is configured, and compute.

    Needs nothing: Postgres is embedded unless a URL is set, and Spark runs in this machine. Ctrl-C
    or SIGTERM ends it cleanly; the next start goes on at the exact block, of the devnet too.
    """
    loaded = context.loaded()
    config = loaded.config
    if blocks is not None and not any(simulated.is_simulated(chain) for chain in config.chains):
        raise Misconfigured("--blocks counts devnet blocks, and no chain here is simulated")
    if not isinstance(context.output, JsonOutput):
        context.output.note(f"data in {config.data_dir}; starting Postgres and the followers")
    has_jobs = with_jobs and any(
        spec.is_planned or spec.is_compaction for spec in catalog.read(loaded).specs
    )
    with wiring.urls(config) as where:
        is_quiet = isinstance(context.output, JsonOutput)
        summary = run(
            lambda stopping: _up(
                loaded, where, blocks, stopping, is_quiet=is_quiet, has_jobs=has_jobs
            )
        )
    _show(context.output, summary)
    return summary.exit_code


async def _up(
    loaded: Loaded,
    where: wiring.Urls,
    blocks: int | None,
    stopping: asyncio.Event,
    *,
    is_quiet: bool,
    has_jobs: bool,
) -> Summary:
    config = loaded.config
    async with _devnet(config) as live:
        if live is not None:
            server = live.server
            config = simulated.with_source(config, server.url_http, server.url_ws)
            loaded = dataclasses.replace(loaded, config=config)
        summary = Summary(
            tallies=[
                Tally(chain=chain.name, head_now=_head(chain, live)) for chain in config.chains
            ],
            work=[WorkTally(chain=chain.name) for chain in config.chains if has_jobs],
        )
        async with progress.shown(summary.tallies, is_quiet=is_quiet, beside=summary.work):
            await _follow_all(loaded, where, live, blocks, stopping, summary)
        if live is not None:
            summary.forks_made = dict(live.forks)
        if blocks is not None:
            for chain in config.chains:
                if chain.name not in summary.halts:
                    report = await unless_told(stopping, verified(config, where, chain))
                    summary.reports += [] if report is None else [report]
    return summary


@contextlib.asynccontextmanager
async def _devnet(config: Config) -> AsyncIterator[Live | None]:
    """The devnet while it is needed, None where no chain is simulated."""
    if not any(simulated.is_simulated(chain) for chain in config.chains):
        yield None
        return
    from unfork.devnet.live import Live

    live = await Live.start(config.devnet, place=simulated.place(config))
    try:
        yield live
    finally:
        await live.close()


async def _follow_all(
    loaded: Loaded,
    where: wiring.Urls,
    live: Live | None,
    blocks: int | None,
    stopping: asyncio.Event,
    summary: Summary,
) -> None:
    """Runs every follower, the workers and the devnet, until all has ended or is told to."""
    ending = asyncio.Event()
    config = loaded.config
    followers = [
        asyncio.create_task(_follow(config, where, chain, tally, ending, summary))
        for chain, tally in zip(config.chains, summary.tallies, strict=True)
    ]
    told = asyncio.create_task(stopping.wait())
    helpers: list[asyncio.Task[Any]] = [told]
    if live is not None:
        until = None if blocks is None else live.tree.head.number + blocks
        helpers.append(asyncio.create_task(_grow(live, until, summary)))
    everyone = asyncio.gather(*followers)
    computing = asyncio.create_task(_work(loaded, where, ending, summary))
    try:
        await asyncio.wait({everyone, *helpers}, return_when=asyncio.FIRST_COMPLETED)
        for task in helpers[1:]:
            if task.done():
                task.result()
    finally:
        ending.set()
        for task in helpers:
            task.cancel()
        await everyone
        await computing
        await asyncio.gather(*helpers, return_exceptions=True)


async def _grow(live: Live, until: int | None, summary: Summary) -> None:
    """Lets the devnet grow to a block while it is followed, and waits until its head is held.

    It stands still until its follower has started, so that there are forks to follow. Where the
    store holds more than the devnet has grown (its place was lost), it grows past that first: the
    same seed makes the same blocks again.
    """
    tally = next(tally for tally in summary.tallies if tally.chain == simulated.NAME)
    await tally.started.wait()
    if until is not None and tally.position is not None:
        until = max(until, tally.position.number + 1)
    await live.run(until_block=until)
    while tally.position != live.tree.head.ref and not tally.ended:
        await asyncio.sleep(LOOK_INTERVAL_S)
    for work in summary.work:
        while work.chain == tally.chain and not _is_computed(work, tally, summary):
            await asyncio.sleep(LOOK_INTERVAL_S)


def _is_computed(work: WorkTally, tally: Tally, summary: Summary) -> bool:
    """Whether the jobs of a chain have come as far as it has, or never will."""
    if summary.work_halt is not None or work.halt is not None or tally.ended:
        return True
    return work.worker is not None and work.worker.rests_at(tally.position)


async def _work(
    loaded: Loaded, where: wiring.Urls, ending: asyncio.Event, summary: Summary
) -> None:
    """Computes the jobs of every chain once it is followed; what halts that stops no chain."""
    if not summary.work:
        return
    tallies = {tally.chain: tally for tally in summary.tallies}

    async def ready(work: WorkTally) -> bool:
        tally = tallies[work.chain]
        tally.moved = work.nudge
        await tally.started.wait()
        return not tally.ended

    try:
        chains = loaded.config.chains
        await working.work(loaded, where, chains, summary.work, ending, ready=ready)
    except UnforkError as error:
        summary.work_halt = error
    except Exception as error:
        log.debug("unexpected", exc_info=True)
        summary.work_halt = UnforkError(
            f"unexpected {type(error).__name__} while computing; this is a bug in unfork: run it "
            "again with --debug before the command's name"
        )
    if summary.work_halt is not None:
        for work in summary.work:
            work.note = str(summary.work_halt)
        telemetry.event(log, "jobs_halted", level=logging.ERROR, reason=work.note)


async def _follow(
    config: Config,
    where: wiring.Urls,
    chain: Chain,
    tally: Tally,
    ending: asyncio.Event,
    summary: Summary,
) -> None:
    """Follows one chain; whatever halts it stays its own affair."""
    try:
        await follow(config, where, chain, tally, ending)
    except UnforkError as error:
        summary.halts[chain.name] = error
    except Exception as error:
        telemetry.event(log, "follower_failed", level=logging.DEBUG, chain=chain.name)
        log.debug("unexpected", exc_info=True)
        summary.halts[chain.name] = UnforkError(
            f"unexpected {type(error).__name__} while following {chain.name}; this is a bug in "
            "unfork: run it again with --debug before the command's name"
        )
    halt = summary.halts.get(chain.name)
    if halt is not None:
        tally.ended = str(halt)
        tally.started.set()
        telemetry.event(
            log,
            "chain_halted",
            level=logging.ERROR,
            chain=chain.name,
            code=halt.code,
            reason=halt.message,
        )


def _head(chain: Chain, live: Live | None) -> Any:
    if live is None or chain.name != simulated.NAME:
        return None
    return lambda: live.tree.head.number


def _show(to: output.Output, summary: Summary) -> None:
    halts = {**summary.halts}
    halts |= {f"jobs of {work.chain}": work.halt for work in summary.work if work.halt is not None}
    if summary.work_halt is not None:
        halts["jobs"] = summary.work_halt
    document = {
        "ok": summary.exit_code == 0,
        "chains": [tally.document() for tally in summary.tallies],
        "halts": {name: _halt(halt) for name, halt in halts.items()},
        "jobs": {work.chain: work.document() for work in summary.work},
        "verified": [report.document() for report in summary.reports],
        "forks_made": {str(depth): count for depth, count in sorted(summary.forks_made.items())},
    }
    boards = [
        progress.board(summary.tallies, is_final=True),
        *(work.board() for work in summary.work),
    ]
    to.result(document, *boards, *_lines(summary))


def _halt(halt: UnforkError) -> dict[str, Any]:
    return {"code": halt.code, "exit_code": halt.exit_code, "message": halt.message}


def _lines(summary: Summary) -> list[str]:
    lines = [f"{name} halted: {halt}" for name, halt in summary.halts.items()]
    for work in summary.work:
        if work.halt is not None:
            lines.append(f"the jobs of {work.chain} halted: {work.halt}")
    if summary.work_halt is not None:
        lines.append(f"no jobs are computed: {summary.work_halt}")
    for report in summary.reports:
        lines += ["", *report.lines()]
    if summary.reports:
        lines += ["", _verdict(summary)]
    return lines


def _verdict(summary: Summary) -> str:
    forks = Counter[int]()
    for tally in summary.tallies:
        forks.update(tally.forks)
    damaged = sum(report.damaged_count for report in summary.reports)
    blocks = sum(report.blocks for report in summary.reports)
    survived = f"{forks.total()} forks survived, the deepest {max(forks, default=0)}"
    if all(report.ok for report in summary.reports):
        return f"{blocks:,} blocks verified, none damaged; {survived}"
    return f"damage was found: {damaged:,} of {blocks:,} blocks fail their proof; {survived}"
