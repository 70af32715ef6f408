"""A raw journal in memory: drawn chains for tests of the app side that need no raw store."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests import drawn, toy
from unfork.chain.advance import Advance
from unfork.chain.block import BlockRef
from unfork.chain.span import Span


@dataclass
class Entry:
    """The chain after an entry, and how far an unwind took it down."""

    chain: tuple[BlockRef, ...]
    epoch: int
    #: Blocks left by an unwind; None for a commit.
    left: int | None


@dataclass
class Journal:
    """Follows the contract of what the app side follows."""

    first: int = 1
    chain: list[BlockRef] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    floor: int | None = None
    epoch: int = 1

    def commit(self, text: str) -> Journal:
        """Adds blocks drawn as text, such as `a1-b2`."""
        blocks = drawn.chain(text)
        assert blocks[0].number == self.first + len(self.chain)
        self.chain += blocks
        self.entries.append(Entry(tuple(self.chain), self.epoch, None))
        return self

    def unwind(self, number: int | None, *, by_operator: bool = False) -> Journal:
        """Goes back to a number, or to nothing."""
        left = 0 if number is None else number - self.first + 1
        del self.chain[left:]
        if by_operator and self.floor is not None and (number is None or number < self.floor):
            self.epoch += 1
            self.floor = number
        self.entries.append(Entry(tuple(self.chain), self.epoch, left))
        return self

    def finalize(self, number: int) -> Journal:
        """Raises the floor; told with the next entry."""
        self.floor = number
        return self

    def at(self, number: int) -> BlockRef:
        """The block of the chain at a number."""
        return self.chain[number - self.first]

    def blocks(self, span: Span) -> list[BlockRef]:
        """The blocks of a span."""
        return [self.at(number) for number in range(span.first, span.last + 1)]

    async def advance(
        self, *, after: int, position: BlockRef | None, blocks_max: int = 10_000
    ) -> Advance | None:
        if after == len(self.entries):
            return None
        falls = [e.left for e in self.entries[after:] if e.left is not None]
        held = 0 if position is None else position.number - self.first + 1
        left = min([held, *falls])
        base = self.chain[left - 1] if left else None
        new = self.chain[left:]
        floor = None
        if self.floor is not None and self.chain:
            floor = self.at(min(self.floor, self.chain[-1].number))
        return Advance(
            after=after,
            seq=len(self.entries),
            epoch=self.epoch,
            first=self.first,
            is_unwind=left < held,
            base=base if left < held or position is None else self.chain[held - 1],
            refs=tuple(ref for ref in new if floor is None or ref.number >= floor.number),
            position=self.chain[-1] if self.chain else None,
            floor=floor,
            days=toy.days(new),
        )
