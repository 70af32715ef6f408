"""Owns the judgement of a finished run: whether what it has read is still the chain.

Pure. A run is committed only where its last block, and the parent of its first one, are blocks of
the chain now. Above the floor the refs tell; below it they are gone, and a run is believed where
what it read was final already when it read it. Anything else is discarded and planned again: a
discarded run is no failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from unfork.app.generations import Generation
from unfork.app.state import Follower
from unfork.chain.block import BlockRef
from unfork.chain.span import Span


class Why(StrEnum):
    """Why a run is discarded."""

    #: Its lease is another's by now, or nobody's.
    LEASE_LOST = "lease lost"
    #: The build it computed was retired.
    RETIRED = "build retired"
    #: Rows of a serial dataset may only come from one configuration.
    CONFIG_CHANGED = "configuration changed"
    #: It has read a block that is not, or not yet, of the chain.
    ORPHANED = "read another fork"
    #: It has read blocks that became final since, and nobody knows any more which ones those were.
    UNVERIFIABLE = "read before the floor passed"
    #: It does not continue the watermark.
    NOT_NEXT = "does not continue the watermark"
    #: The rows in staging are not the ones its tasks wrote.
    STAGING_DIFFERS = "staging differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class AsRead:
    """The state of the chain when a run read its inputs."""

    epoch: int
    #: The highest block that was final then; None where none was.
    floor: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A stretch of blocks that was read, by what ties it to the chain."""

    span: Span
    #: The hash that the first block names as its parent; None for the chain's very first block.
    parent_hash: bytes | None
    #: The last block.
    last: BlockRef

    def __post_init__(self) -> None:
        assert self.last.number == self.span.last

    @property
    def numbers(self) -> tuple[int, ...]:
        """The blocks that must be known to judge it."""
        first = self.span.first
        return (self.span.last,) if first == 0 else (first - 1, self.span.last)


def of_chain(
    anchors: Sequence[Anchor], as_read: AsRead, held: Follower, refs: Mapping[int, bytes]
) -> tuple[Why, str] | None:
    """Why what was read is not of the chain, None where it is."""
    if as_read.epoch != held.epoch:
        return Why.ORPHANED, f"epoch {as_read.epoch} is over, it is {held.epoch}"
    for anchor in anchors:
        ends = [anchor.last]
        # What lies before the first block of the store is not known to anybody here.
        if anchor.parent_hash is not None and anchor.span.first != held.first:
            ends.append(BlockRef(anchor.span.first - 1, anchor.parent_hash))
        for ref in ends:
            told = _of_chain(ref, as_read, held, refs)
            if told is not None:
                return told
    return None


def continues(build: Generation, anchor: Anchor) -> bool:
    """Whether a stretch begins right after the watermark, by hash."""
    if anchor.span.first != build.next:
        return False
    return build.watermark is None or anchor.parent_hash == build.watermark.hash


def _of_chain(
    ref: BlockRef, as_read: AsRead, held: Follower, refs: Mapping[int, bytes]
) -> tuple[Why, str] | None:
    if held.position is None or ref.number > held.position.number:
        return Why.ORPHANED, f"block {ref} is beyond {held.position}"
    known = refs.get(ref.number)
    if known is not None:
        if known != ref.hash:
            return Why.ORPHANED, f"block {ref} was read, the chain has 0x{known.hex()[:10]} there"
        return None
    # Only what lies below the floor has no ref.
    if as_read.floor is not None and ref.number <= as_read.floor:
        return None
    return Why.UNVERIFIABLE, f"block {ref} was not final when it was read, and its ref is gone"
