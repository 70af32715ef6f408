"""Measures what Spark computes anew after a fork of 10 blocks, with a real worker.

Two chains hold logs of transfers, one of them ten times as many: 5 million. A worker computes
`token_transfers` of both, which is the full run. Then the last 10 blocks are replaced, again and
again, in turns; a turn is from the journal entry to the commit of the blocks computed anew: follow,
undo, plan, claim, read, compute, write. What is compared is the median.

- with ten times the rows a fork costs what it touches (I10);
- computing what the fork touched is many times as fast as computing everything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import harness, servers, sparks
from benchmarks.harness import Measure, Report
from benchmarks.rows import Density, Maker
from unfork import wiring, wiring_jobs
from unfork.chain.block import BlockRef, Head
from unfork.chain.span import Span
from unfork.config import load, tree
from unfork.config.load import Loaded
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.hot.store import HotStore
from unfork.jobs.transforms.topics import TRANSFER
from unfork.jobs.worker import Happened, Worker
from unfork.wiring_jobs import Computing

#: With ten times the rows, a fork may take this many times as long.
TEN_TIMES_FACTOR_MAX = 1.3
#: What a fork touched must be computed this many times as fast as everything.
FULL_FACTOR_MIN = 20.0

#: Turns that do not count: they warm Spark up.
WARM = 3

DEPTH = 10
ROWS_PER_BLOCK = 100
#: Blocks of one raw commit while the chains are filled.
BATCH = 500
#: Blocks that are not final.
ABOVE = 64


class Side:
    """One chain, and a worker that computes from it."""

    def __init__(
        self, blocks: int, store: HotStore, worker: Worker, happened: list[Happened]
    ) -> None:
        self.blocks = blocks
        self._happened = happened
        self._store = store
        self._worker = worker
        self._random = np.random.default_rng(blocks)
        self._maker = Maker(Density(transactions=0, logs=0), seed=blocks)

    async def fill(self) -> float:
        """Fills the raw tables; seconds that the worker takes to compute all of it."""
        await self._store.open()
        await self._store.claim(chain_id=1, start=0)
        parent = None
        for first in range(0, self.blocks, BATCH):
            batch = self._batch(first, min(BATCH, self.blocks - first), parent)
            await self._store.commit(batch)
            parent = batch.last
        return await self._computed(self.blocks)

    async def fork(self) -> float:
        """Replaces the last blocks; seconds until everything is computed anew."""
        above = self.blocks - DEPTH
        (ancestor,) = await self._store.refs(Span(above - 1, above - 1))
        await self._store.unwind(ancestor)
        await self._store.commit(self._batch(above, DEPTH, ancestor))
        return await self._computed(DEPTH)

    async def _computed(self, blocks: int) -> float:
        """Seconds that the worker takes to compute so many blocks, each of them once."""
        self._happened.clear()
        began = time.perf_counter()
        await self._settle()
        took_s = time.perf_counter() - began
        outcomes = {one.outcome for one in self._happened}
        rows = sum(one.rows for one in self._happened)
        assert (outcomes, rows) == ({"committed"}, blocks * ROWS_PER_BLOCK), self._happened
        return took_s

    async def _settle(self) -> None:
        """Lets the worker do what there is to do, to the end."""
        while True:
            moved = await self._worker.follow()
            again = await self._worker.dispatch()
            is_running = self._worker.is_running
            await self._worker.settled()
            if not (moved or again or is_running):
                return

    def _batch(self, first: int, blocks: int, parent: BlockRef | None) -> Batch:
        """Blocks of transfers; all but the last ones of the chain are final."""
        made = self._maker.batch(first, blocks, parent)
        final = [ref for ref in made.refs if ref.number <= self.blocks - 1 - ABOVE]
        head = Head(latest=made.last, finalized=final[-1] if final else None)
        return replace(made, tables={**made.tables, "logs": self._logs(made)}, head=head)

    def _logs(self, batch: Batch) -> pa.Table:
        count = len(batch.refs) * ROWS_PER_BLOCK
        block = np.repeat(np.arange(len(batch.refs)), ROWS_PER_BLOCK)
        place = np.tile(np.arange(ROWS_PER_BLOCK), len(batch.refs))
        moments = batch.tables["blocks"]["timestamp"].combine_chunks()
        hashes = pa.array([ref.hash for ref in batch.refs], pa.binary())
        nothing = pa.nulls(count, pa.binary())
        columns = {
            "block_number": pa.array(batch.refs[0].number + block),
            "block_hash": hashes.take(pa.array(block)),
            "block_timestamp": moments.take(pa.array(block)),
            "transaction_hash": self._bytes(count, 32),
            "transaction_index": pa.array(place),
            "log_index": pa.array(place),
            "address": self._bytes(count, 20),
            "topic0": pa.array([TRANSFER], pa.binary()).take(pa.array(np.zeros(count, np.int64))),
            "topic1": self._bytes(count, 20, width=32),
            "topic2": self._bytes(count, 20, width=32),
            "topic3": nothing,
            "data": self._bytes(count, 8, width=32),
        }
        return pa.Table.from_arrays(
            [
                columns[name].cast(evm.LOGS.schema.field(name).type)
                for name in evm.LOGS.schema.names
            ],
            schema=evm.LOGS.schema,
        )

    def _bytes(self, count: int, drawn: int, *, width: int | None = None) -> pa.Array:
        """Byte strings whose last bytes are random, the others zero."""
        width = width or drawn
        body: npt.NDArray[np.uint8] = np.zeros((count, width), np.uint8)
        body[:, width - drawn :] = self._random.integers(0, 256, (count, drawn), np.uint8)
        kind = pa.binary(width)
        data = pa.py_buffer(body.tobytes())
        fixed = pa.FixedSizeBinaryArray.from_buffers(kind, count, [None, data])
        return fixed.cast(pa.binary())


@asynccontextmanager
async def opened(
    computing: Computing, loaded: Loaded, chain: tree.Chain, dsn: str, blocks: int
) -> AsyncIterator[Side]:
    """A side whose tables are made and empty."""
    where = wiring.Urls(raw=dsn, app=dsn)
    await wiring.migrate(loaded.config, where, chain)
    happened: list[Happened] = []
    async with (
        wiring.store(loaded.config, where, chain) as store,
        wiring_jobs.worker(computing, where, chain, listener=happened.append) as worker,
    ):
        yield Side(blocks, store, worker, happened)


async def measure(dsn: str, folder: Path, blocks: int, repeats: int, warm: int) -> Report:
    """The report for a chain of so many blocks, and for one of ten times as many."""
    file = folder / "unfork.yaml"
    document = {
        "database": {"raw_url": dsn},
        "chains": [{"name": "small"}, {"name": "large"}],
        "jobs": [
            {
                "name": "token_transfers",
                "input_datasets": ["logs"],
                "output_dataset": "token_transfers",
                "incremental": {"mode": "cursor", "cursor_column": "block_number"},
                "update_strategy": "replace",
            }
        ],
    }
    file.write_text(json.dumps(document))
    loaded = load.load(file, env={})
    chains = loaded.config.chains
    async with (
        sparks.computing(loaded) as computing,
        opened(computing, loaded, chains[0], dsn, blocks) as small,
        opened(computing, loaded, chains[1], dsn, 10 * blocks) as large,
    ):
        harness.tell(f"filling {small.blocks} and {large.blocks} blocks")
        await small.fill()
        full = await large.fill()
        spent: dict[str, list[float]] = {"small": [], "large": []}
        for turn in range(repeats + warm):
            took = {"small": await small.fork(), "large": await large.fork()}
            harness.tell(f"turn {turn + 1} of {repeats + warm}")
            if turn >= warm:
                for name, took_s in took.items():
                    spent[name].append(took_s)
    seconds = {name: median(values) for name, values in spent.items()}
    rows = large.blocks * ROWS_PER_BLOCK
    return Report(
        measures=[
            Measure(
                name="a fork of 10 blocks, ten times the rows, times as long",
                value=seconds["large"] / seconds["small"],
                unit="x",
                at_most=TEN_TIMES_FACTOR_MAX,
            ),
            Measure(
                name="what a fork touched, against all of it",
                value=full / seconds["large"],
                unit="x",
                at_least=FULL_FACTOR_MIN,
            ),
            Measure(name="a full run", value=rows / full, unit="rows/s"),
        ],
        details={
            "rows, large": rows,
            "a full run, s": round(full, 1),
            **{f"a fork, {name}, median ms": round(each * 1000) for name, each in seconds.items()},
        },
    )


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--blocks", type=int, default=5000, help="blocks of the smaller chain")
    parser.add_argument("--repeats", type=int, default=15, help="turns, after three to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures both chains in turns."""
    blocks, repeats, warm = chosen.blocks, chosen.repeats, WARM
    if chosen.quick:
        blocks, repeats, warm = 20, 1, 0
    with servers.postgres() as (folder, dsn):
        return asyncio.run(measure(dsn, folder, blocks, repeats, warm))


def main() -> int:
    """Runs the benchmark; 1 where a limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
