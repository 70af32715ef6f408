"""Owns the snapshots of a run: one state of each database, which all its tasks read.

A state is exported by a transaction that the driver keeps open; tasks import it by name. It holds
back the tidying of the whole server, so the server itself ends the transaction after a while: a
task that comes later fails with SnapshotLost, and the run is planned again.

Both states hold the ref R that the run computes up to, so both are of one chain up to it. The state
of the app side is taken first: what is final there was final in the raw store before, so where the
app side no longer knows R by its hash, the raw state says whether it is R.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from unfork import errors
from unfork.app import state as app_state
from unfork.app.state import Follower
from unfork.chain.block import BlockRef
from unfork.database.database import Database
from unfork.database.queries import Queries
from unfork.database.session import BEGIN, ROLLBACK, Session
from unfork.hot import pins, state
from unfork.hot import schema as raw_schema
from unfork.jobs import schema
from unfork.jobs.spark import options

#: Seconds that a pin outlives the longest snapshot, for what is left to do without one.
PIN_MARGIN_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state of a database, for as long as it is held."""

    #: The name by which it is imported.
    name: str
    chain: str
    #: The block up to which the run reads; the state holds it.
    at: BlockRef
    #: The floor in this state, None where nothing is final.
    floor: BlockRef | None
    epoch: int
    #: The last journal entry in this state.
    seq: int

    def options(self) -> dict[str, str]:
        """The options that make a reading part of the run, beside `dataset`, `first` and `last`."""
        return {
            "chain": self.chain,
            "at": options.text(self.at),
            "snapshot": self.name,
            "floor": str(self.floor.number if self.floor else -1),
            "epoch": str(self.epoch),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshots:
    """A state of each database that a run reads."""

    raw: Snapshot
    #: None where nothing derived is read.
    app: Snapshot | None


@asynccontextmanager
async def hold_both(
    raw: Database,
    app: Database,
    chain: str,
    *,
    holder: str,
    first: int,
    at: BlockRef | None = None,
    max_s: float = 300.0,
) -> AsyncIterator[Snapshots]:
    """Holds one state of each database, both with the same block: `at`, else the app's position.

    Raises BlockReplaced where one of them does not hold it.
    """
    async with hold_app(app, chain, at=at, max_s=max_s) as derived:
        async with hold(raw, chain, holder=holder, first=first, at=derived.at, max_s=max_s) as held:
            yield Snapshots(raw=held, app=derived)


@asynccontextmanager
async def hold_app(
    database: Database, chain: str, *, at: BlockRef | None = None, max_s: float = 300.0
) -> AsyncIterator[Snapshot]:
    """Holds one state of everything derived from a chain.

    `at` is the block up to which is read, the position where it is left out. Raises BlockReplaced
    where the state knows another block there, or none yet. One that is final is known by its number
    alone: whoever asks for it must have it from the raw store, or ask that next.
    """
    queries = schema.bound(chain)
    async with database.session() as session, _held(session, queries, max_s):
        row = await session.row(queries["snapshot_export"])
        assert row is not None
        known = app_state.from_row(row)
        at = at or known.position
        if at is None or not await _knows(session, queries, known, at):
            raise _not_held(chain, at, known.position)
        yield Snapshot(
            name=row["snapshot"],
            chain=chain,
            at=at,
            floor=known.floor,
            epoch=known.epoch,
            seq=known.seq,
        )


@asynccontextmanager
async def hold(
    database: Database,
    chain: str,
    *,
    holder: str,
    first: int,
    at: BlockRef | None = None,
    max_s: float = 300.0,
) -> AsyncIterator[Snapshot]:
    """Holds one state of a chain's raw tables, with the blocks from `first` on pinned.

    `at` is the block up to which is read, the position where it is left out. Raises BlockReplaced
    where the state does not hold it. After `max_s` seconds the server lets go of it.
    """
    queries = raw_schema.bound(chain)
    pin = pins.held(database, queries, holder=holder, first=first, keep_s=max_s + PIN_MARGIN_S)
    async with pin, database.session() as session, _held(session, queries, max_s):
        yield await _exported(session, queries, chain, at)


@asynccontextmanager
async def _held(session: Session, queries: Queries, max_s: float) -> AsyncIterator[None]:
    """A transaction that sees one state, until the server ends it."""
    await session.run(BEGIN)
    try:
        await session.run(queries["snapshot_mode"])
        await session.row(queries["snapshot_limit"], timeout=f"{max_s * 1000:.0f}ms")
        yield
    finally:
        # What a server has ended by itself cannot and need not be ended again.
        with contextlib.suppress(errors.UnforkError):
            await session.run(ROLLBACK)


async def _exported(
    session: Session, queries: Queries, chain: str, at: BlockRef | None
) -> Snapshot:
    row = await session.row(queries["snapshot_export"])
    known = state.from_row(row) if row is not None else None
    at = at or (known.position if known else None)
    found = None if at is None else await session.row(queries["ref_at"], number=at.number)
    if row is None or known is None or at is None or found is None or found["hash"] != at.hash:
        raise _not_held(chain, at, known.position if known else None)
    return Snapshot(
        name=row["snapshot"],
        chain=chain,
        at=at,
        floor=known.floor,
        epoch=known.epoch,
        seq=known.seq,
    )


async def _knows(session: Session, queries: Queries, known: Follower, at: BlockRef) -> bool:
    """Whether a block is of the chain that the app side knows, as far as it can tell."""
    if known.floor is not None and at.number < known.floor.number:
        return True
    row = await session.row(queries["snapshot_ref"], number=at.number)
    return row is not None and row["hash"] == at.hash


def _not_held(chain: str, at: BlockRef | None, position: BlockRef | None) -> errors.BlockReplaced:
    return errors.BlockReplaced(
        f"{chain} does not hold block {at} (its position is {position}); a fork has taken it "
        "away, or it has not come yet; plan again",
        wanted=at,
    )
