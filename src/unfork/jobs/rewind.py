"""Owns the rewind of a serial dataset: undone to a block, so that what follows can be done again.

Rows of a serial dataset gather what several blocks brought, so a correction cannot be written into
the middle of it. Above the floor, history takes it back; below it, it is built anew.
"""

from __future__ import annotations

from dataclasses import dataclass

from unfork.app import history, invalidations, unwind
from unfork.app import schema as app_schema
from unfork.app.generations import Generation
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.queries import Queries
from unfork.database.session import Session
from unfork.datasets.derivation import Strategy
from unfork.jobs import held, schema


@dataclass(frozen=True, slots=True, kw_only=True)
class TooDeep:
    """A serial dataset cannot be undone so far: it has to be built anew."""

    #: The lowest block it can be undone to.
    lowest: int


async def rewind(
    chain: str, database: Database, build: Generation, *, to: int
) -> BlockRef | TooDeep | None:
    """Undoes a serial dataset down to block `to`, and returns its watermark then.

    What reads the dataset is invalidated. TooDeep, with nothing changed, where history does not
    reach. Safe to repeat.
    """
    assert build.dataset.is_serial
    queries, app = schema.bound(chain), app_schema.bound(chain)
    async with database.session() as session:
        async with session.transaction(queries["held_patience"]):
            known = await held.lock(session, queries, build, with_dependents=True)
            known, follower, refs = await held.read(session, queries, known, [to])
            floors = [follower.history_floor, known.history_floor]
            if follower.floor is not None:
                floors.append(follower.floor.number)
            lowest = max((floor for floor in floors if floor is not None), default=-1)
            if to < lowest and lowest >= build.first:
                return TooDeep(lowest=lowest)
            if known.next - 1 <= to:
                return known.watermark
            target = BlockRef(to, refs[to]) if to >= build.first else None
            await _undo(session, queries, app, app_schema.name(chain), known, to, target)
    return target


async def _undo(
    session: Session,
    queries: Queries,
    app: Queries,
    schema_name: str,
    build: Generation,
    to: int,
    target: BlockRef | None,
) -> None:
    """Undoes rows, versions, leases and watermark above a block."""
    if build.dataset.strategy is Strategy.MERGE:
        table = unwind.merged_table(schema_name, build)
        await history.undo(session, app, [table], target=to)
    else:
        number = build.dataset.number_column
        query = queries.of("rewind_rows", build.table, table=build.table, number=number)
        await session.run(query, number=to)
    hash = target.hash if target else None
    await session.run(queries["rewind_versions"], id=build.id, number=to, hash=hash)
    await session.run(queries["rewind_leases"], id=build.id, number=to)
    await held.move(session, queries, build, target)
    await invalidations.cascade(
        session,
        app,
        dataset=build.dataset.name,
        spans=[Span(max(to + 1, build.first), build.next - 1)],
        reason="correction",
        event={"job": build.dataset.job, "reason": "rewind"},
    )
