"""Owns the end and the new beginning of a chain's derived data: the schema goes and comes back."""

from __future__ import annotations

from unfork.app import schema
from unfork.database.database import Database


async def reset(chain: str, database: Database) -> None:
    """Drops the chain's app schema and makes an empty one; safe to repeat."""
    async with database.session() as session:
        await session.run(schema.bound(chain)["reset_app"])
        await schema.migrations(chain).apply(session)
