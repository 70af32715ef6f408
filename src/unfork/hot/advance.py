"""Owns what a follower of the raw store is told: the journal since an entry, as one advance.

An advance ends at an entry whose position is still a block of the chain, so that all blocks below
it are the ones the tables hold. Forks that came and went in between need no trace of their rows,
and a follower that was away for long catches up by the block, not by the entry.
"""

from __future__ import annotations

from typing import Any

from unfork import errors
from unfork.chain.advance import Advance, Day
from unfork.chain.block import BlockRef
from unfork.database.database import Database
from unfork.database.session import Row, Session
from unfork.hot import schema, state
from unfork.hot.state import ChainState

#: Journal entries looked at for one advance.
ENTRIES_MAX = 1000


class Upstream:
    """The journal of one chain's raw store, for whoever follows it."""

    def __init__(self, chain: str, database: Database) -> None:
        self._schema = schema.name(chain)
        self._queries = schema.bound(chain)
        self._database = database

    async def advance(
        self, *, after: int, position: BlockRef | None, blocks_max: int = 10_000
    ) -> Advance | None:
        """What happened after an entry that led to `position`; None where nothing did.

        At most about `blocks_max` blocks at once. Raises JournalPruned where entries are missing.
        """
        async with self._database.session() as session, session.transaction():
            await session.run(self._queries["advance_snapshot"])
            row = await session.row(self._queries["chain_read"])
            known = None if row is None else state.from_row(row)
            seq = known.seq if known else 0
            if seq < after:
                raise errors.JournalPruned(
                    f"{self._schema} has {seq} journal entries and a follower has applied {after}: "
                    "it was reset; reset what follows it too (`unfork reset`)"
                )
            if known is None or seq == after:
                return None
            return await self._read(session, known, after, position, blocks_max)

    async def _read(
        self,
        session: Session,
        known: ChainState,
        after: int,
        position: BlockRef | None,
        blocks_max: int,
    ) -> Advance:
        assert known.first is not None
        end = await self._end(session, known, after, blocks_max)
        reached = _ref(end["ref_number"], end["ref_hash"])
        fall = await session.row(self._queries["advance_fall"], after=after, seq=end["seq"])
        base, is_unwind = position, False
        if fall is not None and position is not None:
            lowest = _ref(fall["ref_number"], fall["ref_hash"])
            if lowest is None or lowest.number < position.number:
                base, is_unwind = lowest, True
        if base is not None and not is_unwind:
            # What is told is what we hold: the follower finds out where it holds something else.
            base = await self._at(session, base.number)
        floor = await self._floor(session, known, end, reached)
        first = base.number + 1 if base else known.first
        return Advance(
            after=after,
            seq=end["seq"],
            epoch=end["epoch"],
            first=known.first,
            is_unwind=is_unwind,
            base=base,
            refs=await self._refs(session, max(first, floor.number if floor else 0), reached),
            position=reached,
            floor=floor,
            days=await self._days(session, first, reached),
            tip=_tip(fall["fork"]) if fall is not None and is_unwind else None,
        )

    async def _end(self, session: Session, known: ChainState, after: int, blocks_max: int) -> Row:
        """The entry that the advance leads to."""
        window = await session.row(
            self._queries["advance_window"],
            after=after,
            blocks_max=blocks_max,
            entries_max=ENTRIES_MAX,
        )
        assert window is not None
        if window["first_seq"] != after + 1:
            raise errors.JournalPruned(
                f"the journal of {self._schema} no longer has entry {after + 1}, which a follower "
                "needs; reset what follows it (`unfork reset`) and let it start again"
            )
        last_seq = window["last_seq"] or window["first_seq"]
        end = await session.row(self._queries["advance_within"], after=after, last_seq=last_seq)
        if end is None:
            end = await session.row(self._queries["advance_beyond"], last_seq=last_seq)
        if end is None:
            # Everything was unwound, and nothing came since.
            end = {"seq": known.seq, "epoch": known.epoch, "ref_number": None, "ref_hash": None}
            assert known.position is None
        return end

    async def _floor(
        self, session: Session, known: ChainState, end: Row, reached: BlockRef | None
    ) -> BlockRef | None:
        """The highest block up to the position that is final.

        All we hold up to our floor is. But blocks that a later entry takes away, to bring the very
        same ones again, must not be called final before that entry is applied.
        """
        if known.floor is None or reached is None:
            return None
        number = min(known.floor.number, reached.number)
        if end["seq"] < known.seq:
            query = self._queries["advance_fall"]
            later = await session.row(query, after=end["seq"], seq=known.seq)
            if later is not None:
                number = min(number, -1 if later["ref_number"] is None else later["ref_number"])
        return await self._at(session, number)

    async def _at(self, session: Session, number: int) -> BlockRef | None:
        row = await session.row(self._queries["ref_at"], number=number)
        return None if row is None else BlockRef(row["number"], row["hash"])

    async def _refs(
        self, session: Session, first: int, reached: BlockRef | None
    ) -> tuple[BlockRef, ...]:
        if reached is None or first > reached.number:
            return ()
        rows = await session.rows(self._queries["refs_in_span"], first=first, last=reached.number)
        assert rows[0]["number"] == first and rows[-1]["hash"] == reached.hash
        assert len(rows) == reached.number - first + 1
        return tuple(BlockRef(row["number"], row["hash"]) for row in rows)

    async def _days(
        self, session: Session, first: int, reached: BlockRef | None
    ) -> tuple[Day, ...]:
        if reached is None or first > reached.number:
            return ()
        rows = await session.rows(self._queries["advance_days"], first=first, last=reached.number)
        return tuple(Day(row["day"], row["first"], row["last"]) for row in rows)


def _ref(number: int | None, hash: bytes | None) -> BlockRef | None:
    return None if number is None or hash is None else BlockRef(number, hash)


def _tip(fork: dict[str, Any] | None) -> BlockRef | None:
    """The other side's tip, as an unwind wrote it down."""
    told = (fork or {}).get("new_tip")
    return None if told is None else BlockRef(told["number"], bytes.fromhex(told["hash"][2:]))
