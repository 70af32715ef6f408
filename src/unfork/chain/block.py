"""Owns the block reference: a block is always known by number and hash together.

A number alone names one block of every fork; only with its hash does it name one block.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class BlockRef:
    """One block of one fork."""

    #: Height of the block.
    number: int
    #: Hash of the block, as bytes.
    hash: bytes

    def __post_init__(self) -> None:
        assert self.number >= 0, "a block number is never negative"
        assert self.hash, "a block without a hash cannot be told from its forks"

    def __str__(self) -> str:
        return f"{self.number}:0x{self.hash.hex()[:10]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a source says of its own tip at one moment."""

    #: The highest block of the source's chain.
    latest: BlockRef
    #: The highest block the source calls final, None where it has no finality.
    finalized: BlockRef | None
