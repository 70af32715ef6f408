"""Measures a live run: ten new blocks, from the claim of a lease to the commit of its rows.

A devnet's blocks are put into the raw store ten at a time; after each ten a real worker follows,
plans and runs the three built-in jobs on a Spark that is warm: transfers first, days beside them,
then balances out of the transfers. A day of this chain has ten blocks. What is told is the median
of each job, as a worker has it that does all of them, and the memory of the worker and its Spark.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks import harness
from benchmarks.harness import Measure, Report
from unfork import wiring, wiring_jobs
from unfork.chain.block import BlockRef, Head
from unfork.config import load
from unfork.database.embedded import Embedded
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.datasets.dataset import Kind
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.jobs.worker import Happened, Worker
from unfork.testing import oracle

#: Milliseconds that a live run may take.
MS_MAX = 700.0
#: Megabytes of worker and driver together.
MB_MAX = 2500.0

BLOCKS = 10
DAY_S = 86_400
JOBS = ("token_transfers", "token_balances", "daily_summary")


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


async def settle(worker: Worker) -> None:
    """Lets a worker do what there is to do, to the end."""
    while True:
        moved = await worker.follow()
        again = await worker.dispatch()
        is_running = worker.is_running
        await worker.settled()
        if not (moved or again or is_running):
            return


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
    file.write_text(json.dumps({"database": {"raw_url": dsn}, "chains": [{"name": "live"}]}))
    loaded = load.load(file, env={})
    chain, where = loaded.config.chains[0], wiring.Urls(raw=dsn, app=dsn)
    await wiring.migrate(loaded.config, where, chain)
    tree = Tree(Knobs(density=density, block_time_s=DAY_S // BLOCKS, finality_lag=None))
    scope = Scope()
    happened: list[Happened] = []
    async with (
        wiring.store(loaded.config, where, chain) as store,
        wiring_jobs.computing(loaded) as computing,
        wiring_jobs.worker(computing, where, chain, listener=happened.append) as worker,
    ):
        await store.open()
        await store.claim(chain_id=1337, start=0)
        await store.commit(batch([tree.head], scope))
        for number in range(warm + rounds):
            await store.commit(batch(tree.extend(BLOCKS).added, scope))
            if number == warm:
                happened.clear()
            await settle(worker)
            harness.tell(f"round {number + 1} of {warm + rounds}")
        mb = memory_mb()
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
    measures.append(Measure(name="worker and Spark", value=mb, unit="MB", at_most=MB_MAX))
    rows = sum(one.rows for one in happened)
    return Report(measures=measures, details={"runs": len(happened), "rows written": rows})


def run(options: argparse.Namespace) -> Report:
    """Runs the benchmark."""
    rounds, warm, density = (2, 1, 3) if options.quick else (15, 15, 40)
    with tempfile.TemporaryDirectory(prefix="unfork-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = Embedded(folder / "postgres")
        try:
            return asyncio.run(measured(rounds, warm, density, folder, server.start()))
        finally:
            server.stop()


def main() -> int:
    """Runs the benchmark; 1 where a limit is missed."""
    return harness.main(__doc__, run)


if __name__ == "__main__":
    sys.exit(main())
