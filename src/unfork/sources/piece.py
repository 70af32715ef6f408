"""Owns the piece: some contiguous blocks, decoded, on their way into a batch.

Blocks are fetched in pieces of a size that suits the node and committed in batches of a size that
suits the store; pieces can be cut between any two blocks and joined again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unfork.chain.block import BlockRef
from unfork.datasets import evm


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Linked blocks of one fork with their tables."""

    #: The block below the first one; None below block 0.
    parent: BlockRef | None
    #: The blocks, ascending, without gaps.
    refs: tuple[BlockRef, ...]
    #: Rows by dataset name.
    tables: Mapping[str, pa.Table]

    @property
    def last(self) -> BlockRef:
        """The highest block."""
        return self.refs[-1]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(table.num_rows for table in self.tables.values())

    @property
    def bytes(self) -> int:
        """Bytes of all tables together."""
        return sum(table.nbytes for table in self.tables.values())

    def fitting(self, *, blocks: int, rows: int, size: int) -> int:
        """How many of the first blocks stay within the bounds."""
        ends = sum(self._ends(name) for name in self.tables)
        by_rows = int(np.searchsorted(ends, rows, side="right"))
        by_size = int(len(self.refs) * size / max(self.bytes, 1))
        return max(0, min(len(self.refs), blocks, by_rows, by_size))

    def cut(self, blocks: int) -> tuple[Piece, Piece]:
        """The first `blocks` blocks, and the others."""
        assert 0 < blocks < len(self.refs)
        ends = {name: int(self._ends(name)[blocks - 1]) for name in self.tables}
        low = {name: table.slice(0, ends[name]) for name, table in self.tables.items()}
        high = {name: table.slice(ends[name]) for name, table in self.tables.items()}
        return (
            Piece(parent=self.parent, refs=self.refs[:blocks], tables=low),
            Piece(parent=self.refs[blocks - 1], refs=self.refs[blocks:], tables=high),
        )

    def _ends(self, name: str) -> NDArray[np.int64]:
        """For each block the number of rows up to its end."""
        column = self.tables[name].column(evm.BY_NAME[name].number_column)
        numbers = column.to_numpy()
        return np.searchsorted(numbers, [ref.number for ref in self.refs], side="right")


def join(pieces: Sequence[Piece]) -> Piece:
    """One piece of several that follow each other, each table in one run of memory."""
    for below, above in pairwise(pieces):
        assert above.parent == below.last, "pieces of two forks are never joined"
    if len(pieces) == 1:
        return pieces[0]
    tables = {
        name: pa.concat_tables([piece.tables[name] for piece in pieces]).combine_chunks()
        for name in pieces[0].tables
    }
    refs = tuple(ref for piece in pieces for ref in piece.refs)
    return Piece(parent=pieces[0].parent, refs=refs, tables=tables)
