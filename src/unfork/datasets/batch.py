"""Owns the batch: contiguous whole blocks of one fork, as one Arrow table per dataset.

Invariants: refs ascend by one; the parent stands right below the first; every row of every table
belongs to one of the refs, by number and by hash; a block is whole or absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from unfork.chain.block import BlockRef, Head
from unfork.chain.span import Span
from unfork.datasets.scope import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a source hands on and a follower commits."""

    #: The block that the first one names as its parent; None for the chain's very first block.
    parent: BlockRef | None
    #: The blocks, ascending, without gaps.
    refs: tuple[BlockRef, ...]
    #: Rows by dataset name; a dataset in scope without rows is an empty table.
    tables: Mapping[str, pa.Table]
    #: What the source said of its tip when the batch was made.
    head: Head
    #: What was asked for.
    scope: Scope = field(default_factory=Scope)

    def __post_init__(self) -> None:
        assert self.refs, "a batch holds at least one block"
        first = self.refs[0].number
        assert [ref.number for ref in self.refs] == list(range(first, first + len(self.refs)))
        assert (self.parent is None) == (first == 0)
        assert self.parent is None or self.parent.number == first - 1

    @property
    def span(self) -> Span:
        """The numbers of the batch."""
        return Span(self.refs[0].number, self.refs[-1].number)

    @property
    def last(self) -> BlockRef:
        """The block the position moves to when the batch is committed."""
        return self.refs[-1]

    @property
    def rows(self) -> int:
        """Rows of all tables together."""
        return sum(table.num_rows for table in self.tables.values())

    def until(self, last: int) -> Batch:
        """The batch without the blocks above a number, which must not be all of them."""
        if last >= self.last.number:
            return self
        tables = {
            name: table.filter(
                pc.less_equal(table["number" if name == "blocks" else "block_number"], last)
            )
            for name, table in self.tables.items()
        }
        refs = tuple(ref for ref in self.refs if ref.number <= last)
        return replace(self, refs=refs, tables=tables)

    @property
    def bytes(self) -> int:
        """Bytes of all tables together, as Arrow counts them."""
        return sum(table.nbytes for table in self.tables.values())
