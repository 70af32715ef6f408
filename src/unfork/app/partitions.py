"""Owns the pieces of derived tables that grow with the chain: made before a commit needs them."""

from __future__ import annotations

from unfork import errors
from unfork.app.generations import Generation
from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.database import partitions
from unfork.database.database import Database

#: Pieces kept ready after the one in use.
AHEAD = 1
#: Tries of a piece that a commit needs, each as long as the lock timeout.
ATTEMPTS = 20


class TablePartitions:
    """Knows which pieces the tables of one schema have."""

    def __init__(self, schema: str, database: Database, *, lock_timeout_ms: int = 500) -> None:
        self._schema = schema
        self._database = database
        self._lock_timeout_ms = lock_timeout_ms
        self._known: dict[str, list[Span]] = {}

    async def ensure(self, build: Generation, needed: Span) -> None:
        """Makes what a span of a build needs, and what comes after it.

        Costs nothing while everything is there. Raises PartitionBusy where it cannot be made in
        time. Must not be called in a transaction.
        """
        size = build.dataset.table_blocks
        if size is None:
            return
        known = self._known.get(build.table, [])
        if not spans.missing(known, needed, size, ahead=AHEAD):
            return
        async with self._database.session() as session:
            found = await partitions.attached(session, schema=self._schema, tables=[build.table])
            known = self._known[build.table] = [Span(one.first, one.end - 1) for one in found]
            for new in spans.missing(known, needed, size, ahead=AHEAD):
                for _ in range(ATTEMPTS):
                    if await partitions.attach(
                        session,
                        schema=self._schema,
                        table=build.table,
                        number=build.dataset.number_column,
                        first=new.first,
                        end=new.last + 1,
                        timeout_ms=self._lock_timeout_ms,
                    ):
                        known.append(new)
                        break
                else:
                    raise errors.PartitionBusy(
                        f"partition {new} of {build.table} could not be attached: something holds "
                        f"a lock on {self._schema}.{build.table} for long",
                        table=build.table,
                        span=str(new),
                    )
