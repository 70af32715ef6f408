"""Owns one connection to Postgres: statements by name, transactions, COPY, and a hard end.

Every wait for the server passes through `Connection.wait`, so that one place bounds them all. A
statement that is cancelled or out of time leaves the connection in doubt; it is cut at once instead
of asking a server that may be frozen for the favour of a cancel.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.rows import dict_row
from psycopg.waiting import Ready, Wait

from unfork import errors
from unfork.database import failures
from unfork.database.queries import Query

#: Called with "before <name>" and "after <name>" of every statement; a simulation crashes there.
Probe = Callable[[str], None]

Row = dict[str, Any]
_T = TypeVar("_T")

BEGIN = Query("begin", "BEGIN")
COMMIT = Query("commit", "COMMIT")
ROLLBACK = Query("rollback", "ROLLBACK")


_EVENTS = {
    Wait.R: select.POLLIN,
    Wait.W: select.POLLOUT,
    Wait.RW: select.POLLIN | select.POLLOUT,
}


class Connection(psycopg.AsyncConnection[Any]):
    """A psycopg connection whose every wait ends in time."""

    #: Seconds one wait may take before the connection is cut.
    limit_s: float = 60.0

    async def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        """Waits for the server; out of time, cancelled or torn down, the connection ends.

        What is ready already (a socket can nearly always be written to) does not cost a turn of
        the event loop; that halves the price of a small COPY.
        """
        file = self.pgconn.socket
        poll = select.poll()
        try:
            state = next(gen)
            while True:
                poll.register(file, _EVENTS[state])
                now = poll.poll(0)
                state = gen.send(_ready(now[0][1]) if now else await self._turn(state))
        except StopIteration as stopped:
            result: _T = stopped.value
            return result
        except psycopg.Error:
            raise
        except BaseException:
            self.pgconn.finish()
            raise

    async def _turn(self, state: Wait) -> Ready:
        """Waits until the socket is ready for what is wanted of it."""
        loop, file = asyncio.get_running_loop(), self.pgconn.socket
        happened: asyncio.Future[Ready] = loop.create_future()

        def happen(ready: Ready) -> None:
            if not happened.done():
                happened.set_result(ready)

        if state & Wait.R:
            loop.add_reader(file, happen, Ready.R)
        if state & Wait.W:
            loop.add_writer(file, happen, Ready.W)
        timer = loop.call_later(self.limit_s, happen, Ready.NONE)
        try:
            ready = await happened
        finally:
            timer.cancel()
            loop.remove_reader(file)
            loop.remove_writer(file)
        if ready == Ready.NONE:
            self.pgconn.finish()
            raise psycopg.OperationalError(f"no answer within {self.limit_s:g} s")
        return ready


def _ready(events: int) -> Ready:
    """What poll saw, as psycopg calls it; an error or an end is read like an answer."""
    if not events & select.POLLOUT:
        return Ready.R
    return Ready.W if events == select.POLLOUT else Ready.RW


class Session:
    """One connection, used by one task at a time."""

    def __init__(self, connection: Connection, *, url: str, probe: Probe | None) -> None:
        self._connection = connection
        self._cursor = connection.cursor(row_factory=dict_row)
        self._url = url
        self._probe = probe
        self._when_cut: Callable[[], None] | None = None

    @property
    def is_sound(self) -> bool:
        """Whether the connection is open and in no transaction."""
        status = self._connection.pgconn.transaction_status
        return not self._connection.closed and status == pq.TransactionStatus.IDLE

    @property
    def server_version(self) -> int:
        """The major version of the server, as it said itself when we connected."""
        return self._connection.info.server_version // 10_000

    async def rows(self, query: Query, **parameters: Any) -> list[Row]:
        """Every row the statement answers."""
        with self._statement(query.name):
            await self._execute(query, parameters)
            return await self._cursor.fetchall()

    async def row(self, query: Query, **parameters: Any) -> Row | None:
        """The first row the statement answers, None where there is none."""
        with self._statement(query.name):
            await self._execute(query, parameters)
            return await self._cursor.fetchone()

    async def run(self, query: Query, **parameters: Any) -> int:
        """Runs the statement and returns how many rows it touched."""
        with self._statement(query.name):
            await self._execute(query, parameters)
            return self._cursor.rowcount

    async def copy(self, query: Query, pieces: Iterable[bytes]) -> None:
        """Sends the pieces, binary COPY data, to a `COPY … FROM STDIN`."""
        with self._statement(query.name):
            async with self._cursor.copy(query.text) as copy:
                for piece in pieces:
                    await copy.write(piece)

    @asynccontextmanager
    async def transaction(self, opening: Query = BEGIN) -> AsyncIterator[Row | None]:
        """Commits what is done inside, or nothing of it.

        `opening` is a first statement without parameters, sent in one breath with BEGIN; its first
        row is handed in. Any error but one of ours or of Postgres cuts the connection: what a
        cancelled or crashed block left behind is not worth asking about.
        """
        try:
            yield await self._begin(opening)
        except errors.UnforkError:
            await self._roll_back()
            raise
        except BaseException:
            self.cut()
            raise
        await self.run(COMMIT)

    def when_cut(self, action: Callable[[], None]) -> None:
        """Calls `action` once, when the connection ends."""
        self._when_cut = action

    def cut(self) -> None:
        """Ends the connection at once, without a word to the server; safe to repeat."""
        self._connection.pgconn.finish()
        action, self._when_cut = self._when_cut, None
        if action is not None:
            action()

    async def _execute(self, query: Query, parameters: Mapping[str, Any]) -> None:
        # Without parameters psycopg sends the text as it is, so that a script may hold several
        # statements. With them the plan is made for the values at hand: a generic plan would lock
        # every partition of a table.
        await self._cursor.execute(query.text, parameters or None, prepare=False)

    async def _begin(self, opening: Query) -> Row | None:
        if opening is BEGIN:
            await self.run(BEGIN)
            return None
        with self._statement(opening.name):
            await self._cursor.execute(f"BEGIN; {opening.text}")
            self._cursor.nextset()
            return await self._cursor.fetchone()

    async def _roll_back(self) -> None:
        if self._connection.closed:
            self.cut()
            return
        try:
            await self.run(ROLLBACK)
        except errors.UnforkError:
            self.cut()

    @contextmanager
    def _statement(self, name: str) -> Iterator[None]:
        """Surrounds one statement: the probe, and the meaning of its failure."""
        if self._probe is not None:
            self._probe(f"before {name}")
        try:
            yield
        except (psycopg.Error, OSError) as error:
            raise failures.translate(error, self._url, name) from error
        if self._probe is not None:
            self._probe(f"after {name}")
