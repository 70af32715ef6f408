"""Owns whose payloads a payload store holds: those of one chain in one database, and no other's.

Two databases that shared a folder would sweep each other's payloads away, and a command that looks
into another folder than the follower's would call everything damaged. So the store carries the name
of its owner, and whoever writes, compares or removes payloads asks for it first.
"""

from __future__ import annotations

from unfork import errors
from unfork.database.queries import Queries
from unfork.database.session import Session
from unfork.hot.payloads import PayloadStore


async def take(session: Session, queries: Queries, store: PayloadStore) -> None:
    """Makes a store ours that is nobody's yet; raises PayloadsElsewhere as `require` does."""
    if not await require(session, queries, store):
        row = await session.row(queries["payloads_owner"])
        assert row is not None
        await store.own(row["store_id"])


async def require(session: Session, queries: Queries, store: PayloadStore) -> bool:
    """Whether the store is ours; False where it is nobody's and we have no payloads either.

    Raises PayloadsElsewhere where it is another's, or where ours must be somewhere else.
    """
    row = await session.row(queries["payloads_owner"])
    owner = await store.owner()
    if row is not None and owner == row["store_id"]:
        return True
    if owner is not None:
        raise errors.PayloadsElsewhere(
            f"the payload store {store.shown} belongs to another database or chain; name another "
            "one (payloads.store, or data_dir above it)"
        )
    if row is not None and row["has_payloads"]:
        raise errors.PayloadsElsewhere(
            f"the payload store {store.shown} is empty, and this chain has payloads: they are in "
            "the data_dir or payloads.store that the follower was started with; name the same one"
        )
    return False
