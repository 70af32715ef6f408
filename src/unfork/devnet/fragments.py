"""Owns the JSON of blocks as bytes, each piece made once and kept while there is room.

Serving must cost little beside what is measured over it, so an answer is a few joined pieces
instead of a document built anew. The room is bounded in bytes; what was used longest ago goes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from unfork.devnet import render
from unfork.devnet.block import Block


class Fragments:
    """Rendered pieces of blocks, by block hash and kind."""

    def __init__(self, size_max: int) -> None:
        #: Bytes kept at most.
        self.size_max = size_max
        self.size = 0
        self._kept: OrderedDict[tuple[bytes, str], tuple[bytes, ...]] = OrderedDict()

    def block(self, block: Block, *, full: bool) -> bytes:
        """A block as eth_getBlockByHash gives it."""
        if full:
            return self._whole(block, "full", lambda: render.block(block, full=True))
        return self._whole(block, "hashes", lambda: render.block(block, full=False))

    def header(self, block: Block) -> bytes:
        """A block as newHeads announces it."""
        return self._whole(block, "header", lambda: render.header(block))

    def receipts(self, block: Block) -> bytes:
        """The receipts of a block as eth_getBlockReceipts gives them."""
        return self._whole(block, "receipts", lambda: render.receipts(block))

    def receipt_pieces(self, block: Block) -> tuple[bytes, ...]:
        """The receipts of a block, one piece each."""
        return self._pieces(block, "receipt_pieces", lambda: render.receipts(block))

    def transactions(self, block: Block) -> tuple[bytes, ...]:
        """The transactions of a block, one piece each."""
        return self._pieces(block, "transactions", lambda: render.transactions(block))

    def logs(self, block: Block) -> tuple[bytes, ...]:
        """The logs of a block, one piece each, in the order of the block."""
        return self._pieces(block, "logs", lambda: render.logs(block))

    def flat_traces(self, block: Block) -> bytes:
        """The traces of a block as trace_block gives them."""
        return self._whole(block, "flat_traces", lambda: render.flat_traces(block))

    def call_traces(self, block: Block) -> bytes:
        """The traces of a block as the callTracer gives them."""
        return self._whole(block, "call_traces", lambda: render.call_traces(block))

    def _whole(self, block: Block, kind: str, make: Callable[[], Any]) -> bytes:
        return self._keep(block, kind, lambda: (orjson.dumps(make()),))[0]

    def _pieces(
        self, block: Block, kind: str, make: Callable[[], list[render.Json]]
    ) -> tuple[bytes, ...]:
        return self._keep(block, kind, lambda: tuple(map(orjson.dumps, make())))

    def _keep(
        self, block: Block, kind: str, make: Callable[[], tuple[bytes, ...]]
    ) -> tuple[bytes, ...]:
        key = (block.hash, kind)
        pieces = self._kept.get(key)
        if pieces is not None:
            self._kept.move_to_end(key)
            return pieces
        pieces = make()
        self._kept[key] = pieces
        self.size += _size(pieces)
        while self.size > self.size_max and len(self._kept) > 1:
            _, gone = self._kept.popitem(last=False)
            self.size -= _size(gone)
        return pieces


def array(pieces: Iterable[bytes]) -> bytes:
    """Pieces as one JSON array."""
    return b"[" + b",".join(pieces) + b"]"


#: What one piece costs beside its bytes: the object, its place in the tuple and the key.
_PIECE_OVERHEAD = 64


def _size(pieces: tuple[bytes, ...]) -> int:
    return sum(map(len, pieces)) + _PIECE_OVERHEAD * (len(pieces) + 1)
