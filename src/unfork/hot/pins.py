"""Owns pins: a run that reads blocks says so, and nothing at or above them is dropped meanwhile.

A snapshot keeps rows from vanishing but not tables: a partition that is dropped is missing from
every snapshot, without an error. A pin ends by itself in time, so that a reader that died does not
keep the store from being tidied.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from unfork import errors, telemetry
from unfork.database.database import Database
from unfork.database.queries import Queries

log = telemetry.logger(__name__)


@asynccontextmanager
async def held(
    database: Database, queries: Queries, *, holder: str, first: int, keep_s: float
) -> AsyncIterator[None]:
    """Pins the blocks from `first` on while the caller reads, for `keep_s` seconds at most."""
    async with database.session() as session:
        row = await session.row(
            queries["pins_register"], holder=holder, first=first, keep_s=float(keep_s)
        )
    assert row is not None
    try:
        yield
    finally:
        try:
            async with database.session() as session:
                await session.run(queries["pins_release"], id=row["id"])
        except errors.UnforkError as error:
            # It ends by itself; what the caller did is not undone by it.
            telemetry.event(log, "pin_left", holder=holder, error=str(error))
