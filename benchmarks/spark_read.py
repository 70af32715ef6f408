"""Measures reading the hot store with Spark, against bare ADBC over as many connections.

- ours: `format("unfork")`, all columns, every row handed to Spark and dropped there.
- bare ADBC: as many threads, each with a connection that fetches its share of the same columns as
  Arrow batches and drops them; 256-bit numbers stay the text that the driver makes of them.

Two datasets: logs, whose columns are bytes and small numbers, and transactions, many of whose
columns are 256-bit numbers. The contenders take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from benchmarks import harness, servers, sparks
from benchmarks.harness import Measure, Report
from benchmarks.rows import Density, Maker
from unfork.chain.span import Span, split
from unfork.config import tree
from unfork.database.database import Database
from unfork.database.queries import quote
from unfork.datasets import evm
from unfork.hot import schema
from unfork.hot.payloads import PayloadStore
from unfork.hot.store import HotStore

#: Ours must reach this share of the speed of bare ADBC.
ADBC_SHARE_MIN = 0.6
#: What is read.
DATASETS = ("logs", "transactions")
#: Blocks in one commit while the store is filled.
COMMIT_BLOCKS = 50


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--blocks", type=int, default=4000, help="blocks of 200 logs each")
    parser.add_argument("--repeats", type=int, default=5, help="turns, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures each dataset."""
    blocks, repeats = (20, 1) if chosen.quick else (chosen.blocks, chosen.repeats)
    with servers.postgres() as (folder, dsn):
        asyncio.run(fill(dsn, folder, blocks))
        file = sparks.written(folder, dsn)
        with sparks.opened(folder) as spark:
            seconds = {
                name: harness.turns(
                    {"ours": ours(spark, file, name), "adbc": adbc(dsn, name, blocks)},
                    repeats=repeats,
                )
                for name in DATASETS
            }
    rows = {"logs": 200 * blocks, "transactions": 100 * blocks}
    return Report(
        measures=[
            *(
                Measure(
                    name=f"reading {name}, share of the speed of bare ADBC",
                    value=spent["adbc"] / spent["ours"],
                    unit="x",
                    at_least=ADBC_SHARE_MIN,
                )
                for name, spent in seconds.items()
            ),
            *(
                Measure(name=f"reading {name}", value=rows[name] / spent["ours"], unit="rows/s")
                for name, spent in seconds.items()
            ),
        ],
        details={
            f"{name}, {contender}, median ms": round(each * 1000)
            for name, spent in seconds.items()
            for contender, each in spent.items()
        },
    )


async def fill(dsn: str, folder: Path, blocks: int) -> None:
    """Makes the store and commits blocks to it."""
    pool = tree.Pool(max_open_conns=4, max_idle_conns=0)
    database = Database(dsn, pool=pool, statement_timeout_s=600)
    async with database.session() as session:
        await schema.migrations(sparks.CHAIN).apply(session)
    payloads = PayloadStore(str(folder / "payloads" / sparks.CHAIN))
    store = HotStore(tree.Chain(name=sparks.CHAIN), database, payloads)
    await store.open()
    await store.claim(chain_id=1, start=0)
    maker, parent = Maker(Density(transactions=100, logs=200)), None
    for first in range(0, blocks, COMMIT_BLOCKS):
        batch = maker.batch(first, min(COMMIT_BLOCKS, blocks - first), parent)
        await store.commit(batch)
        parent = batch.last
    await store.close()
    await database.close()


def ours(spark: SparkSession, file: Path, name: str) -> Callable[[], None]:
    """Reads everything through the data source."""
    given = {"dataset": name, "config": str(file), "tasks": str(sparks.CORES)}

    def read() -> None:
        sparks.drain(spark.read.format("unfork").options(**given).load())

    return read


def adbc(dsn: str, name: str, blocks: int) -> Callable[[], None]:
    """Reads everything with nothing but the driver."""
    dataset = evm.BY_NAME[name]
    columns = ", ".join(quote(column.name) for column in dataset.columns)
    table = f"{quote(schema.name(sparks.CHAIN))}.{quote(name)}"
    shares = list(split(Span(0, blocks - 1), -(-blocks // sparks.CORES)))

    def share(span: Span) -> int:
        query = (
            f"SELECT {columns} FROM {table} "
            f"WHERE {quote(dataset.number_column)} BETWEEN {span.first} AND {span.last}"
        )
        with dbapi.connect(dsn) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            return sum(batch.num_rows for batch in cursor.fetch_record_batch())

    def read() -> None:
        with ThreadPoolExecutor(len(shares)) as threads:
            assert sum(threads.map(share, shares)) > 0

    return read


def main() -> int:
    """Prints the report; exits with 1 where a limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
