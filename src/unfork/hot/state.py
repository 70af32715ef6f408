"""Owns what the hot store says of its chain: one row, read and written as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from unfork.chain.block import BlockRef


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """The chain row as it was at one moment."""

    #: The number the chain calls itself, None until a source has said it.
    chain_id: int | None
    #: The first block this store is to hold, None until it was claimed.
    first: int | None
    #: The last block held, None while the store is empty.
    position: BlockRef | None
    #: The highest block of our own chain known to be final.
    floor: BlockRef | None
    #: The highest number that any answer called final.
    finalized_seen: int | None
    #: The tip of the source when it was last written down, and when that was.
    head: BlockRef | None
    head_at: datetime | None
    #: The last journal entry.
    seq: int
    #: Raised when an operator lowered the floor.
    epoch: int


def from_row(row: Mapping[str, Any]) -> ChainState:
    """Reads the chain row."""
    return ChainState(
        chain_id=None if row["chain_id"] is None else int(row["chain_id"]),
        first=row["first_number"],
        position=_ref(row, "position"),
        floor=_ref(row, "floor"),
        finalized_seen=row["finalized_seen"],
        head=_ref(row, "head"),
        head_at=row["head_at"],
        seq=row["seq"],
        epoch=row["epoch"],
    )


def _ref(row: Mapping[str, Any], name: str) -> BlockRef | None:
    number = row[f"{name}_number"]
    return None if number is None else BlockRef(number, row[f"{name}_hash"])
