"""Measures all built-in jobs on one new block as dense as mainnet's, first claim to last commit.

A block has 200 transactions, 400 logs (half of them ERC-20 transfers, the others approvals,
ERC-721, ERC-1155 with batches, and events of other kinds) and 300 traces within them. One after
another such blocks are put into the raw store; a real worker, with its own loops at its own pace,
follows, plans and runs every built-in job on a Spark that is warm, several at once. What is told is
the median over the blocks, and that of each job. `tokens` is left out, which waits for a node. The
day that a block lies in has as many blocks as were made so far: `daily_summary` reads it whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness, servers, sparks
from benchmarks.harness import Measure, Report
from benchmarks.rows import Density, Maker
from unfork import wiring, wiring_jobs
from unfork.chain.block import BlockRef
from unfork.config import load
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.datasets.dataset import Dataset
from unfork.jobs.builtin import BUILTINS
from unfork.jobs.transforms import topics
from unfork.jobs.worker import Happened

#: Milliseconds that all jobs together may take.
MS_MAX = 2000.0
JOBS = tuple(name for name, builtin in BUILTINS.items() if not builtin.reads)

MAINNET = Density(transactions=200, logs=400, traces=300)
#: Seconds that one block may take.
PATIENCE_S = 120.0
#: Accounts and contracts that blocks are about.
ADDRESSES = 5_000


class Blocks:
    """A seeded chain of busy blocks."""

    def __init__(self, density: Density) -> None:
        self._density = density
        self._maker = Maker(density)
        self._random = np.random.default_rng(7)
        self._known = [self._random.bytes(20) for _ in range(ADDRESSES)]
        self._last: BlockRef | None = None

    def next(self) -> Batch:
        """One block more."""
        number = 0 if self._last is None else self._last.number + 1
        made = self._maker.batch(number, 1, self._last)
        self._last = made.last
        hashes = made.tables["transactions"]["hash"].to_pylist()
        own = {
            "transactions": self._transactions(),
            "logs": self._logs(hashes),
            "traces": self._traces(hashes),
        }
        tables = dict(made.tables)
        for name, columns in own.items():
            tables[name] = _replaced(evm.BY_NAME[name], tables[name], columns)
        return replace(made, tables=tables)

    def _transactions(self) -> dict[str, Sequence[Any]]:
        count = self._density.transactions
        return {
            "from_address": self._addresses(count),
            "to_address": self._addresses(count),
            "contract_address": [None] * count,
            "input": [self._random.bytes(68) for _ in range(count)],
            "status": [int(one > 0.02) for one in self._random.random(count)],
            "gas_used": self._random.integers(21_000, 300_000, count).tolist(),
            "effective_gas_price": [_word(30 * 10**9)] * count,
        }

    def _logs(self, hashes: Sequence[bytes]) -> dict[str, Sequence[Any]]:
        count = self._density.logs
        index = np.sort(self._random.integers(0, len(hashes), count)).tolist()
        made = [self._log() for _ in range(count)]
        return {
            "transaction_index": index,
            "transaction_hash": [hashes[one] for one in index],
            "address": self._addresses(count),
            **{f"topic{place}": [log[place] for log in made] for place in range(4)},
            "data": [log[4] for log in made],
        }

    def _log(self) -> tuple[bytes | None, ...]:
        one, two, three = (bytes(12) + address for address in self._addresses(3))
        amount = bytes(24) + self._random.bytes(8)
        match self._random.random():
            case dice if dice < 0.55:
                return topics.TRANSFER, one, two, None, amount
            case dice if dice < 0.65:
                return topics.APPROVAL, one, two, None, amount
            case dice if dice < 0.70:
                return topics.TRANSFER, one, two, amount, b""
            case dice if dice < 0.73:
                return topics.TRANSFER_SINGLE, three, one, two, amount + amount
            case dice if dice < 0.74:
                array = _word(2) + amount + amount
                return topics.TRANSFER_BATCH, three, one, two, _word(64) + _word(160) + 2 * array
        return self._random.bytes(32), one, None, None, amount + amount

    def _traces(self, hashes: Sequence[bytes]) -> dict[str, Sequence[Any]]:
        count = self._density.traces
        index = np.sort(self._random.integers(0, len(hashes), count)).tolist()
        moves = self._random.random(count) < 0.4
        return {
            "transaction_index": index,
            "transaction_hash": [hashes[one] for one in index],
            "trace_address": ["0"] * count,
            "trace_type": ["call"] * count,
            "call_type": ["call"] * count,
            "reward_type": [None] * count,
            "from_address": self._addresses(count),
            "to_address": self._addresses(count),
            "value": [_word(10**16 if one else 0) for one in moves],
            "error": [None] * count,
            "status": [1] * count,
        }

    def _addresses(self, count: int) -> list[bytes]:
        return [self._known[one] for one in self._random.integers(0, ADDRESSES, count)]


def _word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _replaced(dataset: Dataset, table: pa.Table, own: Mapping[str, Sequence[Any]]) -> pa.Table:
    columns = [
        pa.array(own[field.name], field.type) if field.name in own else table[field.name]
        for field in dataset.schema
    ]
    return pa.Table.from_arrays(columns, schema=dataset.schema)


async def measured(rounds: int, warm: int, density: Density, folder: Path, dsn: str) -> Report:
    """Runs the worker block by block."""
    file = folder / "unfork.yaml"
    document = {
        "database": {"raw_url": dsn},
        "chains": [{"name": "busy", "traces": True}],
        "jobs": [{"name": name} for name in JOBS],
    }
    file.write_text(json.dumps(document))
    loaded = load.load(file, env={})
    chain, where = loaded.config.chains[0], wiring.Urls(raw=dsn, app=dsn)
    await wiring.migrate(loaded.config, where, chain)
    blocks = Blocks(density)
    ended: list[tuple[float, Happened]] = []
    is_done, stopping = asyncio.Event(), asyncio.Event()

    def heard(happened: Happened) -> None:
        ended.append((time.monotonic(), happened))
        if {one.job for _, one in ended} == set(JOBS):
            is_done.set()

    totals: list[float] = []
    spent: dict[str, list[float]] = {name: [] for name in JOBS}
    rows = 0
    async with (
        wiring.store(loaded.config, where, chain) as store,
        sparks.computing(loaded) as computing,
        wiring_jobs.worker(computing, where, chain, listener=heard) as worker,
    ):
        await store.open()
        await store.claim(chain_id=1, start=0)
        working = asyncio.create_task(worker.work(stopping))
        for number in range(warm + rounds):
            ended.clear()
            is_done.clear()
            await store.commit(blocks.next())
            worker.nudge()
            async with asyncio.timeout(PATIENCE_S):
                await is_done.wait()
            assert all(one.outcome == "committed" for _, one in ended), ended
            took = max(at for at, _ in ended) - min(at - one.seconds for at, one in ended)
            harness.tell(f"block {number + 1} of {warm + rounds}: {took * 1000:.0f} ms")
            if number < warm:
                continue
            totals.append(took)
            rows += sum(one.rows for _, one in ended)
            for _, one in ended:
                spent[one.job].append(one.seconds)
        stopping.set()
        await working
    return Report(
        measures=[
            Measure(
                name="all built-in jobs on a new block, claim to commit",
                value=1000 * median(totals),
                unit="ms",
                at_most=MS_MAX,
            ),
            *(
                Measure(name=f"{name}, among the others", value=1000 * median(found), unit="ms")
                for name, found in spent.items()
            ),
        ],
        details={"blocks": rounds, "rows written a block": rows // rounds},
    )


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--blocks", type=int, default=30, help="blocks, after forty to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Runs the benchmark."""
    small = Density(transactions=5, logs=10, traces=5)
    rounds, warm, density = (1, 1, small) if chosen.quick else (chosen.blocks, 40, MAINNET)
    with servers.postgres() as (folder, dsn):
        return asyncio.run(measured(rounds, warm, density, folder, dsn))


def main() -> int:
    """Runs the benchmark; 1 where the limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
