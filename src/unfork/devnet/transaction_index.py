"""Owns where a transaction is: from its hash to the blocks that ever held it.

A fork moves a transaction with the same hash to another block, so a hash leads to several places of
which a view shows one. The index is read from the tree only when somebody asks by transaction.
"""

from __future__ import annotations

from unfork.devnet.block import Block
from unfork.devnet.view import Chain, View


class TransactionIndex:
    """Places of transactions on every branch that was canonical when it was asked."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._places: dict[bytes, list[tuple[bytes, int]]] = {}
        self._known: set[bytes] = set()

    def find(self, hash: bytes, view: View) -> tuple[Block, int] | None:
        """The block on the view's path that holds a transaction, and its position there."""
        self._read(view.head)
        for block_hash, position in self._places.get(hash, ()):
            block = self._chain.by_hash(block_hash)
            if block is not None and view.shows(block):
                return block, position
        return None

    def _read(self, tip: Block) -> None:
        """Takes in every block from a tip down to one that is known."""
        block: Block | None = tip
        while block is not None and block.hash not in self._known:
            self._known.add(block.hash)
            for position, executed in enumerate(block.transactions):
                self._places.setdefault(executed.hash, []).append((block.hash, position))
            block = self._chain.by_hash(block.header.parent_hash) if block.number else None
