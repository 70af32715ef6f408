"""Owns the advance: how far a chain moved between two journal entries, as a follower needs it.

A follower that was away does not have to live through every commit and fork it missed. What counts
is the lowest block that the chain fell to meanwhile, and the blocks above it now.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from unfork.chain.block import BlockRef


@dataclass(frozen=True, slots=True)
class Day:
    """A UTC day and the blocks that fall into it."""

    date: date
    #: Lowest block of the day.
    first: int
    #: Highest block of the day so far.
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """What lies between one journal entry and a later one."""

    #: The entry that was applied last.
    after: int
    #: The entry this leads to.
    seq: int
    #: Raised when an operator lowered the floor.
    epoch: int
    #: The first block of the chain.
    first: int
    #: Whether the chain fell below where the follower stands, and has to be undone to `base`.
    is_unwind: bool
    #: The highest block that both sides share; None where nothing is shared.
    base: BlockRef | None
    #: The blocks above the base, ascending, up to the position; those below the floor are left out.
    refs: tuple[BlockRef, ...]
    #: The last block held after `seq`; None where nothing is.
    position: BlockRef | None
    #: The highest block up to the position that is final.
    floor: BlockRef | None
    #: The days of the blocks above the base.
    days: tuple[Day, ...]
    #: Of an unwind: the tip of the other side, where it is known.
    tip: BlockRef | None = None

    def __post_init__(self) -> None:
        assert self.seq > self.after
        assert not self.refs or self.refs[-1] == self.position
        assert self.floor is None or self.position is not None
        assert self.floor is None or self.position is None or self.floor <= self.position
