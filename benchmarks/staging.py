"""Measures the staging of a large run from Spark's tasks, against bare COPYs of the same rows.

- ours: transfers computed by Spark from logs in Parquet, each task sending its rows to the place of
  the run, all tasks done.
- bare COPY: the same transfers, held in memory as Arrow, encoded by the same encoder and copied by
  as many threads over as many connections into a table of the same columns.

Both tables are unlogged and without indexes, as staging is, and emptied between the turns; that is
not counted. The contenders take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import harness, servers, sparks, transfers
from benchmarks.harness import Measure, Report
from unfork.app import rows, schema, staging
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation, Generations
from unfork.config import tree
from unfork.database import copy
from unfork.database.database import Database
from unfork.database.queries import quote
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import Mode, Strategy
from unfork.jobs.spark import sink
from unfork.jobs.transforms import evm

#: Ours must reach this share of the speed of bare COPYs.
COPY_SHARE_MIN = 0.5
#: The tokens of two runs: ours, and that of the bare COPYs.
OURS, BARE = 1, 2

TRANSFERS = DerivedDataset(
    name="token_transfers",
    job="token_transfers",
    inputs=("logs",),
    mode=Mode.CURSOR,
    strategy=Strategy.REPLACE,
    columns=(
        Column("block_number", Kind.INT),
        Column("block_hash", Kind.BYTES),
        Column("block_timestamp", Kind.TIME),
        Column("transaction_hash", Kind.BYTES),
        Column("transaction_index", Kind.INT),
        Column("log_index", Kind.INT),
        Column("batch_ordinal", Kind.INT),
        Column("standard", Kind.TEXT),
        Column("token_address", Kind.BYTES),
        Column("from_address", Kind.BYTES),
        Column("to_address", Kind.BYTES),
        Column("token_id", Kind.U256, nullable=True),
        Column("amount", Kind.U256),
    ),
)


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--logs", type=int, default=1_000_000, help="logs, four fifths transfers")
    parser.add_argument("--repeats", type=int, default=5, help="turns, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures the contenders in turns."""
    logs, repeats = (2_000, 1) if chosen.quick else (chosen.logs, chosen.repeats)
    with servers.postgres() as (folder, dsn):
        asyncio.run(prepare(dsn))
        file = sparks.written(folder, dsn)
        transfers.write(folder / "logs", logs)
        with sparks.opened(folder) as spark:
            # As many partitions as cores, so that each side has as many connections.
            logs_frame = spark.read.parquet(str(folder / "logs")).coalesce(sparks.CORES)
            found = evm.token_transfers(logs_frame)
            tasks = found.select(F.spark_partition_id()).distinct().count()
            assert tasks == sparks.CORES, f"{tasks} tasks have something to send"
            table = found.toArrow()
            contenders = {"ours": ours(found, file), "bare": bare(dsn, table)}
            spent: dict[str, list[float]] = {name: [] for name in contenders}
            for turn in range(repeats + 1):
                for name, token in (("ours", OURS), ("bare", BARE)):
                    began = time.perf_counter()
                    contenders[name]()
                    if turn:  # The first one warms up.
                        spent[name].append(time.perf_counter() - began)
                    assert emptied(dsn, token) == table.num_rows
    seconds = {name: median(values) for name, values in spent.items()}
    return Report(
        measures=[
            Measure(
                name="staging, share of the speed of bare COPYs",
                value=seconds["bare"] / seconds["ours"],
                unit="x",
                at_least=COPY_SHARE_MIN,
            ),
            Measure(name="staging", value=table.num_rows / seconds["ours"], unit="rows/s"),
        ],
        details={
            "rows": table.num_rows,
            "connections": sparks.CORES,
            **{f"{name}, median ms": round(each * 1000) for name, each in seconds.items()},
        },
    )


async def prepare(dsn: str) -> None:
    """Makes the app side and the places of both runs."""
    pool = tree.Pool(max_open_conns=2, max_idle_conns=0)
    database = Database(dsn, pool=pool, statement_timeout_s=600)
    async with database.session() as session:
        await schema.migrations(sparks.CHAIN).apply(session)
        build: Generation = await Generations(sparks.CHAIN, database).register(
            TRANSFERS, config_hash="any", first=0
        )
        for token in (OURS, BARE):
            await staging.create(session, schema.bound(sparks.CHAIN), build, token)
    await database.close()


def ours(found: DataFrame, file: Path) -> Callable[[], None]:
    """Has Spark's tasks stage what they compute."""

    def stage() -> None:
        sink.stage(found, TRANSFERS, token=OURS, chain=sparks.CHAIN, config=str(file))

    return stage


def bare(dsn: str, table: pa.Table) -> Callable[[], None]:
    """Copies rows that are there already."""
    size = -(-table.num_rows // sparks.CORES)
    shares = [table.slice(number * size, size) for number in range(sparks.CORES)]
    query = staging.copy_query(schema.bound(sparks.CHAIN), TRANSFERS, BARE)

    def share(number: int) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            with connection.cursor().copy(query.text) as place:
                for piece in encoded(shares[number], number):
                    place.write(piece)

    def send() -> None:
        with ThreadPoolExecutor(len(shares)) as threads:
            list(threads.map(share, range(len(shares))))

    return send


def encoded(table: pa.Table, number: int) -> Iterator[bytes]:
    """Rows as they are staged."""
    fitting = rows.fit(TRANSFERS, table)
    for name in staging.EXTRA:
        fitting = fitting.append_column(name, pa.array([number] * table.num_rows))
    return copy.encode(fitting, staging.types(TRANSFERS))


def emptied(dsn: str, token: int) -> int:
    """Empties a place; returns how many rows there were."""
    place = f"{quote(schema.name(sparks.CHAIN))}.{quote(staging.name(token))}"
    with psycopg.connect(dsn, autocommit=True) as connection:
        row = connection.execute(f"SELECT count(*) FROM {place}").fetchone()
        assert row is not None
        connection.execute(f"TRUNCATE {place}")
        return int(row[0])


def main() -> int:
    """Prints the report; exits with 1 where the limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
