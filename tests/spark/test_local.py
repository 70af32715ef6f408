"""Goal: of a lookup the driver takes what the driving rows ask for, up to the run's last block.

Method: a toy dataset is committed for real and read as a run at the head reads it, without Spark;
Postgres tells by which way it would go.
"""

from __future__ import annotations

import pyarrow as pa

from tests import toy
from tests.journals import Journal
from tests.sparks import Near
from tests.workers import Worker, committed
from unfork.datasets.dataset import Column, Kind
from unfork.jobs.spark import local
from unfork.jobs.spark.local import Read
from unfork.jobs.spark.options import Request


async def test_only_rows_that_are_asked_for_leave_the_database(near: Near) -> None:
    journal = Journal().finalize(6).commit("-".join(f"a{n}" for n in range(1, 31)))
    worker = Worker(near.place, journal)
    (build,) = await worker.register(toy.MOVES)
    await worker.follow()
    committed(await worker.run(toy.MOVES, journal.chain))
    request = Request(
        dataset="moves",
        chain=near.place.name,
        config=str(near.file),
        last=20,
        at=journal.at(20),
        columns=("receiver", "block_number"),
        tasks=1,
        floor=6,
        epoch=1,
    )
    every = toy.expected(toy.MOVES, journal.chain[:20])
    for wanted in ([toy.ACCOUNTS[0]], toy.ACCOUNTS[1:3], [], [b"%d" % n for n in range(2500)]):
        # One value comes again, one is missing: neither asks for anything more.
        senders = pa.table({"sender": pa.array([*wanted, *wanted[:1], None], pa.binary())})
        driving = Read((Column("sender", Kind.BYTES, nullable=True),), senders)
        found = local.looked_up(request, toy.LOOKUP, driving).table
        assert found.column_names == ["receiver", "block_number"]
        assert sorted(
            (row["block_number"], row["receiver"]) for row in found.to_pylist()
        ) == sorted(
            (row["block_number"], row["receiver"]) for row in every if row["receiver"] in wanted
        )
    indexes = await near.place.app_rows(
        f"SELECT indexdef FROM pg_indexes WHERE tablename = '{build.table}'"
        f" AND schemaname = '{near.place.app}'"
    )
    assert any("(receiver)" in row["indexdef"] for row in indexes)
