"""Measures a commit: the whole path of a batch into the store, against bare COPYs of the same rows.

- ours: `HotStore.commit`: checks, partitions, encoding, the locked chain row, COPY of all tables
  and lookups, spans, position, floor, journal, COMMIT.
- bare COPY: the same rows, lookup rows included, encoded by the same encoder and copied in one
  transaction into tables of the same keys, indexes and partitions in another schema; no checks, no
  chain row, no journal.
- psycopg's COPY: the same again, row by row through psycopg's own binary COPY, from Python tuples
  that were made beforehand (their making is not counted).

The three take turns batch by batch, so that a busy machine slows all alike; medians are compared.
The server is the embedded one with its default settings, fsync on.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any, Protocol

import psycopg
import pyarrow as pa
from psycopg.types.json import Jsonb

from benchmarks import harness, servers
from benchmarks.harness import Measure, Report
from benchmarks.rows import Density, Maker
from unfork.config import tree
from unfork.database import copy
from unfork.database.database import Database
from unfork.database.queries import Queries, Query
from unfork.database.session import Session
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.hot import lookups, schema
from unfork.hot.partitions import Partitions
from unfork.hot.payloads import PayloadStore
from unfork.hot.store import HotStore

#: Ours must reach this share of the speed of a bare COPY.
BARE_SHARE_MIN = 0.6


class Contender(Protocol):
    """One way of storing a batch."""

    async def prepare(self, batch: Batch) -> None:
        """Whatever is not measured."""
        ...

    async def commit(self) -> None:
        """What is measured."""
        ...


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--blocks", type=int, default=16, help="blocks in one batch")
    parser.add_argument("--repeats", type=int, default=15, help="batches, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures the contenders in turns."""
    blocks, repeats = (2, 2) if chosen.quick else (chosen.blocks, chosen.repeats)
    with servers.postgres() as (folder, dsn):
        return asyncio.run(measure(dsn, folder, blocks, repeats))


async def measure(dsn: str, folder: Path, blocks: int, repeats: int) -> Report:
    """The report for batches of so many blocks."""
    pool = tree.Pool(max_open_conns=8, max_idle_conns=0)
    database = Database(dsn, pool=pool, statement_timeout_s=600)
    contenders: dict[str, Contender] = {
        "ours": await Ours.made(database, folder),
        "bare": await Bare.made(database),
        "psycopg": await RowByRow.made(database, dsn),
    }
    maker = Maker(Density(transactions=200, logs=400, traces=300, withdrawals=16))
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    parent, rows, size = None, 0, 0
    for turn in range(repeats + 1):
        batch = maker.batch(turn * blocks, blocks, parent)
        parent, size = batch.last, batch.bytes
        rows = sum(table.num_rows for table, _ in tables(batch).values())
        for name, contender in contenders.items():
            await contender.prepare(batch)
            began = time.perf_counter()
            await contender.commit()
            if turn:  # The first one makes the partitions and warms up.
                spent[name].append(time.perf_counter() - began)
    seconds = {name: median(values) for name, values in spent.items()}
    return Report(
        measures=[
            Measure(
                name="commit, share of the speed of a bare COPY",
                value=seconds["bare"] / seconds["ours"],
                unit="x",
                at_least=BARE_SHARE_MIN,
            ),
            Measure(
                name="commit, against psycopg's COPY row by row",
                value=seconds["psycopg"] / seconds["ours"],
                unit="x",
            ),
            Measure(name="commit", value=rows / seconds["ours"], unit="rows/s"),
        ],
        details={
            "rows a batch, lookups included": rows,
            "bytes a batch, as Arrow counts them": size,
            **{f"{name}, median ms": round(each * 1000, 1) for name, each in seconds.items()},
        },
    )


class Ours:
    """The store itself."""

    def __init__(self, store: HotStore) -> None:
        self._store = store
        self._batch: Batch | None = None

    @classmethod
    async def made(cls, database: Database, folder: Path) -> Ours:
        await migrated(database, "ours")
        chain = tree.Chain(name="ours", traces=True)
        store = HotStore(chain, database, PayloadStore(str(folder / "payloads")))
        await store.open()
        await store.claim(chain_id=1, start=0)
        return cls(store)

    async def prepare(self, batch: Batch) -> None:
        self._batch = batch

    async def commit(self) -> None:
        assert self._batch is not None
        await self._store.commit(self._batch)


