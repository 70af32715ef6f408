"""Owns working for chains from a command: Spark, a worker a chain, and what a person sees of it.

A Spark that goes away is started again: nothing of what it was computing is lost but the time. It
is large, so nothing of it is imported before there is something to work for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from unfork import telemetry, wiring
from unfork.cli.context import unless_told
from unfork.config import tree
from unfork.config.load import Loaded
from unfork.errors import SparkUnavailable, UnforkError
from unfork.jobs.lineage import Lineage
from unfork.jobs.run import Cause

if TYPE_CHECKING:
    from unfork.jobs.worker import Happened, Worker
    from unfork.wiring_jobs import Computing

log = telemetry.logger(__name__)

#: Seconds before a Spark that went away is started again.
SPARK_AGAIN_S = 5.0

#: Times in a row that Spark may fail to start before a person is asked.
STARTS_MAX = 3

#: Why a job that rests is worth a word: the others mend themselves.
TOLD = (Cause.PAUSED, Cause.BACKOFF, Cause.POISONED, Cause.STALE, Cause.UNAVAILABLE)


@dataclass(slots=True, kw_only=True)
class JobTally:
    """What a worker has done for one job since this process started."""

    job: str
    runs: int = 0
    rows: int = 0
    failures: int = 0
    discarded: int = 0
    #: Of the last committed run.
    seconds: float | None = None
    #: What went wrong last, empty where nothing did or it went well since.
    error: str = ""


@dataclass(slots=True, kw_only=True)
class WorkTally:
    """What a worker has done for one chain."""

    chain: str
    #: What it waits for, or what halted it; empty while it works.
    note: str = "starting Spark"
    #: What only a person can mend.
    halt: UnforkError | None = None
    worker: Worker | None = None
    lineage: Lineage | None = None
    jobs: dict[str, JobTally] = field(default_factory=dict)

    def nudge(self) -> None:
        """Says that the chain has moved."""
        if self.worker is not None:
            self.worker.nudge()

    def heard(self, happened: Happened) -> None:
        """Takes note of how a run ended."""
        tally = self.jobs.setdefault(happened.job, JobTally(job=happened.job))
        match happened.outcome:
            case "committed":
                tally.runs += 1
                tally.rows += happened.rows
                tally.seconds = happened.seconds
                tally.error = ""
            case "failed":
                tally.failures += 1
                tally.error = happened.detail
            case _:
                tally.discarded += 1

    def board(self) -> Table:
        """Every job as a table."""
        table = Table(box=None, pad_edge=False)
        for name in ("job", "watermark", "behind", "runs", "rows", "last run", "state"):
            is_text = name in ("job", "state")
            table.add_column(name, justify="left" if is_text else "right", header_style="bold")
        for job, done in _tallies(self):
            table.add_row(
                Text(job),
                _number(_mark(self, job)),
                _number(_behind(self, job)),
                f"{done.runs:,}",
                f"{done.rows:,}",
                "-" if done.seconds is None else f"{done.seconds:.2f} s",
                Text(_state(self, job), style="red" if done.error else ""),
            )
        return table

    def line(self) -> str:
        """Every job in one line: those at the head, or not begun, counted; the others by name."""
        if self.worker is None or self.note:
            return f"{self.chain}: jobs: {self.note}"
        at_head, told, waiting = [], [], 0
        for job, done in _tallies(self):
            behind, failures = _behind(self, job), done.failures
            if behind == 0 and not failures:
                at_head.append(_mark(self, job))
                continue
            if behind is None and not failures:
                waiting += 1
                continue
            late = f" ({behind:,} behind)" if behind else ""
            failed = f" {failures} failures" if failures else ""
            told.append(f"{job} {_number(_mark(self, job))}{late}{failed}")
        if at_head:
            what = "" if told or waiting else "all "
            told.insert(0, f"{what}{len(at_head)} at {_number(at_head[0])}")
        if waiting:
            told.append(f"{waiting} not begun")
        return f"{self.chain}: jobs: {', '.join(told)}"

    def document(self) -> list[dict[str, Any]]:
        """Every job as plain values."""
        return [
            {
                "job": job,
                "watermark": _mark(self, job),
                "behind": _behind(self, job),
                "runs": tally.runs,
                "rows": tally.rows,
                "failures": tally.failures,
                "discarded": tally.discarded,
                "state": _state(self, job),
            }
            for job, tally in _tallies(self)
        ]


async def _at_once(tally: WorkTally) -> bool:
    return True


async def work(
    loaded: Loaded,
    where: wiring.Urls,
    chains: Sequence[tree.Chain],
    tallies: Sequence[WorkTally],
    stopping: asyncio.Event,
    *,
    ready: Callable[[WorkTally], Awaitable[bool]] = _at_once,
) -> None:
    """Works for the chains until it is told to stop, or until none of them can be worked for.

    `ready` returns once a chain has its schemas, or False where it never will. What halts one chain
    is noted in its tally and stops no other. Raises what keeps all of them from being worked for.
    """
    from unfork import wiring_jobs

    failures = 0
    while not stopping.is_set():
        try:
            async with AsyncExitStack() as stack:
                # Spark takes its time to start; whoever is told to stop meanwhile does not wait.
                starting = stack.enter_async_context(wiring_jobs.computing(loaded))
                computing = await unless_told(stopping, starting)
                if computing is not None:
                    failures = 0
                    await _work_all(computing, where, chains, tallies, stopping, ready)
            return
        except SparkUnavailable as error:
            failures += 1
            if failures >= STARTS_MAX:
                raise
            telemetry.event(log, "spark_away", level=logging.WARNING, reason=error.message)
            for tally in tallies:
                tally.worker, tally.note = None, error.message
            await _pause(stopping, SPARK_AGAIN_S)


async def _work_all(
    computing: Computing,
    where: wiring.Urls,
    chains: Sequence[tree.Chain],
    tallies: Sequence[WorkTally],
    stopping: asyncio.Event,
    ready: Callable[[WorkTally], Awaitable[bool]],
) -> None:
    from unfork import wiring_jobs

    async def one(chain: tree.Chain, tally: WorkTally) -> None:
        tally.note = "waits for the chain"
        if tally.halt is not None or not await unless_told(stopping, _told(ready(tally))):
            return
        try:
            async with wiring_jobs.worker(computing, where, chain, listener=tally.heard) as worker:
                tally.worker, tally.note = worker, ""
                tally.lineage = computing.catalog.lineage
                await worker.work(stopping)
        except SparkUnavailable:
            raise
        except UnforkError as error:
            tally.halt, tally.note = error, str(error)
            telemetry.event(
                log, "jobs_halted", level=logging.ERROR, chain=chain.name, reason=error.message
            )

    tasks = [
        asyncio.create_task(one(chain, tally)) for chain, tally in zip(chains, tallies, strict=True)
    ]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _told(telling: Awaitable[bool]) -> bool:
    return await telling


async def _pause(stopping: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def _tallies(tally: WorkTally) -> list[tuple[str, JobTally]]:
    if tally.lineage is None:
        return []
    names = [spec.name for spec in tally.lineage.order if spec.is_planned]
    return [(name, tally.jobs.get(name) or JobTally(job=name)) for name in names]


def _mark(tally: WorkTally, job: str) -> int | None:
    """How far the dataset of a job has come."""
    if tally.worker is None or tally.worker.seen is None or tally.lineage is None:
        return None
    state, _ = tally.worker.seen
    output = tally.lineage.jobs[job].output
    for build in state.generations:
        if build.dataset == output and build.is_served and build.watermark is not None:
            return build.watermark.number
    return None


def _behind(tally: WorkTally, job: str) -> int | None:
    """Blocks between the head of the app side and a dataset."""
    mark = _mark(tally, job)
    if tally.worker is None or tally.worker.seen is None or mark is None:
        return None
    head = tally.worker.seen[0].head
    return None if head is None else max(0, head.number - mark)


def _state(tally: WorkTally, job: str) -> str:
    """What a person should know of a job, empty where all is well."""
    if tally.note or tally.worker is None or tally.worker.seen is None:
        return tally.note
    _, plan = tally.worker.seen
    for idle in plan.idle:
        if idle.job == job and idle.cause in TOLD:
            return f"{idle.cause.value}: {idle.why}"
    done = tally.jobs.get(job)
    return done.error if done is not None else ""
