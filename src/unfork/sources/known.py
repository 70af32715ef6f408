"""Owns what a stream holds of our chain: enough to tell a fork from a node that is behind.

Pure: a look at the node goes in, a verdict comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from unfork.chain.block import BlockRef
from unfork.sources.fetching import Look


class Known:
    """The refs of our own chain, highest last; only so many are kept."""

    def __init__(self, recent: Iterable[BlockRef], after: BlockRef | None, *, keep: int) -> None:
        #: The block the next one must continue; None before the first.
        self.last = after
        self._keep = keep
        ours = {ref.number: ref for ref in recent if after is None or ref.number <= after.number}
        if after is not None:
            ours[after.number] = after
        self._refs = dict(sorted(ours.items()))

    def refs(self) -> Sequence[BlockRef]:
        """Every ref that is kept."""
        return tuple(self._refs.values())

    def add(self, refs: Sequence[BlockRef]) -> None:
        """Continues our chain."""
        for ref in refs:
            self._refs[ref.number] = ref
        self.last = refs[-1]
        while len(self._refs) > self._keep + 1:
            del self._refs[next(iter(self._refs))]

    def is_contradicted(self, look: Look) -> bool:
        """Whether the node was seen on another fork than ours.

        The next block has another parent; or the tip is at a height we hold, with another hash. A
        lower tip that is ours, or whose height we know nothing of, contradicts nothing.
        """
        if self.last is None:
            return False
        if look.piece is not None:
            return look.piece.parent != self.last
        tip = look.head.latest
        return self._refs.get(tip.number, tip) != tip