class Bare:
    """One transaction of COPYs, with our encoder and nothing else."""

    def __init__(self, session: Session, queries: Queries, partitions: Partitions) -> None:
        self._session = session
        self._queries = queries
        self._partitions = partitions
        self._tables: dict[str, tuple[pa.Table, list[str]]] = {}

    @classmethod
    async def made(cls, database: Database) -> Bare:
        queries, partitions = await migrated(database, "bare")
        return cls(await database.connect(), queries, partitions)

    async def prepare(self, batch: Batch) -> None:
        await self._partitions.ensure(self._session, batch.span, batch.scope.datasets)
        self._tables = tables(batch)

    async def commit(self) -> None:
        async with self._session.transaction():
            for name, (table, types) in self._tables.items():
                columns = tuple(table.column_names)
                query = self._queries.of("commit_rows", name, table=name, columns=columns)
                await self._session.copy(query, copy.encode(table, types))


class RowByRow:
    """One transaction of COPYs, row by row through psycopg."""

    def __init__(
        self,
        session: Session,
        queries: Queries,
        partitions: Partitions,
        connection: psycopg.AsyncConnection[Any],
    ) -> None:
        self._bare = Bare(session, queries, partitions)
        self._queries = queries
        self._connection = connection
        self._rows: dict[str, tuple[Query, list[str], list[tuple[Any, ...]]]] = {}

    @classmethod
    async def made(cls, database: Database, dsn: str) -> RowByRow:
        queries, partitions = await migrated(database, "rowbyrow")
        connection = await psycopg.AsyncConnection.connect(dsn)
        return cls(await database.connect(), queries, partitions, connection)

    async def prepare(self, batch: Batch) -> None:
        await self._bare.prepare(batch)
        self._rows = {}
        for name, (table, types) in tables(batch).items():
            columns = tuple(table.column_names)
            query = self._queries.of("commit_rows", name, table=name, columns=columns)
            values = [
                [plain(kind, value) for value in column.to_pylist()]
                for kind, column in zip(types, table.columns, strict=True)
            ]
            rows = list(zip(*values, strict=True))
            self._rows[name] = (query, [kind.removesuffix("(78,0)") for kind in types], rows)

    async def commit(self) -> None:
        async with self._connection.transaction():
            for query, types, rows in self._rows.values():
                async with self._connection.cursor().copy(query.text) as sink:
                    sink.set_types(types)
                    for row in rows:
                        await sink.write_row(row)


def tables(batch: Batch) -> dict[str, tuple[pa.Table, list[str]]]:
    """Every table and lookup of a batch with its Postgres types, as the store sends them."""
    found: dict[str, tuple[pa.Table, list[str]]] = {}
    for name, table in batch.tables.items():
        types = [column.kind.value for column in evm.BY_NAME[name].columns]
        for lookup in lookups.LOOKUPS:
            if lookup.dataset == name:
                found[lookup.table] = (lookup.rows(table), lookup.types)
        if name == "blocks":
            table = table.append_column("journal_seq", table["number"])
            types.append("bigint")
        found[name] = (table, types)
    return found


def plain(kind: str, value: Any) -> Any:
    """A value as psycopg takes it."""
    if value is None:
        return None
    if kind == "numeric(78,0)":
        return int.from_bytes(value, "big")
    return Jsonb(value) if kind == "jsonb" else value


async def migrated(database: Database, chain: str) -> tuple[Queries, Partitions]:
    """Makes the schema of a chain; its queries and partitions."""
    async with database.session() as session:
        await schema.migrations(chain).apply(session)
    queries = schema.bound(chain)
    name = schema.name(chain)
    return queries, Partitions(schema=name, datasets=evm.DATASETS, sizes={}, queries=queries)


def main() -> int:
    """Runs the benchmark; 1 where the limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
