"""Owns the reading of the journal: what happened to the chain, in order, for whoever follows it.

Entries are written by the store, in the transaction of what they tell. Their numbers have no gaps
and follow the order of the commits, so a follower that applied `seq` asks for what comes after.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.queries import Queries
from unfork.database.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One commit or unwind."""

    #: Its number: one more than the entry before.
    seq: int
    #: Raised when an operator lowered the floor.
    epoch: int
    kind: Literal["commit", "unwind"]
    #: The blocks that came, or that went.
    span: Span
    #: The position afterwards; None when an unwind removed everything.
    ref: BlockRef | None
    #: Of a commit: the hash that its first block names as its parent.
    parent_hash: bytes | None
    #: Of an unwind: the tip it left (`old_tip`) and, where known, the other side's (`new_tip`).
    fork: dict[str, Any] | None
    at: datetime


async def read(session: Session, queries: Queries, *, after: int, limit: int) -> list[Entry]:
    """The entries that follow `after`, in order, at most `limit`."""
    rows = await session.rows(queries["journal_read"], after=after, limit=limit)
    return [_entry(row) for row in rows]


async def refs(session: Session, queries: Queries, entry: Entry) -> list[BlockRef]:
    """The blocks a commit brought, ascending, also where a later fork has orphaned them."""
    assert entry.kind == "commit"
    rows = await session.rows(
        queries["journal_refs"], seq=entry.seq, first=entry.span.first, last=entry.span.last
    )
    return [BlockRef(row["number"], row["hash"]) for row in rows]


def _entry(row: dict[str, Any]) -> Entry:
    number = row["ref_number"]
    return Entry(
        seq=row["seq"],
        epoch=row["epoch"],
        kind=row["kind"],
        span=Span(row["first"], row["last"]),
        ref=None if number is None else BlockRef(number, row["ref_hash"]),
        parent_hash=row["parent_hash"],
        fork=row["fork"],
        at=row["at"],
    )
