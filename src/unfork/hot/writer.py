"""Owns the right to write a chain: one connection at a time, told apart by a lock and a token.

The lock is Postgres' own (advisory, of the session): it ends with the connection, so a killed
writer leaves nothing behind. The token in the chain row guards what the lock cannot: a writer that
was cut off and does not know it yet finds another token and stops (I5).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from unfork import errors, telemetry
from unfork.database import migrate
from unfork.database.queries import Queries
from unfork.database.session import Session

log = telemetry.logger(__name__)

#: Seconds between two tries for the lock.
RETRY_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """A connection as the server knows it; the start tells a pid from its next owner."""

    pid: int
    started_at: datetime


async def take(
    session: Session, queries: Queries, *, schema: str, mine: Backend | None, wait_s: float
) -> Backend:
    """Takes the writer lock for the session's connection, or raises WriterBusy after `wait_s`.

    `mine` is the backend that held the lock for us before an outage. It may live on, waiting for a
    client that is gone: being provably ours, it is ended.
    """
    key = migrate.advisory_key("writer", schema)
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        row = await session.row(queries["writer_lock"], key=key)
        assert row is not None
        if row["taken"]:
            return await _myself(session, queries)
        holder = await session.row(queries["writer_holder"], key=key)
        if holder is not None and mine is not None and _is(holder, mine):
            telemetry.event(log, "stale_backend_ended", pid=mine.pid)
            await session.row(
                queries["writer_terminate"], pid=mine.pid, backend_start=mine.started_at
            )
        elif asyncio.get_running_loop().time() >= deadline and holder is not None:
            raise errors.WriterBusy(
                f"{schema} is written by another process (backend {holder['pid']}, "
                f"{holder['application_name'] or 'unnamed'}, on {holder['host']}); stop it first",
                **holder,
            )
        await asyncio.sleep(RETRY_S)


async def _myself(session: Session, queries: Queries) -> Backend:
    row = await session.row(queries["writer_self"])
    assert row is not None
    return Backend(pid=row["pid"], started_at=row["backend_start"])


def _is(holder: dict[str, object], mine: Backend) -> bool:
    return holder["pid"] == mine.pid and holder["backend_start"] == mine.started_at
