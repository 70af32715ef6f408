"""Measures the work after a fork of 10 blocks: undoing derived data, and writing it anew.

- undo: one step of the app side: the journal entry is applied, and with it the rows of a replace,
  the state of a merge and the partitions of a daily dataset are undone, one transaction.
- write: the commits of the runs that follow: 10 blocks of the first two, one day of the third.
- both once more where the tables hold ten times the rows: what a fork costs is what it touches
  (I10). Rows touched are counted by Postgres: written, removed, and read through an index or not.

What the runs compute is made up beforehand, so that only the database is measured. The two sides
take turns, each turn begins with a checkpoint, and medians are compared. The server is the embedded
one with its default settings, fsync on.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import sys
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from statistics import median

import numpy as np
import psycopg
import pyarrow as pa

from benchmarks import harness, servers
from benchmarks.harness import Measure, Report
from unfork.app import invalidations
from unfork.app import schema as app_schema
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation, Generations
from unfork.app.refs import Refs
from unfork.app.versions import PartitionRead
from unfork.chain.advance import Advance, Day
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.config import tree
from unfork.database.database import Database
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import ByDay, Mode, Rule, Strategy
from unfork.jobs.commit import Commits
from unfork.jobs.finished import Committed, Finished
from unfork.jobs.lease import Leases
from unfork.jobs.state import Kind as LeaseKind
from unfork.jobs.verdict import Anchor, AsRead

#: With ten times the rows, time and rows touched may be this many times as much.
TEN_TIMES_FACTOR_MAX = 1.3

DEPTH = 10
ROWS_PER_BLOCK = 20
BLOCKS_PER_DAY = 100
ROWS_PER_DAY = 200
#: Blocks above the floor.
ABOVE = 64
#: Blocks of one run while the tables are filled.
RANGE = 5000
START = date(2020, 1, 1)

PLACE = (Column("block_number", Kind.INT), Column("block_hash", Kind.BYTES))

TRANSFERS = DerivedDataset(
    name="transfers",
    job="transfers",
    inputs=("logs",),
    mode=Mode.CURSOR,
    strategy=Strategy.REPLACE,
    columns=(
        *PLACE,
        Column("log_index", Kind.INT),
        Column("sender", Kind.BYTES),
        Column("receiver", Kind.BYTES),
        Column("value", Kind.U256),
    ),
    key=("block_number", "log_index"),
    indexes=(("sender",), ("receiver",)),
)
BALANCES = DerivedDataset(
    name="balances",
    job="balances",
    inputs=("logs",),
    mode=Mode.CURSOR,
    strategy=Strategy.MERGE,
    columns=(*PLACE, Column("account", Kind.BYTES), Column("balance", Kind.SIGNED)),
    key=("account",),
    rules={"balance": Rule.ADD},
)
DAILY = DerivedDataset(
    name="daily",
    job="daily",
    inputs=("blocks",),
    mode=Mode.PARTITION,
    strategy=Strategy.REPLACE,
    columns=(Column("day", Kind.DATE), Column("account", Kind.BYTES), Column("total", Kind.INT)),
    key=("day", "account"),
    partitioning=ByDay(),
)


@dataclass
class Journal:
    """A raw journal in memory: a chain whose last blocks are replaced again and again."""

    blocks: list[BlockRef] = field(default_factory=list)
    seq: int = 0
    forked: int = 0
    #: What the next advance goes back to; None where it only goes forward.
    fallen: int | None = None

    def extend(self, blocks: int) -> None:
        """More blocks."""
        for number in range(len(self.blocks), len(self.blocks) + blocks):
            name = f"{self.forked} {number}".encode()
            self.blocks.append(BlockRef(number, hashlib.sha256(name).digest()))
        self.seq += 1

    def fork(self, depth: int) -> None:
        """Other blocks in place of the last ones."""
        self.forked += 1
        del self.blocks[-depth:]
        self.fallen = len(self.blocks)
        self.extend(depth)

    async def advance(
        self, *, after: int, position: BlockRef | None, blocks_max: int = 10_000
    ) -> Advance | None:
        """What the app side asks."""
        if after == self.seq:
            return None
        held = 0 if position is None else position.number + 1
        left = held if self.fallen is None else self.fallen
        floor = self.blocks[max(0, len(self.blocks) - 1 - ABOVE)]
        new = self.blocks[left:]
        return Advance(
            after=after,
            seq=self.seq,
            epoch=1,
            first=0,
            is_unwind=left < held,
            base=self.blocks[left - 1] if left else None,
            refs=tuple(ref for ref in new if ref.number >= floor.number),
            position=self.blocks[-1],
            floor=floor,
            days=tuple(day_of(n) for n in range(left // BLOCKS_PER_DAY, 1 + self.last_day)),
        )

    @property
    def last_day(self) -> int:
        """The place of the last day."""
        return (len(self.blocks) - 1) // BLOCKS_PER_DAY


def day_of(place: int) -> Day:
    """A day with its blocks."""
    first = place * BLOCKS_PER_DAY
    return Day(START + timedelta(days=place), first, first + BLOCKS_PER_DAY - 1)


class Side:
    """One app side with its derived data, and a worker of it."""

    def __init__(self, name: str, database: Database, dsn: str, blocks: int) -> None:
        self.name = name
        self.blocks = blocks
        self.journal = Journal()
        self._dsn = dsn
        self._database = database
        self._queries = app_schema.bound(name)
        self._refs = Refs(name, database, self.journal, blocks_max=10**9)
        self._generations = Generations(name, database)
        self._leases = Leases(name, database)
        self._commits = Commits(name, database)
        self._random = np.random.default_rng(blocks)
        # A table that is ten times as long has ten times the accounts; so many that the rows of a
        # fork lie on pages of their own in both, or the small side would save pages by chance.
        body = self._random.bytes(20 * blocks * ROWS_PER_BLOCK)
        self._accounts = [body[at : at + 20] for at in range(0, len(body), 20)]

    async def fill(self) -> None:
        """Makes the tables and fills them up to the head."""
        async with self._database.session() as session:
            await app_schema.migrations(self.name).apply(session)
        self.journal.extend(self.blocks)
        for dataset in (TRANSFERS, BALANCES, DAILY):
            await self._generations.register(dataset, config_hash="config", first=0)
        await self.undo()
        for first in range(0, self.blocks, RANGE):
            span = Span(first, min(first + RANGE, self.blocks) - 1)
            for dataset in (TRANSFERS, BALANCES):
                await self._run(dataset, span, LeaseKind.BACKFILL)
        await self._run(DAILY, Span(0, self.blocks - 1), LeaseKind.RECOMPUTE)
        self.tidy()

    async def undo(self) -> float:
        """Seconds that the app side takes to follow the chain."""
        began = time.perf_counter()
        assert await self._refs.step() is not None
        return time.perf_counter() - began

    async def write(self) -> float:
        """Seconds that the commits take after a fork; what they write is not counted."""
        top = Span(self.blocks - DEPTH, self.blocks - 1)
        day = day_of(self.journal.last_day)
        runs = [
            await self._finished(TRANSFERS, top, LeaseKind.LIVE),
            await self._finished(BALANCES, top, LeaseKind.LIVE),
            await self._finished(DAILY, Span(day.first, day.last), LeaseKind.RECOMPUTE),
        ]
        began = time.perf_counter()
        for run in runs:
            assert isinstance(await self._commits.commit(run), Committed)
        return time.perf_counter() - began

    def tidy(self) -> None:
        """Puts the tables into the shape they had, and what was written onto the disk."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            for table in ("transfers_g1", "balances_g1", "daily_g1", "history", "refs", "runs"):
                connection.execute(f"VACUUM (ANALYZE) {app_schema.name(self.name)}.{table}")
            connection.execute("CHECKPOINT")

    def touched(self) -> dict[str, int]:
        """Rows that were written and read in the tables of this side so far."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            # A connection tells what it touched when it ends, which takes it a moment.
            others = (
                "SELECT FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            while connection.execute(others).fetchall():
                time.sleep(0.01)
            row = connection.execute(
                "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del),"
                " sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))"
                " FROM pg_stat_all_tables WHERE schemaname = %s",
                [app_schema.name(self.name)],
            ).fetchone()
        assert row is not None
        return {"written": int(row[0]), "read": int(row[1])}

    def held(self) -> int:
        """Rows of the three tables."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            row = connection.execute(
                "SELECT sum(n_live_tup) FROM pg_stat_all_tables"
                " WHERE schemaname = %s AND relname LIKE '%%_g1'",
                [app_schema.name(self.name)],
            ).fetchone()
        assert row is not None
        return int(row[0])

    async def _run(self, dataset: DerivedDataset, span: Span, kind: LeaseKind) -> None:
        outcome = await self._commits.commit(await self._finished(dataset, span, kind))
        assert isinstance(outcome, Committed), outcome

    async def _finished(self, dataset: DerivedDataset, span: Span, kind: LeaseKind) -> Finished:
        """A run that has computed its rows."""
        build = await self._build(dataset)
        async with self._database.session() as session:
            open_ = await invalidations.unprocessed(session, self._queries)
        lease = await self._leases.claim(
            build, span, kind=kind, worker="worker", config_hash="config"
        )
        assert lease is not None
        state = await self._refs.state()
        assert state.floor is not None
        blocks = self.journal.blocks
        parent = blocks[span.first - 1].hash if span.first else None
        return Finished(
            build=build,
            lease=lease,
            anchor=Anchor(span=span, parent_hash=parent, last=blocks[span.last]),
            as_read=AsRead(epoch=state.epoch, floor=state.floor.number),
            rows=self._rows(dataset, span),
            partitions=self._partitions(span) if dataset is DAILY else (),
            config_hash="config",
            invalidations=tuple(one.id for one in open_ if one.generation_id == build.id),
            started_at=datetime.now(UTC),
        )

    async def _build(self, dataset: DerivedDataset) -> Generation:
        build = await self._generations.served(dataset.name)
        assert build is not None
        return build

    def _partitions(self, span: Span) -> tuple[PartitionRead, ...]:
        blocks = self.journal.blocks
        days = [day_of(n) for n in range(span.first // BLOCKS_PER_DAY, 1 + self.journal.last_day)]
        return tuple(
            PartitionRead(
                key=day.date.isoformat(),
                span=Span(day.first, day.last),
                parent_hash=blocks[day.first - 1].hash if day.first else None,
                last=blocks[day.last],
            )
            for day in days
        )

    def _rows(self, dataset: DerivedDataset, span: Span) -> pa.Table:
        """Rows of a span, drawn anew."""
        count = len(span) * ROWS_PER_BLOCK
        numbers = np.repeat(np.arange(span.first, span.last + 1), ROWS_PER_BLOCK)
        hashes = [self.journal.blocks[number].hash for number in numbers]
        accounts = self._random.integers(0, len(self._accounts), 2 * count)
        picked = [self._accounts[at] for at in accounts]
        if dataset is TRANSFERS:
            values = [int(v).to_bytes(32, "big") for v in self._random.integers(0, 2**62, count)]
            places = np.tile(np.arange(ROWS_PER_BLOCK), len(span))
            columns = [numbers, hashes, places, picked[:count], picked[count:], values]
        elif dataset is BALANCES:
            values = [
                int(v).to_bytes(40, "big", signed=True)
                for v in self._random.integers(-(2**62), 2**62, count)
            ]
            columns = [numbers, hashes, picked[:count], values]
        else:
            days = range(span.first // BLOCKS_PER_DAY, span.last // BLOCKS_PER_DAY + 1)
            some = self._accounts[:ROWS_PER_DAY]
            columns = [
                [START + timedelta(days=day) for day in days for _ in some],
                some * len(days),
                self._random.integers(0, 10**6, len(days) * len(some)),
            ]
        arrays = [
            pa.array(values, field.type)
            for values, field in zip(columns, dataset.schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=dataset.schema)


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--blocks", type=int, default=5000, help="blocks of the smaller side")
    parser.add_argument("--repeats", type=int, default=15, help="turns, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures both sides in turns."""
    blocks, repeats = (200, 1) if chosen.quick else (chosen.blocks, chosen.repeats)
    with servers.postgres() as (_, dsn):
        return asyncio.run(measure(dsn, blocks, repeats))


async def measure(dsn: str, blocks: int, repeats: int) -> Report:
    """The report for sides of so many blocks, and of ten times as many."""
    pool = tree.Pool(max_open_conns=4, max_idle_conns=4)
    database = Database(dsn, pool=pool, statement_timeout_s=600)
    sides = {"small": Side("small", database, dsn, blocks)}
    sides["large"] = Side("large", database, dsn, 10 * blocks)
    for side in sides.values():
        harness.tell(f"filling {side.blocks} blocks")
        await side.fill()
    spent: dict[str, list[float]] = {f"{name} {what}": [] for name in sides for what in PHASES}
    for turn in range(repeats + 1):
        for name, side in sides.items():
            side.journal.fork(DEPTH)
            took = {"undo": await side.undo(), "write": await side.write()}
            side.tidy()
            if turn:  # The first one warms up.
                for what, seconds in took.items():
                    spent[f"{name} {what}"].append(seconds)
    touched = {}
    for name, side in sides.items():
        await database.close()
        before = side.touched()
        side.journal.fork(DEPTH)
        await side.undo()
        await side.write()
        await database.close()
        touched[name] = {what: n - before[what] for what, n in side.touched().items()}
    return _report(sides, spent, touched)


PHASES = ("undo", "write")


def _report(
    sides: dict[str, Side], spent: dict[str, list[float]], touched: dict[str, dict[str, int]]
) -> Report:
    seconds = {name: median(values) for name, values in spent.items()}
    whole = {name: sum(seconds[f"{name} {what}"] for what in PHASES) for name in sides}
    names = {"undo": "undoing 10 blocks", "write": "writing them anew"}
    measures = [
        Measure(
            name=f"{names[what]}, ten times the rows, times as long",
            value=seconds[f"large {what}"] / seconds[f"small {what}"],
            unit="x",
            at_most=TEN_TIMES_FACTOR_MAX,
        )
        for what in PHASES
    ]
    measures += [
        Measure(
            name=f"rows {what} after a fork, ten times the rows, times as many",
            value=touched["large"][what] / touched["small"][what],
            unit="x",
            at_most=TEN_TIMES_FACTOR_MAX,
        )
        for what in ("written", "read")
    ]
    measures.append(
        Measure(name="a fork, undone and written", value=whole["small"] * 1000, unit="ms")
    )
    return Report(
        measures=measures,
        details={
            **{f"rows held, {name}": side.held() for name, side in sides.items()},
            **{f"rows touched, {name}": found for name, found in touched.items()},
            **{f"{name}, median ms": round(each * 1000, 1) for name, each in seconds.items()},
        },
    )


def main() -> int:
    """Runs the benchmark; 1 where a limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
