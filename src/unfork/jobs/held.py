"""Owns the hold of a build: whoever changes its rows or its watermark has locked it first."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from unfork.app import generations, state
from unfork.app.generations import Generation
from unfork.app.state import Follower
from unfork.chain.block import BlockRef
from unfork.database.queries import Queries
from unfork.database.session import Session


async def lock(
    session: Session, queries: Queries, build: Generation, *, with_dependents: bool
) -> Generation:
    """The build as it is now, kept from everybody else to the end of the transaction.

    With its dependents where they may be invalidated: all in one order, so that nobody waits for
    somebody who waits for him. Nobody gets a lease of those meanwhile, for he would read what is
    about to be other rows.
    """
    query = queries["held_lock_dependents" if with_dependents else "held_lock"]
    found = await session.rows(query, id=build.id, dataset=build.dataset.name)
    every = {one.id: one for one in generations.read(found)}
    return every.get(build.id) or dataclasses.replace(build, state="retired")


async def read(
    session: Session, queries: Queries, build: Generation, numbers: Sequence[int]
) -> tuple[Generation, Follower, dict[int, bytes]]:
    """The build, the chain and the refs of some blocks, read after the lock was taken."""
    row = await session.row(queries["held_read"], id=build.id, numbers=list(numbers))
    assert row is not None
    refs = dict(zip(row["ref_numbers"], row["ref_hashes"], strict=True))
    # While the lock was waited for, another build may have taken this one's place.
    is_known = row["state"] is not None
    now = dataclasses.replace(
        build,
        state=row["state"] if is_known else "retired",
        config_hash=row["config_hash"] if is_known else build.config_hash,
    )
    return now, state.from_row(row), refs


async def move(
    session: Session,
    queries: Queries,
    build: Generation,
    to: BlockRef | None,
    *,
    history_floor: int | None = None,
) -> None:
    """Moves the watermark of a build; changes up to `history_floor` left no history."""
    await session.run(
        queries["held_move"],
        id=build.id,
        number=to.number if to else None,
        hash=to.hash if to else None,
        history_floor=history_floor,
    )
