"""Measures an unwind: 64 blocks of 200 transactions and 400 logs, taken off the chain.

- ours: `HotStore.unwind`: the rows move to the orphaned tables set by set, lookups, spans, position
  and journal go with them, one transaction.
- row by row: the same rows, each moved by a statement of its own, prepared, found by its key, and
  each lookup row removed by one more; one transaction, without spans and journal.
- ours in a store that holds ten times the rows: an unwind costs what it touches (I10).

After each turn the blocks are committed again and the tables vacuumed, which is not counted. The
contenders take turns and medians are compared. The server is the embedded one with its default
settings, fsync on. Each turn begins with a checkpoint: the first change of a page after one writes
the whole page, which costs more than the unwind itself and would fall on whoever comes first.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from benchmarks import harness, servers
from benchmarks.harness import Measure, Report
from benchmarks.rows import Density, Maker
from unfork.chain.block import BlockRef
from unfork.config import tree
from unfork.database.database import Database
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.hot import schema
from unfork.hot.payloads import PayloadStore
from unfork.hot.store import HotStore

#: Ours must be this many times as fast as going row by row.
ROW_BY_ROW_FACTOR_MIN = 10.0
#: With ten times the rows, ours may take this many times as long.
TEN_TIMES_FACTOR_MAX = 1.3

DEPTH = 64

#: Turns of the contender that goes row by row: each takes long, and its lead is wide.
ROW_BY_ROW_REPEATS = 3


class Chain:
    """A store that holds some blocks, the last of which come and go."""

    def __init__(self, store: HotStore, dsn: str, name: str, maker: Maker) -> None:
        self._store = store
        self._dsn = dsn
        self._name = name
        self._maker = maker
        self._tail: Batch | None = None
        self._ancestor: BlockRef | None = None

    @classmethod
    async def made(
        cls, database: Database, dsn: str, folder: Path, name: str, below: int, depth: int
    ) -> Chain:
        """A chain of `below` blocks under the `depth` that come and go."""
        async with database.session() as session:
            await schema.migrations(name).apply(session)
        store = HotStore(tree.Chain(name=name), database, PayloadStore(str(folder / name)))
        await store.open()
        await store.claim(chain_id=1, start=0)
        chain = cls(store, dsn, name, Maker(Density(transactions=200, logs=400)))
        parent = None
        for first in range(0, below, 64):
            batch = chain._maker.batch(first, min(64, below - first), parent)
            await store.commit(batch)
            parent = batch.last
        chain._ancestor = parent
        chain._tail = chain._maker.batch(below, depth, parent)
        await chain.restore()
        return chain

    async def unwind(self) -> float:
        """Seconds that the store takes."""
        self._checkpoint()
        began = time.perf_counter()
        await self._store.unwind(self._ancestor)
        return time.perf_counter() - began

    async def restore(self) -> None:
        """Puts the blocks back, and the tables into the shape they had."""
        assert self._tail is not None
        await self._store.commit(self._tail)
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            raw = schema.name(self._name)
            for dataset in evm.DATASETS:
                connection.execute(f"TRUNCATE {raw}.orphaned_{dataset.name}")
            for table in ("blocks", "transactions", "logs", "tx_lookup", "block_lookup"):
                connection.execute(f"VACUUM (ANALYZE) {raw}.{table}")

    def row_by_row(self) -> float:
        """Seconds that going row by row takes; undone at the end instead of committed."""
        assert self._tail is not None
        statements = self._statements(self._tail)
        self._checkpoint()
        with psycopg.connect(self._dsn, prepare_threshold=0) as connection:
            began = time.perf_counter()
            for text, parameters in statements:
                connection.execute(text, parameters)
            took_s = time.perf_counter() - began
            connection.rollback()
        return took_s

    def _checkpoint(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute("CHECKPOINT")

    def _statements(self, batch: Batch) -> list[tuple[Any, tuple[Any, ...]]]:
        """One statement for every row, the youngest first."""
        raw = schema.name(self._name)
        found: list[tuple[Any, tuple[Any, ...]]] = []
        for name in ("logs", "transactions", "blocks"):
            dataset = evm.BY_NAME[name]
            columns = ", ".join(f'"{column}"' for column in schema.columns(dataset))
            where = " AND ".join(f"{column} = %s" for column in dataset.key)
            text = (
                f"WITH moved AS (DELETE FROM {raw}.{name} WHERE {where} RETURNING {columns}) "
                f"INSERT INTO {raw}.orphaned_{name} ({columns}, unwind_seq) "
                f"SELECT {columns}, 0 FROM moved"
            )
            keys = batch.tables[name].select(list(dataset.key)).to_pylist()
            found += [(text, tuple(key.values())) for key in reversed(keys)]
        for name, lookup in (("transactions", "tx_lookup"), ("blocks", "block_lookup")):
            text = f"DELETE FROM {raw}.{lookup} WHERE id = %s"
            hashes = batch.tables[name]["hash"].to_pylist()
            found += [(text, (each,)) for each in reversed(hashes)]
        return found


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--below", type=int, default=192, help="blocks below the 64")
    parser.add_argument("--repeats", type=int, default=9, help="turns, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures the contenders in turns."""
    below, depth, repeats = chosen.below, DEPTH, chosen.repeats
    if chosen.quick:
        below, depth, repeats = 6, 2, 1
    with servers.postgres() as (folder, dsn):
        return asyncio.run(measure(dsn, folder, below, depth, repeats))


async def measure(dsn: str, folder: Path, below: int, depth: int, repeats: int) -> Report:
    """The report for a store with so many blocks below those that are unwound."""
    pool = tree.Pool(max_open_conns=4, max_idle_conns=0)
    database = Database(dsn, pool=pool, statement_timeout_s=600)
    harness.tell("filling the tables")
    small = await Chain.made(database, dsn, folder, "small", below, depth)
    # Ten times the rows in all, those that come and go included.
    large = await Chain.made(database, dsn, folder, "large", 10 * (below + depth) - depth, depth)
    spent: dict[str, list[float]] = {"ours": [], "ours, ten times the rows": [], "row by row": []}
    for turn in range(repeats + 1):
        harness.tell(f"turn {turn} of {repeats}")
        took = {}
        if turn <= ROW_BY_ROW_REPEATS:
            took["row by row"] = small.row_by_row()
        for name, chain in (("ours", small), ("ours, ten times the rows", large)):
            took[name] = await chain.unwind()
            await chain.restore()
        if turn:  # The first one warms up.
            for name, seconds in took.items():
                spent[name].append(seconds)
    medians = {name: median(values) for name, values in spent.items()}
    ours = spent["ours"]
    larger = median(t / o for t, o in zip(spent["ours, ten times the rows"], ours, strict=True))
    rows = depth * 601
    return Report(
        measures=[
            Measure(
                name=f"unwind of {depth} blocks, against row by row",
                value=medians["row by row"] / medians["ours"],
                unit="x",
                at_least=ROW_BY_ROW_FACTOR_MIN,
            ),
            Measure(
                name="unwind with ten times the rows held, times as long",
                value=medians["ours, ten times the rows"] / medians["ours"],
                unit="x",
                at_most=TEN_TIMES_FACTOR_MAX,
            ),
            Measure(name="unwind", value=rows / medians["ours"], unit="rows/s"),
        ],
        details={
            "rows unwound, lookups not counted": rows,
            **{f"{name}, median ms": round(each * 1000, 1) for name, each in medians.items()},
            "ten times the rows, median of the ratios of each turn": round(larger, 3),
        },
    )


def main() -> int:
    """Runs the benchmark; 1 where a limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
