"""Goal: connections are bounded, every wait ends, and a doubtful connection is never used again.

Method: a real server that is frozen, stopped and told to be slow.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from tests.places import Server
from unfork import errors
from unfork.config.tree import Pool
from unfork.database.database import Database
from unfork.database.embedded import Embedded
from unfork.database.queries import Query

ONE = Query("one", "SELECT 1 AS one")
SLOW_S = 30
SLOW = Query("slow", f"SELECT pg_sleep({SLOW_S})")
MINE = Query("mine", "SELECT pg_backend_pid() AS pid")


@contextmanager
def frozen(server: Embedded) -> Iterator[None]:
    """Stops every process of the server, as a suspended machine does; connections stay open."""
    postmaster = psutil.Process(server.pid)
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


@contextmanager
def hasty(database: Database) -> Iterator[None]:
    """Whoever wants a connection does not wait long for one inside this.

    Outside it he does: how long a connection takes that can be had is up to the machine.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_connect_timeout_s", 0.2)
        yield


async def test_a_frozen_server_costs_the_timeout_and_not_more(own_server: Embedded) -> None:
    database = Database(own_server.start(), statement_timeout_s=1.0)
    session = await database.connect()
    await session.row(ONE)
    with frozen(own_server):
        async with asyncio.timeout(50):
            with pytest.raises(errors.DatabaseUnavailable, match="no answer within 3 s"):
                await session.row(ONE)
            assert not session.is_sound
            session.cut()
            with (
                hasty(database),
                pytest.raises(errors.DatabaseUnavailable, match=r"no connection within 0\.2 s"),
            ):
                await database.connect()
    async with database.session() as again:
        assert await again.row(ONE) == {"one": 1}
    await database.close()


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(postgres: Server) -> None:
    database = Database(postgres.dsn, statement_timeout_s=0.1)
    async with database.session() as session:
        with pytest.raises(errors.DatabaseUnavailable, match="statement timeout"):
            await session.row(SLOW)
        assert session.is_sound
    await database.close()


async def test_a_cancelled_statement_takes_its_connection_with_it_at_once(
    postgres: Server,
) -> None:
    database = Database(postgres.dsn)
    session = await database.connect()
    task = asyncio.create_task(session.row(SLOW))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(SLOW_S - 5):
        with pytest.raises(asyncio.CancelledError):
            await task
    assert not session.is_sound
    session.cut()


async def test_no_more_connections_are_open_than_allowed(postgres: Server) -> None:
    pool = Pool(max_open_conns=2, max_idle_conns=1)
    database = Database(postgres.dsn, service="ingest", pool=pool)
    async with database.session() as first, database.session() as second:
        pids = {(await one.row(MINE) or {})["pid"] for one in (first, second)}
        assert len(pids) == 2
        with (
            hasty(database),
            pytest.raises(errors.DatabaseUnavailable, match=r"pools\.ingest\.max_open_conns"),
        ):
            await database.connect()
    async with database.session() as kept, database.session() as new:
        again = [(await one.row(MINE) or {})["pid"] for one in (kept, new)]
    assert again[0] in pids
    assert again[1] not in pids, "only one connection may stay open while nobody needs it"
    await database.close()


async def test_a_connection_of_its_own_counts_until_it_is_cut(postgres: Server) -> None:
    pool = Pool(max_open_conns=1, max_idle_conns=1)
    database = Database(postgres.dsn, pool=pool)
    own = await database.connect()
    with hasty(database), pytest.raises(errors.DatabaseUnavailable):
        async with database.session():
            pass
    own.cut()
    own.cut()
    async with database.session() as session:
        assert await session.row(ONE) == {"one": 1}
    await database.close()


async def test_a_session_left_in_a_transaction_is_not_used_again(postgres: Server) -> None:
    database = Database(postgres.dsn)
    async with database.session() as session:
        await session.run(Query("begin", "BEGIN"))
        first = (await session.row(MINE) or {})["pid"]
    async with database.session() as session:
        assert (await session.row(MINE) or {})["pid"] != first
    await database.close()


async def test_a_stopped_server_is_reported_as_away_and_found_again(own_server: Embedded) -> None:
    database = Database(own_server.start())
    async with database.session() as session:
        await session.row(ONE)
    own_server.stop()
    for _ in range(2):
        with pytest.raises(errors.DatabaseUnavailable):
            async with database.session() as session:
                await session.row(ONE)
    own_server.start()
    async with database.session() as session:
        assert await session.row(ONE) == {"one": 1}
    await database.close()


async def test_a_probe_hears_of_every_statement_before_and_after(postgres: Server) -> None:
    heard: list[str] = []
    database = Database(postgres.dsn, probe=heard.append)
    async with database.session() as session:
        async with session.transaction():
            await session.row(ONE)
        assert heard == [
            *("before begin", "after begin", "before one", "after one"),
            *("before commit", "after commit"),
        ]
        heard.clear()
        with pytest.raises(errors.Misconfigured):
            await session.row(Query("wrong", "SELEC 1"))
        assert heard == ["before wrong"]
    await database.close()


async def test_an_error_inside_a_transaction_undoes_it_and_keeps_the_connection(
    postgres: Server,
) -> None:
    database = Database(postgres.dsn)
    async with database.session() as session:
        await session.run(Query("make", "CREATE TEMP TABLE made (n int)"))
        with pytest.raises(errors.ParentMismatch):
            async with session.transaction():
                await session.run(Query("fill", "INSERT INTO made VALUES (1)"))
                raise errors.ParentMismatch()
        assert await session.rows(Query("read", "SELECT * FROM made")) == []
    await database.close()


async def test_secrets_of_a_url_are_in_no_message() -> None:
    for url in (
        "postgresql://someone:hunter2@127.0.0.1:1/nothing",
        "postgresql://someone:hunter2@127.0.0.1:port/nothing",
        "host=127.0.0.1 port=1 password=hunter2 =",
    ):
        with pytest.raises(errors.UnforkError) as told:
            await Database(url, connect_timeout_s=2).connect()
        assert "hunter2" not in str(told.value)
        assert "hunter2" not in repr(told.value.fields)
