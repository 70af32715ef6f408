"""Goal: a process that is killed at any moment goes on at the exact block, with exact rows.

Method: a chain that grows and forks all the time is followed by the real command, which gets
SIGKILL fifty times: while it starts, right after it took the chain, in the middle of transactions
and between them. It is started again at once, as a supervisor would. After some kills, and at the
end, every table is compared with the canonical chain and with each other.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from random import Random

import psycopg

from tests.integration.live_chain import Follow, LiveChain, live
from tests.integration.unfork_process import Process, Workplace
from tests.places import Server
from unfork.devnet.knobs import Knobs

KILLS = 50
#: Kills after which all tables are read and compared, besides the end.
COMPARED = (3, 10, 20, 35)
CHAIN = "killed"
SEED = 50


async def test_fifty_kills_during_forks_leave_exact_rows(postgres: Server, tmp_path: Path) -> None:
    random = Random(SEED)
    knobs = Knobs(
        seed=SEED, density=3, fork_rate=0.25, fork_depth_max=8, finality_lag=40, hostile=True
    )
    async with live(knobs, blocks=20) as chain:
        # Every table is written; awkward values include some for the payload store.
        settings = {"traces": True}
        workplace = Workplace(tmp_path, CHAIN, postgres.dsn, (chain.url,), settings=settings)
        follow = Follow(chain, postgres.dsn, CHAIN, workplace.payloads, traces=True)
        moments: Counter[str] = Counter()
        async with await watcher(postgres.dsn) as watching:
            for kill in range(1, KILLS + 1):
                async with chain.going(block_time_s=0.05):
                    process = await workplace.start()
                    moments[await moment(random, process, watching)] += 1
                    await process.kill()
                if kill in COMPARED:
                    await compare(chain, follow)
        process = await workplace.start()
        try:
            await follow.caught_up(process, timeout_s=60.0)
            await follow.is_exact()
            assert any(workplace.payloads.iterdir()), "no value went to the payload store"
        finally:
            await process.kill()
    assert chain.replaced > KILLS, "the chain hardly forked"
    assert moments["in a transaction"] >= KILLS // 10, f"kills missed the writes: {moments}"
    assert moments["after a commit"] >= KILLS // 10, f"hardly anything was written: {moments}"
    print(f"{moments}, {chain.tree.head.number} blocks, {chain.replaced} replaced")


async def compare(chain: LiveChain, follow: Follow) -> None:
    """What was stored so far is a piece of a chain that really was, if not of the one that is."""
    held = await follow.read()
    held.check()
    blocks = {bytes(row["hash"]) for row in held.tables["blocks"]}
    assert all(chain.tree.by_hash(hash) is not None for hash in blocks)
    if held.position is not None and chain.tree.is_canonical(held.position[1]):
        difference = chain.difference(held, traces=True)
        assert not difference, difference


async def watcher(dsn: str) -> psycopg.AsyncConnection[tuple[object, ...]]:
    """A connection that looks at what the others do."""
    return await psycopg.AsyncConnection.connect(dsn, autocommit=True)


async def moment(
    random: Random, process: Process, watching: psycopg.AsyncConnection[tuple[object, ...]]
) -> str:
    """Waits for the moment of a kill and names it."""
    kind = random.choice(("starting", "opened", "in a transaction", "in a transaction", "later"))
    if kind == "starting":
        await asyncio.sleep(random.uniform(0.0, 1.0))
        return kind
    before = await token(watching)
    await process.until(lambda: changed(watching, before), timeout_s=60.0)
    if kind == "opened":
        await asyncio.sleep(random.uniform(0.0, 0.03))
        return kind
    if kind == "later":
        seq = await journal(watching)
        commits = random.randint(1, 5)
        await process.until(lambda: grown(watching, seq + commits), timeout_s=60.0)
        await asyncio.sleep(random.uniform(0.0, 0.1))
        return "after a commit"
    # Transactions last milliseconds: this asks as fast as it can, after a random few of them.
    await asyncio.sleep(random.uniform(0.0, 0.3))
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        row = await (await watching.execute(IN_TRANSACTION)).fetchone()
        if row is not None:
            return kind
    return "no transaction seen"


IN_TRANSACTION = """
SELECT 1 FROM pg_stat_activity
WHERE application_name = 'unfork ingest' AND datname = current_database()
  AND backend_xid IS NOT NULL
"""


async def token(watching: psycopg.AsyncConnection[tuple[object, ...]]) -> object:
    """The token of the last writer, None before the first."""
    try:
        cursor = await watching.execute(f"SELECT token FROM {CHAIN}_raw.chain".encode())
    except psycopg.errors.UndefinedTable:
        return None
    row = await cursor.fetchone()
    return None if row is None else row[0]


async def changed(watching: psycopg.AsyncConnection[tuple[object, ...]], before: object) -> bool:
    return await token(watching) != before


async def journal(watching: psycopg.AsyncConnection[tuple[object, ...]]) -> int:
    """Commits and unwinds so far."""
    cursor = await watching.execute(f"SELECT seq FROM {CHAIN}_raw.chain".encode())
    row = await cursor.fetchone()
    assert row is not None and isinstance(row[0], int)
    return row[0]


async def grown(watching: psycopg.AsyncConnection[tuple[object, ...]], seq: int) -> bool:
    return await journal(watching) >= seq
