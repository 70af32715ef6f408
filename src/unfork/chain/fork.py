"""Owns the resolution of a fork: which of our own blocks the other side still shares.

`resolve` compares our refs with a sample of theirs and returns a named outcome. It changes nothing;
the caller unwinds only to an ancestor that the other side was seen to share.

Two facts carry the algorithm. Blocks are linked by hash, so sharing block n means sharing every
block below it, and not sharing n means sharing none above it. And a floor is final: a sample that
contradicts it is not a fork to follow but a reason to stop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unfork.chain.block import BlockRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The event: the other side does not continue the ref it was asked to continue."""

    #: Refs of the other side's chain, in any order; may be short, may have gaps.
    sample: tuple[BlockRef, ...]
    #: The ref of ours that the other side declined to continue.
    refuted: BlockRef


@dataclass(frozen=True, slots=True)
class Conflict:
    """The sample contradicts a final block: stop, loudly; nothing is changed."""

    #: The final block we hold.
    ours: BlockRef
    #: What the other side has instead.
    theirs: BlockRef


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The highest ref both share, at or above the floor: unwind to it and go on after it."""

    ref: BlockRef


@dataclass(frozen=True, slots=True)
class TooDeep:
    """The fork is deeper than allowed: stop, loudly; an operator unwinds by hand."""

    #: Blocks that would have to be unwound, at the least.
    depth: int
    #: The limit, MAX_REORG_DEPTH.
    depth_max: int


@dataclass(frozen=True, slots=True)
class AtFloor:
    """The sample lies wholly below the floor (a lagging replica): ask again after the floor."""

    floor: BlockRef


@dataclass(frozen=True, slots=True)
class NeedsOlder:
    """The sample shows no shared block: change nothing, ask again after this lower ref."""

    ref: BlockRef


@dataclass(frozen=True, slots=True)
class Restart:
    """Every block held is orphaned and none is final: unwind everything, restart at `first`."""

    #: The first number held, None where nothing was held.
    first: int | None


Outcome = Conflict | Ancestor | TooDeep | AtFloor | NeedsOlder | Restart


def resolve(
    history: Sequence[BlockRef],
    sample: Iterable[BlockRef],
    floor: BlockRef | None,
    depth_max: int,
    refuted: BlockRef | None = None,
) -> Outcome:
    """The first outcome that applies, in the order the types stand above.

    `history` is what we hold, in any order, gaps allowed; its highest ref is the position.
    `refuted` is the ref the other side declined last, the position when left out. Steps double by
    themselves: each goes as deep again as the search has come.
    """
    assert depth_max >= 1
    ours = {ref.number: ref for ref in history}
    if floor is not None:
        ours[floor.number] = floor
    theirs = {ref.number: ref for ref in sample}
    if not ours:
        return Restart(None)
    position = ours[max(ours)]
    low = _lowest_refuted(ours, theirs, refuted or position)

    if floor is not None:
        contradiction = _contradiction(ours, theirs, floor, refuted)
        if contradiction is not None:
            return contradiction
    shared = [n for n, ref in theirs.items() if ours.get(n) == ref]
    if floor is not None:
        shared = [n for n in shared if n >= floor.number]
    if shared:
        depth = position.number - max(shared)
        return Ancestor(ours[max(shared)]) if depth <= depth_max else TooDeep(depth, depth_max)
    depth = position.number - low + 1
    candidates = [n for n in ours if n < low and (floor is None or n >= floor.number)]
    within = [n for n in candidates if position.number - n <= depth_max]
    if not within and (candidates or depth > depth_max):
        at_least = position.number - max(candidates, default=low - 1)
        return TooDeep(at_least, depth_max)
    if floor is not None and (not within or (theirs and max(theirs) < floor.number)):
        return AtFloor(floor)
    if within:
        wanted = low - depth
        return NeedsOlder(ours[max((n for n in within if n <= wanted), default=min(within))])
    return Restart(min(ours))


def contradicts(history: Iterable[BlockRef], sample: Iterable[BlockRef]) -> bool:
    """Whether the sample has another hash at a height we hold; a merely lower head does not."""
    theirs = {ref.number: ref.hash for ref in sample}
    return any(theirs.get(ref.number, ref.hash) != ref.hash for ref in history)


@dataclass(slots=True, kw_only=True)
class Search:
    """The rounds that lead from a fork to the highest block both sides share.

    Going down, each step is as deep again as the search has come; once a shared block is known, the
    unknown between it and the lowest refuted one is halved. What was learnt in an earlier round may
    be outdated by then (the other side moved on): a newer word always wins over an older one.
    """

    #: The highest block we hold.
    position: BlockRef
    #: Our floor, None while nothing is final.
    floor: BlockRef | None
    #: The deepest fork followed, MAX_REORG_DEPTH.
    depth_max: int
    #: The highest block known to be shared.
    shared: BlockRef | None = None
    #: The lowest number known not to be shared.
    refuted: int | None = None

    def declined(self, history: Sequence[BlockRef], event: Fork) -> Outcome:
        """What follows from a fork event; NeedsOlder names the ref to ask after next."""
        outcome = resolve(history, event.sample, self.floor, self.depth_max, event.refuted)
        ours = {ref.number: ref for ref in history}
        theirs = {ref.number: ref for ref in event.sample}
        low = _lowest_refuted(ours, theirs, event.refuted)
        self.refuted = low if self.refuted is None else min(low, self.refuted)
        if self.shared is not None and self.shared.number >= self.refuted:
            self.shared = None
        match outcome:
            case Ancestor(ref):
                if self.shared is None or ref.number > self.shared.number:
                    self.shared = ref
                self.refuted = max(self.refuted, self.shared.number + 1)
                return self._narrowed(history)
            case NeedsOlder() if self.shared is not None:
                return self._narrowed(history)
            case _:
                return outcome

    def accepted(self, history: Sequence[BlockRef], ref: BlockRef) -> Outcome:
        """What follows from the other side going on after `ref`: it is shared."""
        self.shared = ref
        if self.refuted is None or self.refuted <= ref.number:
            self.refuted = self.position.number + 1
        return self._narrowed(history)

    def _narrowed(self, history: Sequence[BlockRef]) -> Outcome:
        assert self.shared is not None and self.refuted is not None
        inside = sorted(r for r in history if self.shared.number < r.number < self.refuted)
        if inside:
            return NeedsOlder(inside[len(inside) // 2])
        depth = self.position.number - self.shared.number
        return Ancestor(self.shared) if depth <= self.depth_max else TooDeep(depth, self.depth_max)


def _lowest_refuted(
    ours: dict[int, BlockRef], theirs: dict[int, BlockRef], refuted: BlockRef
) -> int:
    """The lowest of our numbers known not to be shared."""
    differing = [n for n, ref in theirs.items() if n in ours and ours[n] != ref]
    return min([refuted.number, *differing])


def _contradiction(
    ours: dict[int, BlockRef],
    theirs: dict[int, BlockRef],
    floor: BlockRef,
    refuted: BlockRef | None,
) -> Conflict | None:
    """The conflict a sample is in with our final blocks, if it is.

    Declining the floor itself counts when the sample reaches it or beyond: then the other side
    knows that height and does not have our block there.
    """
    for number in sorted(theirs, reverse=True):
        ref = theirs[number]
        if number <= floor.number and ours.get(number, ref) != ref:
            return Conflict(ours[number], ref)
    beyond = sorted(n for n in theirs if n >= floor.number)
    if refuted == floor and beyond and theirs.get(floor.number) != floor:
        return Conflict(floor, theirs[beyond[0]])
    return None
