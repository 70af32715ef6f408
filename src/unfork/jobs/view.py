"""Owns the planner's questions to a state: what is canonical, what can be read, what is open.

Everything is found by number or by build in constant time, and coverage is computed once a dataset:
a plan over ten thousand partitions must not look at each of them twice.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.jobs.lineage import Lineage
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import Generation, Lease, Outdated, State, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Readable:
    """Which blocks of a dataset can be read now, and rely on."""

    dataset: str
    #: The highest block; one less than the first where there is none.
    last: int
    #: Blocks below it that are to be computed again first.
    holes: tuple[Span, ...]
    #: Whether it can be read up to any block below the last, or only as a whole.
    is_cuttable: bool


class View:
    """One state, prepared for planning."""

    def __init__(self, lineage: Lineage, state: State) -> None:
        assert state.head is not None and state.first is not None
        self.lineage = lineage
        self.state = state
        self.first: int = state.first
        self.head: BlockRef = state.head
        self.floor: int = -1 if state.floor is None else state.floor.number
        self._hashes = {ref.number: ref.hash for ref in state.refs}
        #: Below this every block is final and its hash not kept.
        self.refs_first: int = state.refs[0].number if state.refs else self.head.number
        self._served = {one.dataset: one for one in state.generations if one.is_served}
        self._building = {one.dataset: one for one in state.generations if not one.is_served}
        self._leases: dict[int, list[Lease]] = defaultdict(list)
        self._outdated: dict[int, list[Outdated]] = defaultdict(list)
        self._readable: dict[str, Readable | None] = {}
        for lease in state.leases:
            self._leases[lease.generation].append(lease)
        for row in state.outdated:
            self._outdated[row.generation].append(row)

    def served(self, dataset: str) -> Generation | None:
        """The build that is read under a dataset's name."""
        return self._served.get(dataset)

    def building(self, dataset: str) -> Generation | None:
        """The build beside it."""
        return self._building.get(dataset)

    def leases(self, generation: int) -> list[Lease]:
        """The leases of a build."""
        return self._leases.get(generation, [])

    def outdated(self, generation: int) -> list[Outdated]:
        """What a build has to do again."""
        return self._outdated.get(generation, [])

    def at(self, number: int) -> BlockRef | None:
        """The block of the chain at a number, None where it is not kept."""
        hash = self._hashes.get(number)
        return None if hash is None else BlockRef(number, hash)

    def is_canonical(self, number: int, hash: bytes | None) -> bool:
        """Whether a block that something was computed up to is on the chain."""
        if number < self.refs_first:
            return True  # Final, and unwound by nobody but an operator, who unwinds everything.
        return hash is not None and self._hashes.get(number) == hash

    def is_placed(self, generation: Generation) -> bool:
        """Whether a build's watermark is on the chain."""
        mark = generation.watermark
        return mark is None or self.is_canonical(mark.number, mark.hash)

    def readable(self, dataset: str) -> Readable | None:
        """What can be read of a dataset, None where nothing can."""
        if dataset not in self._readable:
            self._readable[dataset] = self._find_readable(dataset)
        return self._readable[dataset]

    def _find_readable(self, dataset: str) -> Readable | None:
        writer = self.lineage.writer(dataset)
        if writer is None:
            # What is not fetched has no rows, up to the head: nobody waits for them.
            return Readable(dataset=dataset, last=self.head.number, holes=(), is_cuttable=True)
        built = self.served(dataset)
        if built is None or not self.is_placed(built):
            return None
        if writer.partitioning is not None:
            return self._partitions(built)
        return self._rows(writer, built)

    def _rows(self, writer: JobSpec, built: Generation) -> Readable | None:
        if built.watermark is None:
            return None
        last = built.watermark.number
        open_ = [row.span for row in self.outdated(built.id)]
        if writer.is_state and any(span.first <= last for span in open_):
            return None  # A state that is to be corrected is wrong as a whole.
        inside = (spans.intersect(span, Span(built.first, last)) for span in open_)
        holes = spans.merge(span for span in inside if span is not None)
        return Readable(
            dataset=built.dataset, last=last, holes=holes, is_cuttable=not writer.is_state
        )

    def _partitions(self, built: Generation) -> Readable | None:
        covered: list[list[int]] = []
        for version in built.versions:
            if not self.is_good(version):
                continue
            if covered and covered[-1][1] + 1 == version.first:
                covered[-1][1] = version.last
            else:
                covered.append([version.first, version.last])
        if not covered:
            return None
        last = covered[-1][1]
        whole = [Span(built.first, last)]
        holes = spans.subtract(whole, (Span(first, end) for first, end in covered))
        return Readable(dataset=built.dataset, last=last, holes=holes, is_cuttable=False)

    def is_good(self, version: Version) -> bool:
        """Whether a version still is what it was computed from."""
        return version.is_valid and (
            version.last < self.refs_first or self.is_canonical(version.last, version.last_hash)
        )
