"""Measures live runs: ten new blocks, from their commit to the claim, and from there to the rows.

A devnet's blocks are put into the raw store ten at a time; a real worker, with its own loops at its
own pace, follows, plans and runs three built-in jobs on a Spark that is warm: transfers first,
days beside them, then balances out of the transfers. A day of this chain has ten blocks.

- from the commit of the blocks to the claim of the runs that read them: every second time the
  worker is told of them, as `unfork up` tells it; else it finds them by itself, as `unfork work`;
- from the claim to the commit of the rows: the median of each job, in a worker that does all;
- the memory of the worker and its Spark.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks import harness, servers, sparks
from benchmarks.harness import Measure, Report
from unfork import wiring, wiring_jobs
from unfork.chain.block import BlockRef, Head
from unfork.config import load
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.datasets.dataset import Kind
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.jobs.worker import Happened
from unfork.testing import oracle

#: Milliseconds that a live run may take.
MS_MAX = 700.0
#: Milliseconds after its blocks at which it must have begun, the slowest one too.
START_MS_MAX = 1000.0
#: Megabytes of worker and driver together.
MB_MAX = 2500.0

BLOCKS = 10
DAY_S = 86_400
JOBS = ("token_transfers", "token_balances", "daily_summary")
#: Those that read blocks themselves; the other one waits for what it reads.
FIRST = ("token_transfers", "daily_summary")
#: Seconds that one round may take.
PATIENCE_S = 120.0


def batch(blocks: Sequence[Block], scope: Scope) -> Batch:
    """Blocks as a source hands them on."""
    rows = oracle.rows_of(blocks)
    first, last = blocks[0], blocks[-1]
    return Batch(
        parent=BlockRef(first.number - 1, first.header.parent_hash) if first.number else None,
        refs=tuple(BlockRef(block.number, block.hash) for block in blocks),
        tables={name: _table(name, rows[name]) for name in scope.datasets},
        head=Head(latest=BlockRef(last.number, last.hash), finalized=None),
        scope=scope,
    )


def _table(name: str, rows: Sequence[dict[str, Any]]) -> pa.Table:
    dataset = evm.BY_NAME[name]
    columns = [
        pa.array([_arrow(column.kind, row[column.name]) for row in rows], field.type)
        for column, field in zip(dataset.columns, dataset.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=dataset.schema)


def _arrow(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.U256:
        return int(value).to_bytes(32, "big")
    return json.dumps(value) if kind is Kind.JSON else value


@dataclass(slots=True)
class Rounds:
    """What a worker did, round by round: each begins with blocks and ends when all jobs ran."""

    #: How every run ended, and milliseconds from the commit of its blocks to its claim.
    runs: list[tuple[Happened, float]] = field(default_factory=list)
    #: Whether the worker was told of the blocks, for each of the runs.
    told: list[bool] = field(default_factory=list)
    _began: float = 0.0
    _is_told: bool = False
    _missing: set[str] = field(default_factory=set)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    def begin(self, *, is_told: bool) -> None:
        """Blocks have just been committed."""
        self._began, self._is_told = time.monotonic(), is_told
        self._missing = set(JOBS)
        self._ended.clear()

    def heard(self, happened: Happened) -> None:
        """A run has ended; it says how long ago it was claimed."""
        claimed = time.monotonic() - happened.seconds
        self.runs.append((happened, 1000 * (claimed - self._began)))
        self.told.append(self._is_told)
        self._missing.discard(happened.job)
        if not self._missing:
            self._ended.set()

    async def end(self, working: asyncio.Task[None]) -> None:
        """Waits until every job has run; raises what ended the worker."""
        ended = asyncio.create_task(self._ended.wait())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({ended, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
        await ended

    def forget(self) -> None:
        """What was heard so far does not count."""
        self.runs.clear()
        self.told.clear()

    def starts_ms(self, *, is_told: bool) -> list[float]:
        """From the commit of blocks to the claim of every run that reads them."""
        return [
            waited
            for (happened, waited), told in zip(self.runs, self.told, strict=True)
            if told is is_told and happened.job in FIRST
        ]


def memory_mb() -> float:
    """What this process and all that it started hold, but for the database."""
    parents, sizes, names = {}, {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(
                line.split(":", 1) for line in (folder / "status").read_text().splitlines()
            )
        except OSError:
            continue
        number = int(folder.name)
        parents[number], names[number] = int(status["PPid"]), status["Name"].strip()
        sizes[number] = int(status.get("VmRSS", "0 kB").split()[0]) / 1024

    def is_ours(number: int) -> bool:
        while number and number != os.getpid():
            number = parents.get(number, 0)
        return bool(number)

    return sum(
        size for number, size in sizes.items() if is_ours(number) and names[number] != "postgres"
    )


async def measured(rounds: int, warm: int, density: int, folder: Path, dsn: str) -> Report:
    """Runs the worker round by round."""
    file = folder / "unfork.yaml"
    jobs = [{"name": name} for name in JOBS]
    document = {"database": {"raw_url": dsn}, "chains": [{"name": "live"}], "jobs": jobs}
    file.write_text(json.dumps(document))
    loaded = load.load(file, env={})
    chain, where = loaded.config.chains[0], wiring.Urls(raw=dsn, app=dsn)
    await wiring.migrate(loaded.config, where, chain)
    tree = Tree(Knobs(density=density, block_time_s=DAY_S // BLOCKS, finality_lag=None))
    scope = Scope()
    heard = Rounds()
    stopping = asyncio.Event()
    async with (
        wiring.store(loaded.config, where, chain) as store,
        sparks.computing(loaded) as computing,
        wiring_jobs.worker(computing, where, chain, listener=heard.heard) as worker,
    ):
        await store.open()
        await store.claim(chain_id=1337, start=0)
        await store.commit(batch([tree.head], scope))
        heard.begin(is_told=False)
        working = asyncio.create_task(worker.work(stopping))
        await heard.end(working)
        for number in range(warm + rounds):
            made = batch(tree.extend(BLOCKS).added, scope)
            if number == warm:
                heard.forget()
            is_told = number % 2 == 1
            await store.commit(made)
            heard.begin(is_told=is_told)
            if is_told:
                worker.nudge()
            await heard.end(working)
            harness.tell(f"round {number + 1} of {warm + rounds}")
        mb = memory_mb()
        stopping.set()
        await working
    happened = [one for one, _ in heard.runs]
    failed = [one for one in happened if one.outcome != "committed"]
    assert not failed, failed
    spent = {job: [1000 * one.seconds for one in happened if one.job == job] for job in JOBS}
    measures = [
        Measure(
            name=f"{job}: {BLOCKS} blocks, claim to commit",
            value=median(found),
            unit="ms",
            at_most=MS_MAX,
        )
        for job, found in spent.items()
    ]
    for is_told, who in ((True, "told of blocks"), (False, "that looks for blocks")):
        waits = heard.starts_ms(is_told=is_told)
        measures += [
            Measure(
                name=f"a worker {who}, commit to claim, {which}",
                value=value,
                unit="ms",
                at_most=START_MS_MAX,
            )
            for which, value in (("median", median(waits)), ("slowest", max(waits)))
        ]
    measures.append(Measure(name="worker and Spark", value=mb, unit="MB", at_most=MB_MAX))
    rows = sum(one.rows for one in happened)
    return Report(measures=measures, details={"runs": len(happened), "rows written": rows})


def run(options: argparse.Namespace) -> Report:
    """Runs the benchmark."""
    rounds, warm, density = (2, 0, 3) if options.quick else (16, 16, 40)
    with servers.postgres() as (folder, dsn):
        return asyncio.run(measured(rounds, warm, density, folder, dsn))


def main() -> int:
    """Runs the benchmark; 1 where a limit is missed."""
    return harness.main(__doc__, run)


if __name__ == "__main__":
    sys.exit(main())
