"""Goal: whatever the database does, ingestion goes on by itself afterwards and loses nothing.

Method: a real server that belongs to the test is stopped, frozen, crashed, filled up and kept away
from the start, while the real `unfork ingest` follows a chain that goes on. The process must stay
the same one throughout; at the end every table is compared with the chain.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from tests.integration import stored
from tests.integration.live_chain import Follow, LiveChain, live
from tests.integration.own_postgres import OwnPostgres
from tests.integration.relay import Relay, relayed
from tests.integration.unfork_process import Process, Workplace
from unfork.devnet.knobs import Knobs

#: Blocks that a backfill has to fetch; enough to be interrupted in.
BACKFILL = 1_500
#: Seconds in which a first new row must appear once the database is back.
REACT_S = 30.0

LOCK_HOLDER = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"


@contextlib.asynccontextmanager
async def following(
    folder: Path, postgres: OwnPostgres | Relay, name: str, *, blocks: int, **database: float
) -> AsyncIterator[tuple[LiveChain, Process, Follow]]:
    """A chain that is being followed; at the end it stands still and the tables are exact."""
    knobs = Knobs(seed=7, density=2, fork_rate=0.1)
    async with live(knobs, blocks=blocks) as chain:
        workplace = Workplace(
            folder,
            name,
            postgres.dsn,
            (chain.url,),
            settings={"batch_blocks_max": 20},
            source={"backoff_ms_max": 1_000},
            database=database,
        )
        follow = Follow(chain, postgres.dsn, name, workplace.payloads)
        process = await workplace.start()
        try:
            yield chain, process, follow
            await chain.stand_still()
            await follow.caught_up(process, timeout_s=60.0)
            await follow.is_exact()
            assert process.exit_code is None, "it must be the process that was there all along"
        finally:
            await process.kill()


async def goes_on(process: Process, follow: Follow) -> None:
    """Waits for the next new block in the store."""

    async def answers() -> int | None:
        return await follow.position()

    before = await process.until(answers, timeout_s=REACT_S)
    assert before is not None
    await follow.passes(before + 1, process, timeout_s=REACT_S)


def told_again(process: Process, words: str = " waiting ") -> Callable[[], Awaitable[bool]]:
    """Whether it has said something once more than it had now; the first try is always told."""
    before = process.said().count(words)

    async def is_told() -> bool:
        return process.said().count(words) > before

    return is_told


async def test_a_database_that_restarts_during_a_backfill_is_waited_for(
    any_own: OwnPostgres, tmp_path: Path
) -> None:
    async with following(tmp_path, any_own, "backfill", blocks=BACKFILL) as (
        chain,
        process,
        follow,
    ):
        await follow.passes(1, process)
        is_missed = told_again(process)
        await any_own.stop()
        chain.go(block_time_s=0.05)
        await process.until(is_missed)
        await any_own.start()
        await goes_on(process, follow)


async def test_a_database_that_restarts_at_the_head_is_waited_for(
    any_own: OwnPostgres, tmp_path: Path
) -> None:
    async with following(tmp_path, any_own, "head", blocks=30) as (chain, process, follow):
        await follow.passes(30, process)
        chain.go(block_time_s=0.05)
        for _ in range(2):
            is_missed = told_again(process)
            await any_own.stop()
            await process.until(is_missed)
            await any_own.start()
            await goes_on(process, follow)


async def test_a_database_that_crashes_and_forgets_its_last_commits_is_filled_again(
    own: OwnPostgres, tmp_path: Path
) -> None:
    async with following(tmp_path, own, "crash", blocks=30) as (chain, process, follow):
        await follow.passes(30, process)
        chain.go(block_time_s=0.03)
        for blocks in (50, 70):
            await follow.passes(blocks, process)
            await own.crash()
            await goes_on(process, follow)


async def test_a_frozen_database_is_waited_for_with_its_connections(
    any_own: OwnPostgres, tmp_path: Path
) -> None:
    async with following(tmp_path, any_own, "frozen", blocks=30) as (chain, process, follow):
        await follow.passes(30, process)
        holder = await stored.one(any_own.dsn, LOCK_HOLDER)
        chain.go(block_time_s=0.05)
        any_own.freeze()
        # Nobody can see from outside that it waits; this is many times what a block takes to get
        # there, and far below the time after which a server counts as hanging.
        await asyncio.sleep(3.0)
        any_own.thaw()
        await goes_on(process, follow)
        assert await stored.one(any_own.dsn, LOCK_HOLDER) == holder, "it was connected to anew"


async def test_a_database_frozen_for_longer_than_any_timeout_is_connected_to_anew(
    own: OwnPostgres, tmp_path: Path
) -> None:
    limits = {"statement_timeout_s": 1.0, "connect_timeout_s": 1.0}
    async with following(tmp_path, own, "thawed", blocks=30, **limits) as (chain, process, follow):
        await follow.passes(30, process)
        chain.go(block_time_s=0.05)
        is_cut, is_refused = (
            told_again(process, words) for words in ("no answer within", "no connection within")
        )
        own.freeze()
        await process.until(is_cut)
        await process.until(is_refused)
        own.thaw()
        await goes_on(process, follow)


async def test_a_database_that_is_not_up_yet_is_waited_for_at_the_start(
    own: OwnPostgres, tmp_path: Path
) -> None:
    await own.stop()
    try:
        async with following(tmp_path, own, "late", blocks=30) as (_, process, follow):

            async def waits() -> bool:
                return "waiting" in process.said()

            await process.until(waits)
            await own.start()
            await follow.passes(30, process)
    finally:
        await own.start()


async def test_a_connection_that_goes_dead_without_a_word_is_replaced(
    own: OwnPostgres, tmp_path: Path
) -> None:
    limits = {"statement_timeout_s": 1.0, "connect_timeout_s": 1.0}
    async with (
        relayed(own.socket_path) as relay,
        following(tmp_path, relay, "dead", blocks=30, **limits) as (
            chain,
            process,
            follow,
        ),
    ):
        await follow.passes(30, process)
        chain.go(block_time_s=0.05)
        # The server still waits for this client, with the chain's lock in its hands.
        holder = await stored.one(own.dsn, LOCK_HOLDER)
        relay.swallow()
        await goes_on(process, follow)
        assert await stored.one(own.dsn, LOCK_HOLDER) not in (None, holder)


async def test_a_server_that_refuses_writes_is_waited_for(own: OwnPostgres, tmp_path: Path) -> None:
    async with following(tmp_path, own, "readonly", blocks=30) as (chain, process, follow):
        await follow.passes(30, process)
        chain.go(block_time_s=0.05)
        async with await psycopg.AsyncConnection.connect(own.dsn, autocommit=True) as operator:
            await operator.execute("ALTER DATABASE postgres SET default_transaction_read_only = on")
            await operator.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name LIKE 'unfork%'"
            )

            async def refused() -> bool:
                return "refuses writes" in process.said()

            await process.until(refused)
            await operator.execute("ALTER DATABASE postgres RESET default_transaction_read_only")
        await goes_on(process, follow)


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A folder on a file system of 64 MB, where the machine lets us make one."""
    folder = Path(tempfile.mkdtemp(prefix="unfork-disk-"))
    mounted = os.geteuid() == 0 and _mount("-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder))
    if not mounted:
        folder.rmdir()
        pytest.skip("making a small file system needs the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


async def test_a_full_disk_is_told_and_waited_for(
    own: OwnPostgres, tmp_path: Path, small_disk: Path
) -> None:
    space = small_disk / "space"
    space.mkdir()
    shutil.chown(space, (own.folder / "data").owner())
    async with await psycopg.AsyncConnection.connect(own.dsn, autocommit=True) as connection:
        await connection.execute(f"CREATE TABLESPACE small LOCATION '{space}'".encode())
        await connection.execute("ALTER DATABASE postgres SET default_tablespace = small")
    try:
        async with following(tmp_path, own, "full", blocks=BACKFILL) as (_, process, follow):

            async def told() -> bool:
                return "no disk space left" in process.said()

            await follow.passes(1, process)
            with _filled(small_disk / "ballast"):
                await process.until(told)
                (await follow.read()).check()
            await goes_on(process, follow)
    finally:
        async with await psycopg.AsyncConnection.connect(own.dsn, autocommit=True) as connection:
            await connection.execute("ALTER DATABASE postgres RESET default_tablespace")
            await connection.execute("DROP SCHEMA full_raw CASCADE; DROP SCHEMA full_app CASCADE")
            await connection.execute("DROP TABLESPACE small")


@contextlib.contextmanager
def _filled(ballast: Path) -> Iterator[None]:
    """Leaves no space on a file system while the context is open."""
    with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(65_536)):
            pass
    yield
    ballast.unlink()


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0
