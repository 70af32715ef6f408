"""Goal: what jobs write is what a full recompute says, after any fork, whoever computes it (I1).

Method: a devnet moves as the test says; real workers follow, plan, compute on a real Spark and
commit into real Postgres; what people read is compared with plain Python over the whole chain. The
jobs are the three built-in ones, and one of a user's: SQL with a window, a join and a distinct
count, over partitions of ten blocks.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from tests import sparks
from tests.engines import Engine, engine
from tests.places import Place
from tests.sparks import Chain
from unfork.devnet.block import Block
from unfork.devnet.orders import Style
from unfork.testing import derived

BUILTIN = [{"name": name} for name in ("token_transfers", "token_balances", "daily_summary")]

SENDERS_SQL = """
WITH sent AS (
    SELECT *, row_number() OVER (
        PARTITION BY from_address ORDER BY block_number, transaction_index
    ) AS nth
    FROM transactions
)
SELECT sent.from_address AS address,
       min(sent.block_number) AS block_number,
       count(*) AS sent,
       count(DISTINCT sent.to_address) AS receivers,
       sum(coalesce(emitted.logs, 0)) AS logs,
       max(CASE WHEN sent.nth = 2 THEN sent.nonce END) AS second_nonce
FROM sent
LEFT JOIN (
    SELECT block_number, transaction_index, count(*) AS logs
    FROM hot_logs GROUP BY block_number, transaction_index
) AS emitted
  ON emitted.block_number = sent.block_number
 AND emitted.transaction_index = sent.transaction_index
GROUP BY sent.from_address; -- one row a sender and partition
"""

SENDERS = {
    "name": "senders",
    "input_datasets": ["transactions", "hot_logs"],
    "incremental": {"mode": "partition", "partition": 10},
    "sql": "senders.sql",
}


def senders(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """What the user's job must hold, in plain Python."""
    rows = []
    for first in range(0, blocks[-1].number + 1, 10):
        sent: dict[bytes, list[tuple[int, Any]]] = {}
        for block in blocks[first : first + 10]:
            for executed in block.transactions:
                sent.setdefault(executed.sender, []).append((block.number, executed))
        for address, found in sent.items():
            receivers = {one.transaction.to for _, one in found} - {None}
            rows.append(
                {
                    "address": address,
                    "block_number": found[0][0],
                    "sent": len(found),
                    "receivers": len(receivers),
                    "logs": sum(len(one.logs) for _, one in found),
                    "second_nonce": found[1][1].transaction.nonce if len(found) > 1 else None,
                }
            )
    return sorted(rows, key=lambda row: (row["block_number"], row["address"]))


async def check(made: Engine) -> None:
    await made.check()
    assert await made.rows("senders", "block_number, address") == senders(made.blocks)


def path(made: Engine, hash: bytes) -> list[Block]:
    """The chain that a block is the head of, whether it is one of ours now or not."""
    found = []
    block = made.tree.by_hash(hash)
    while block is not None:
        found.append(block)
        block = made.tree.by_hash(block.header.parent_hash) if block.number else None
    return found[::-1]


async def reading(made: Engine) -> None:
    """Reads all the time, and sees only what a chain was up to one of its blocks (I2, I3)."""
    text = """
        SELECT mark.block_hash AS mark, held.* FROM {app}.indexing_checkpoints AS mark
        LEFT JOIN {app}.%s AS held ON true WHERE mark.worker_name = '%s'
    """
    while True:
        for name in ("token_transfers", "token_balances"):
            if not await made.chain.place.app_rows(
                f"SELECT WHERE to_regclass('{{app}}.{name}') IS NOT NULL"
            ):
                continue
            rows = await made.chain.place.app_rows(text.replace("%s", name))
            mark = rows[0]["mark"] if rows else None
            blocks = [] if mark is None else path(made, mark)
            held = [row for row in rows if row["block_number"] is not None]
            if name == "token_transfers":
                names = ("block_hash", "log_index", "batch_ordinal", "amount")
                got = [tuple(row[name] for name in names) for row in held]
                expected = [
                    tuple(row[name] for name in names) for row in derived.token_transfers(blocks)
                ]
                assert sorted(got) == sorted(expected)
            else:
                balances = {
                    tuple(row[name] for name in derived.BALANCE_KEY): row["balance"] for row in held
                }
                assert balances == {
                    tuple(row[name] for name in derived.BALANCE_KEY): row["balance"]
                    for row in derived.token_balances(blocks)
                }
        await asyncio.sleep(0.01)


def project(chain: Chain, **planning: int) -> dict[str, Any]:
    (chain.file.parent / "senders.sql").write_text(SENDERS_SQL)
    return {"jobs": [*BUILTIN, SENDERS], "planning": planning}


async def test_history_is_staged_by_tasks_and_the_head_follows_every_fork(chain: Chain) -> None:
    config = project(chain, range_size=20, live_blocks_max=6)
    async with engine(chain, config=config) as made:
        await made.grow(28)
        await made.settle()
        await check(made)
        head = made.tree.head.number
        jobs = made.computing.declarations.datasets
        assert await made.watermarks() == dict.fromkeys(jobs, head)
        assert {one.kind.value for one in made.happened} == {"live", "backfill"}
        assert all(one.outcome == "committed" for one in made.happened), made.happened
        for depth, length, style in (
            (3, 5, Style.MOVED),
            (9, 4, Style.DROPPED),
            (2, 0, Style.REPLACED),
        ):
            await made.fork(depth=depth, length=length, style=style)
            await made.settle()
            await check(made)


async def test_two_workers_two_servers_and_a_chain_that_moves_under_their_runs(
    spark: SparkSession, split_place: Place
) -> None:
    dice = random.Random(7)
    chain = sparks.chain(spark, split_place)
    async with engine(chain, workers=2, config=project(chain, live_blocks_max=50)) as made:
        reader = asyncio.create_task(reading(made))
        await made.grow(14)
        for _ in range(5):
            worker = dice.choice(made.workers)
            await worker.follow()
            await worker.dispatch()
            depth = dice.randint(1, 7)
            await made.fork(
                depth=depth, length=dice.randint(0, depth + 2), style=dice.choice(list(Style))
            )
            if dice.random() < 0.5:
                await worker.settled()
        await made.settle()
        await check(made)
        reader.cancel()
        seen = await asyncio.gather(reader, return_exceptions=True)
        assert isinstance(seen[0], asyncio.CancelledError), seen
