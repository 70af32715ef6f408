"""Owns the app side as a follower of the raw journal: which blocks derived data is derived from.

Raw and app may be in different servers, so nothing is ever written to both: what happened is read
from the journal and applied here in a transaction of its own, once, in order. A fork takes the refs
away and undoes every dataset in that same transaction.

Durability class: transactional. Invariants:
- An advance is applied once: the entry it leads to is written with it, under a lock (I8).
- The floor never falls but by an operator's word, and nothing at or below it is undone (I4).
- What does not continue what is held is refused, and nothing is changed (I9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from unfork import errors, telemetry
from unfork.app import history, schema, state, unwind
from unfork.app.state import Follower
from unfork.chain.advance import Advance, Day
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.session import Session

log = telemetry.logger(__name__)

#: Blocks taken over in one transaction, about.
BLOCKS_MAX = 10_000


class Upstream(Protocol):
    """What is followed: the journal of the raw store."""

    async def advance(
        self, *, after: int, position: BlockRef | None, blocks_max: int = BLOCKS_MAX
    ) -> Advance | None:
        """What happened after an entry that led to `position`; None where nothing did."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What one step did."""

    #: The state before it.
    before: Follower
    #: The state after it.
    after: Follower
    #: The block everything was undone to; None where nothing had to be, or all of it.
    base: BlockRef | None
    #: Whether something was undone.
    is_unwind: bool


class Refs:
    """The blocks of one chain as the app side knows them."""

    def __init__(
        self,
        chain: str,
        database: Database,
        upstream: Upstream,
        *,
        blocks_max: int = BLOCKS_MAX,
    ) -> None:
        self._chain = chain
        self._schema = schema.name(chain)
        self._queries = schema.bound(chain)
        self._database = database
        self._upstream = upstream
        self._blocks_max = blocks_max

    async def state(self) -> Follower:
        """How far the journal was applied."""
        async with self._database.session() as session:
            row = await session.row(self._queries["follower_read"])
        assert row is not None
        return state.from_row(row)

    async def refs(self, span: Span) -> list[BlockRef]:
        """The blocks of the span from the floor up, ascending."""
        query = self._queries["follower_refs"]
        async with self._database.session() as session:
            rows = await session.rows(query, first=span.first, last=span.last)
        return [BlockRef(row["number"], row["hash"]) for row in rows]

    async def days(self) -> list[Day]:
        """The days of the chain with their blocks, ascending."""
        async with self._database.session() as session:
            rows = await session.rows(self._queries["follower_days"])
        return [Day(row["day"], row["first_number"], row["last_number"]) for row in rows]

    async def step(self) -> Applied | None:
        """Applies what happened since the last step, in one transaction; None where nothing did.

        Bounded: a follower that is far behind needs several steps. Safe to run in several
        processes at once: one of them applies an advance, the others find it applied.
        """
        known = await self.state()
        advance = await self._upstream.advance(
            after=known.seq, position=known.position, blocks_max=self._blocks_max
        )
        return None if advance is None else await self.apply(advance)

    async def apply(self, advance: Advance) -> Applied | None:
        """Applies an advance; None where somebody else has applied it already.

        Raises Inconsistent where it does not continue what is held, ForkConflict where it goes
        below the floor without an operator's word; nothing is changed then.
        """
        async with self._database.session() as session:
            async with session.transaction(self._queries["follower_lock"]) as row:
                assert row is not None
                held = state.from_row(row)
                if held.seq != advance.after:
                    return None
                await self._require_base(session, held, advance)
                if advance.is_unwind:
                    await unwind.unwind(
                        session,
                        self._queries,
                        schema=self._schema,
                        held=held,
                        to=advance.base,
                        tip=advance.tip or advance.position,
                    )
                    await session.run(self._queries["follower_retreat"], target=_number(advance))
                moved = await self._move(session, held, advance)
        if advance.is_unwind:
            telemetry.event(
                log, "app_unwound", chain=self._chain, to=advance.base, from_=held.position
            )
        return Applied(before=held, after=moved, base=advance.base, is_unwind=advance.is_unwind)

    async def _require_base(self, session: Session, held: Follower, advance: Advance) -> None:
        """Raises unless the advance begins at a block that we hold, at or above the floor."""
        base, floor = advance.base, held.floor
        if advance.is_unwind and _is_below(base, floor):
            if advance.epoch == held.epoch:
                raise errors.ForkConflict(
                    f"an unwind to {base or 'nothing'} would remove block {floor} from "
                    f"{self._schema}, where it is final; nothing was changed",
                    floor=floor,
                )
            # An operator's word. What lies below our floor we no longer know by hash.
            return
        ours = held.position
        if advance.is_unwind and base is not None:
            row = await session.row(self._queries["follower_ref"], number=base.number)
            ours = None if row is None else BlockRef(row["number"], row["hash"])
        if ours != base and not (advance.is_unwind and base is None):
            raise errors.Inconsistent(
                f"the raw journal goes on after {base}, where {self._schema} holds {ours}; the raw "
                "store is not the one that was followed: `unfork reset` starts again",
                ours=ours,
                theirs=base,
            )

    async def _move(self, session: Session, held: Follower, advance: Advance) -> Follower:
        """Takes over the new blocks, raises the floor and forgets what it makes final."""
        floor, base, refs = held.floor, advance.base, advance.refs
        is_lowered = advance.is_unwind and _is_below(base, floor)
        if is_lowered:
            floor = base
        if advance.floor is not None and (floor is None or floor.number < advance.floor.number):
            floor = advance.floor
        if is_lowered and floor is not None and floor == base:
            # Blocks below the old floor were not kept, this one is the floor now.
            refs = (floor, *refs)
        row = await session.row(
            self._queries["follower_advance"],
            numbers=[ref.number for ref in refs],
            hashes=[ref.hash for ref in refs],
            days=[day.date for day in advance.days],
            firsts=[day.first for day in advance.days],
            lasts=[day.last for day in advance.days],
            seq=advance.seq,
            epoch=advance.epoch,
            first=advance.first,
            position_number=advance.position.number if advance.position else None,
            position_hash=advance.position.hash if advance.position else None,
            floor_number=floor.number if floor else None,
            floor_hash=floor.hash if floor else None,
        )
        assert row is not None
        moved = state.from_row(row)
        if floor is not None and floor != held.floor:
            await history.prune(session, self._queries, floor=floor.number)
        return moved


def _number(advance: Advance) -> int:
    return advance.base.number if advance.base else -1


def _is_below(base: BlockRef | None, floor: BlockRef | None) -> bool:
    """Whether going back to `base` would take the floor away."""
    return floor is not None and (base is None or base.number < floor.number)
