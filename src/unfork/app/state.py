"""Owns what the app side knows of its chain: one row, read and written as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unfork.chain.block import BlockRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """How far the raw journal was applied."""

    #: The last entry applied.
    seq: int
    #: Raised when an operator lowered the floor.
    epoch: int
    #: The first block of the chain, None while nothing was applied.
    first: int | None
    #: The last block known, None while there is none.
    position: BlockRef | None
    #: The highest block known to be final.
    floor: BlockRef | None
    #: History of blocks at or below this was pruned.
    history_floor: int | None


def from_row(row: Mapping[str, Any]) -> Follower:
    """Reads the follower row."""
    return Follower(
        seq=row["seq"],
        epoch=row["epoch"],
        first=row["first_number"],
        position=ref(row["position_number"], row["position_hash"]),
        floor=ref(row["floor_number"], row["floor_hash"]),
        history_floor=row["history_floor"],
    )


def ref(number: int | None, hash: bytes | None) -> BlockRef | None:
    """A block as two columns hold it."""
    return None if number is None or hash is None else BlockRef(number, hash)


def document(block: BlockRef | None) -> dict[str, object] | None:
    """A block as JSON."""
    return None if block is None else {"number": block.number, "hash": "0x" + block.hash.hex()}
