"""Owns the floor: the highest block of our own chain that is known to be final.

What a source calls final is final on the source's chain. It says something about ours only where we
hold that very block: then it and all our blocks below it are final. A finalized block above our
position, or another one than ours, may lie on a fork that we do not hold (a replica that is late, a
fork while we were away), and taking our own block for final then would end in a conflict that is
none. Until we hold it, such a chain has the finality of one that gives none.

Invariants: the floor never exceeds the position and never falls (I4).
"""

from __future__ import annotations

from dataclasses import dataclass

from unfork.chain.block import BlockRef, Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much of a source's word on finality is believed."""

    #: Blocks below the head that stay above the floor whatever the source calls final.
    depth_min: int
    #: Blocks below the head that stay above the floor where nothing we hold is called final.
    depth_max: int

    def __post_init__(self) -> None:
        assert 0 <= self.depth_min <= self.depth_max


def floor_number(
    *,
    policy: Policy,
    position: int,
    head: int,
    finalized: int | None,
    is_held: bool,
    floor: int | None,
) -> int | None:
    """The number the floor moves to, or None while nothing is final.

    `finalized` is the number of the block that the source calls final, None where it gives no
    finality; `is_held` says whether we hold that very block. The result is never below `floor` and
    never above `position`.
    """
    depth = policy.depth_min if finalized is not None and is_held else policy.depth_max
    candidate = min(head - depth, position)
    if finalized is not None:
        candidate = min(candidate, finalized)
    if floor is not None:
        return max(candidate, floor)
    return candidate if candidate >= 0 else None


def believed(head: Head) -> BlockRef | None:
    """The block a source calls final, or None where that word carries no information.

    A finalized block that is the latest one (or beyond it: the two were asked a moment apart) is
    what chains without finality answer; taking it as final would turn every fork into a conflict.
    """
    if head.finalized is None or head.finalized.number + 1 >= head.latest.number:
        return None
    return head.finalized
