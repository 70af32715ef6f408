"""Owns the end and the new beginning of a chain's raw data: everything goes, empty tables come.

It takes the writer lock first, so that a running follower is refused to be pulled from under its
feet. Payloads go first, while the chain row still says which ones are ours. Tables go one by one: a
schema of thousands of partitions at once would need more locks than a server has. An interrupted
reset is finished by running it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from unfork import errors
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.hot import owner, schema, state, writer
from unfork.hot.payloads import PayloadStore
from unfork.hot.state import ChainState

#: Tables looked up at once.
TABLES_AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a reset removes."""

    schema: str
    #: Bytes of all tables with their indexes.
    bytes: int
    #: What the chain row says, None where the store was never opened.
    state: ChainState | None


async def preview(chain: str, database: Database) -> Loss:
    """What a reset of the chain would remove."""
    queries, name = schema.bound(chain), schema.name(chain)
    async with database.session() as session:
        size = await session.row(queries["reset_bytes"], schema=name)
        assert size is not None
        row = None
        if len(await schema.migrations(chain).pending(session)) == 0:
            row = await session.row(queries["chain_read"])
    known = state.from_row(row) if row else None
    return Loss(schema=name, bytes=size["bytes"], state=known)


async def reset(
    chain: str, database: Database, store: PayloadStore, *, lock_wait_s: float = 10.0
) -> None:
    """Drops the chain's raw schema and all its payloads, and makes an empty one; safe to repeat."""
    queries, name = schema.bound(chain), schema.name(chain)
    session = await database.connect()
    try:
        await writer.take(session, queries, schema=name, mine=None, wait_s=lock_wait_s)
        if await _is_ours(session, chain, store):
            await store.clear()
        while rows := await session.rows(
            queries["reset_tables"], schema=name, limit=TABLES_AT_ONCE
        ):
            for row in rows:
                table = row["table_name"]
                await session.run(queries.of("reset_drop", table, table=table))
        await session.run(queries["reset_schema"])
        await schema.migrations(chain).apply(session)
    finally:
        session.cut()


async def _is_ours(session: Session, chain: str, store: PayloadStore) -> bool:
    """Whether the payloads may go; raises PayloadsElsewhere where they are another's."""
    try:
        return await owner.require(session, schema.bound(chain), store)
    except errors.SchemaOutdated:
        # There are no tables, or not all of them: then there is nothing that could be ours.
        return False
