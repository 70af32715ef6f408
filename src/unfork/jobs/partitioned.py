"""Owns the planning of partition jobs: which partitions are missing, grown, wrong, or fine.

A partition is fine when its version was computed from exactly the blocks it has now. The one that
still grows is live; the others are history, each by itself. Ten thousand fine partitions cost a
glance each: only those that do not fit are looked at closely.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.jobs.partition import Grid, Partition
from unfork.jobs.run import Action, Cause
from unfork.jobs.state import Kind, Lease
from unfork.jobs.view import Readable
from unfork.jobs.work import Work, holes_of


def plan(work: Work) -> None:
    """Plans a build."""
    inputs = work.inputs()
    if inputs is not None:
        _Partitions(work, inputs).plan()


class _Partitions:
    def __init__(self, work: Work, inputs: list[Readable]) -> None:
        assert work.spec.partitioning is not None
        view = work.view
        self.work = work
        self.inputs = inputs
        self.holes = holes_of(inputs)
        self.last = min(readable.last for readable in inputs)
        self.grid = Grid(
            work.spec.partitioning,
            first=work.generation.first,
            last=self.last,
            days=view.state.days,
        )
        self.versions = {version.key: version for version in work.generation.versions}
        #: Inputs that end elsewhere and cannot be cut: the partition there has to wait for them.
        self.is_torn = any(
            not readable.is_cuttable and readable.last != self.last for readable in inputs
        )

    def plan(self) -> None:
        work, grid = self.work, self.grid
        work.take_leases(
            self._is_wanted,
            lambda lease: Action.REPLACE,
            lambda lease: grid.at(lease.span.first).key,
        )
        pieces = [run.span for run in work.part.runs]
        count = len(pieces)
        is_waiting = False
        passed = grid.first - 1
        for first, last in self._suspects():
            for partition in grid.within(max(first, passed + 1), last):
                if len(work.part.runs) >= work.limits.runs_max:
                    count += grid.count(partition.first, last)
                    pieces.append(Span(partition.first, min(last, grid.last)))
                    break
                passed = partition.last
                if self._need(partition) is None or self._is_blocked(partition):
                    continue
                if self._is_unreadable(partition):
                    is_waiting = True
                elif partition.is_open and work.is_live:
                    work.rest(Cause.BUSY, partition.span, "waits for the other live run")
                elif not self._rests(partition):
                    self._run(partition)
                    pieces.append(partition.span)
                    count += 1
        work.count(spans.merge(pieces), runs=count)
        if is_waiting:
            work.rest(Cause.WAITING, None, "waits for its inputs to be corrected or to catch up")
        elif not work.part.runs and not work.part.idle and not work.blocked:
            work.rest(Cause.CURRENT, None, f"includes every block up to {grid.last}")

    def _run(self, partition: Partition) -> None:
        version = self.versions.get(partition.key)
        if partition.is_open:
            kind = Kind.LIVE
        else:
            kind = Kind.BACKFILL if version is None else Kind.RECOMPUTE
        rows = None if version is None else version.rows
        self.work.plan(
            partition.span, action=Action.REPLACE, kind=kind, partition=partition.key, rows=rows
        )

    def _suspects(self) -> Iterator[tuple[int, int]]:
        """Spans of blocks in which something is missing or does not fit, ascending."""
        view = self.work.view
        refs_first = view.refs_first
        ends_at = self.grid.ends_at
        at = self.grid.first
        for version in self.work.generation.versions:
            first, last = version.first, version.last
            if first != at:
                if first > at:
                    yield at, first - 1
                yield first, last
            elif not version.is_valid or not ends_at(last):
                yield first, last
            elif last >= refs_first and not view.is_canonical(last, version.last_hash):
                yield first, last
            at = last + 1
        if at <= self.grid.last:
            yield at, self.grid.last

    def _need(self, partition: Partition) -> Literal["missing", "wrong", "grown"] | None:
        """Why a partition is to be computed; None where its version is fine."""
        version = self.versions.get(partition.key)
        if version is None:
            return "missing"
        if not self.work.view.is_good(version) or version.first != partition.first:
            return "wrong"
        if version.last < partition.last:
            return "grown"
        # A version that goes further than the inputs do now is fine where the partition is open.
        return "wrong" if version.last > partition.last and not partition.is_open else None

    def _is_wanted(self, lease: Lease) -> bool:
        first, last = lease.span.first, lease.span.last
        if not self.grid.first <= first <= self.grid.last:
            return False
        partition = self.grid.at(first)
        is_part = partition.first == first and last <= partition.last
        if not is_part or self._need(partition) is None or self._is_unreadable(partition):
            return False
        return last == partition.last or all(readable.is_cuttable for readable in self.inputs)

    def _is_blocked(self, partition: Partition) -> bool:
        return any(partition.span.overlaps(span) for span in self.work.blocked)

    def _is_unreadable(self, partition: Partition) -> bool:
        if self.is_torn and partition.last == self.last:
            return True
        return any(partition.span.overlaps(hole) for hole in self.holes)

    def _rests(self, partition: Partition) -> bool:
        """Whether a partition that only grows ran a moment ago."""
        version = self.versions.get(partition.key)
        if version is None or not partition.is_open or self._need(partition) != "grown":
            return False
        again = version.at + timedelta(seconds=self.work.spec.min_interval_s)
        if again <= self.work.view.state.now:
            return False
        why = f"runs at most every {self.work.spec.min_interval_s:g} s"
        self.work.rest(Cause.INTERVAL, partition.span, why)
        return True
