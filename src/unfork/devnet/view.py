"""Owns which blocks a node shows: the chain up to a tip, under names, numbers and hashes.

A healthy node shows the tree's canonical path. A replica that lags shows the same path cut short,
and one that is stale shows the path to a tip that may have been replaced since; both are the same
view with another tip, so every method answers consistently within one request.
"""

from __future__ import annotations

from typing import Protocol

from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Metadata


class Chain(Protocol):
    """What is needed of a tree of blocks; `Tree` has it, and so has a chain made by hand."""

    @property
    def knobs(self) -> Knobs: ...

    @property
    def head(self) -> Block: ...

    @property
    def safe(self) -> Block | None: ...

    @property
    def finalized(self) -> Block | None: ...

    def at(self, number: int) -> Block | None: ...

    def by_hash(self, hash: bytes) -> Block | None: ...

    def is_canonical(self, hash: bytes) -> bool: ...

    def metadata(self, address: bytes, block_hash: bytes) -> Metadata | None: ...


class View:
    """The chain as seen up to one tip."""

    def __init__(self, chain: Chain, *, tip: Block | None = None, keeps_replaced: bool = True):
        self._chain = chain
        #: The highest block shown.
        self.head = chain.head if tip is None else tip
        self._is_current = self.head.hash == chain.head.hash
        self._keeps_replaced = keeps_replaced

    def at(self, number: int) -> Block | None:
        """The block with a number on the path to the tip."""
        if not 0 <= number <= self.head.number:
            return None
        block: Block | None = self.head
        while block is not None and block.number > number:
            if self._chain.is_canonical(block.hash):
                return self._chain.at(number)
            block = self._chain.by_hash(block.header.parent_hash)
        return block

    def by_hash(self, hash: bytes) -> Block | None:
        """The block with a hash; a replaced one too, where the node keeps those."""
        block = self._chain.by_hash(hash)
        if block is None:
            return None
        # A replica that is behind never heard of anything beside its own path.
        if self._is_current and self._keeps_replaced:
            return block
        return block if self.shows(block) else None

    def shows(self, block: Block) -> bool:
        """Whether a block is on the path to the tip."""
        own = self.at(block.number)
        return own is not None and own.hash == block.hash

    @property
    def safe(self) -> Block | None:
        return self._behind(self._chain.safe)

    @property
    def finalized(self) -> Block | None:
        return self._behind(self._chain.finalized)

    def _behind(self, block: Block | None) -> Block | None:
        """A replica that is behind is so in what it calls final, too."""
        if block is None or self._is_current:
            return block
        lag = max(0, self._chain.head.number - self.head.number)
        return self.at(min(block.number - lag, self.head.number))
