"""Owns the connections to one Postgres database: bounded, timed, and never trusted after a doubt.

Invariants:
- At most `max_open_conns` connections are open, at most `max_idle_conns` while nobody needs them.
- Every wait ends: a frozen server costs `statement_timeout_s`, then the connection is cut.
- A connection that was cut, cancelled in the middle of a statement or left in a transaction is
  never used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from psycopg import conninfo

from unfork import errors
from unfork.config import tree
from unfork.database import failures
from unfork.database.session import Connection, Probe, Session

#: Seconds the server gets to end a statement by itself before our own clock cuts the connection.
CUT_AFTER_S = 2.0


class Database:
    """The pool of one service for one database."""

    def __init__(
        self,
        url: str,
        *,
        service: str = "tools",
        pool: tree.Pool | None = None,
        connect_timeout_s: float = 5.0,
        statement_timeout_s: float = 60.0,
        idle_s_max: float | None = None,
        probe: Probe | None = None,
    ) -> None:
        """`idle_s_max` is how long a transaction may wait for its client, None for as it likes."""
        self.url = url
        self._service = service
        self._pool = pool or tree.Pool()
        self._connect_timeout_s = connect_timeout_s
        self._statement_timeout_s = statement_timeout_s
        self._idle_s_max = idle_s_max
        self._probe = probe
        self._idle: list[Session] = []
        self._free = asyncio.Semaphore(self._pool.max_open_conns)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A connection of the pool, given back afterwards when it is still sound."""
        session = await self._take()
        try:
            yield session
        finally:
            if session.is_sound and len(self._idle) < self._pool.max_idle_conns:
                self._idle.append(session)
            else:
                session.cut()
            self._free.release()

    async def connect(self) -> Session:
        """A connection for the caller alone, who ends it with `cut`; it counts as open."""
        session = await self._take()
        session.when_cut(self._free.release)
        return session

    async def close(self) -> None:
        """Ends the idle connections; safe to repeat."""
        while self._idle:
            self._idle.pop().cut()

    async def _take(self) -> Session:
        """An idle connection, or a new one: only then may the number of open ones grow."""
        await self._permit()
        while self._idle:
            session = self._idle.pop()
            if session.is_sound:
                return session
        return await self._open()

    async def _permit(self) -> None:
        """Waits for one of the connections we may have."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                await self._free.acquire()
        except TimeoutError:
            raise errors.DatabaseUnavailable(
                f"all {self._pool.max_open_conns} connections of {self._service} are in use; "
                f"raise database.pools.{self._service}.max_open_conns"
            ) from None

    async def _open(self) -> Session:
        """Connects; the permit taken before goes back when that fails."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                connection = await Connection.connect(**self._parameters())
        except BaseException as error:
            self._free.release()
            if isinstance(error, psycopg.Error | OSError | TimeoutError):
                cause: Exception = error
                if isinstance(error, TimeoutError):
                    cause = psycopg.OperationalError(
                        f"no connection within {self._connect_timeout_s:g} s"
                    )
                raise failures.translate(cause, self.url, "connecting") from error
            raise
        connection.limit_s = self._statement_timeout_s + CUT_AFTER_S
        return Session(connection, url=self.url, probe=self._probe)

    def _parameters(self) -> dict[str, Any]:
        try:
            given = conninfo.conninfo_to_dict(self.url)
        except psycopg.ProgrammingError:
            # The parser's own message repeats the text, and with it the password.
            raise errors.ConfigInvalid(
                "a database URL cannot be read; write postgresql://user:password@host:port/name"
            ) from None
        # A backend whose client is gone notices within a second, even inside a statement, and
        # gives up its locks.
        options = (
            f"-c statement_timeout={int(self._statement_timeout_s * 1000)}"
            " -c client_connection_check_interval=1000 -c timezone=UTC"
        )
        if self._idle_s_max is not None:
            limit_ms = int(self._idle_s_max * 1000)
            options += f" -c idle_in_transaction_session_timeout={limit_ms}"
        return {
            **given,
            "options": f"{given.get('options') or ''} {options}".strip(),
            "application_name": given.get("application_name") or f"unfork {self._service}",
            "autocommit": True,
        }
