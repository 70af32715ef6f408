"""Owns the graph of datasets and jobs: who writes what, who reads it, and in which order.

Raw datasets are its roots. A dataset has one writer, so an edge leads from a job to every job that
reads what it writes; the graph has no cycle, or it is not built. A change travels along it: block
by block through cursor jobs, widened to whole partitions by partition jobs, from its first block to
the end through serial and full ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unfork.chain import span as spans
from unfork.chain.advance import Day
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.jobs.partition import Grid
from unfork.jobs.spec import JobSpec


class Cycle(Exception):
    """Jobs that wait for each other; `path` leads from a job back to itself."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(" → ".join(path))
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """A job that a change reaches, and what it has to look at again."""

    job: str
    #: Blocks of its output that may come out differently.
    spans: tuple[Span, ...]
    #: The datasets through which the change reaches it.
    through: tuple[str, ...]


class Lineage:
    """The jobs in an order in which none stands before a job whose output it reads."""

    def __init__(self, specs: Iterable[JobSpec]) -> None:
        """Raises Cycle where there is no such order."""
        known = tuple(spec for spec in specs if not (spec.is_source or spec.is_compaction))
        self.writers: Mapping[str, JobSpec] = {spec.output: spec for spec in known}
        self.order: tuple[JobSpec, ...] = _ordered(known, self.writers)
        self.jobs: Mapping[str, JobSpec] = {spec.name: spec for spec in self.order}

    def writer(self, dataset: str) -> JobSpec | None:
        """The job that writes a dataset, None for a raw one."""
        return self.writers.get(dataset)

    def readers(self, dataset: str) -> tuple[JobSpec, ...]:
        """The jobs that read a dataset, in order."""
        return tuple(spec for spec in self.order if dataset in spec.inputs)

    def upstream(self, job: str) -> tuple[JobSpec, ...]:
        """All jobs that one depends on, in order."""
        wanted = set(self.jobs[job].inputs)
        found = []
        for spec in reversed(self.order):
            if spec.output in wanted:
                wanted |= set(spec.inputs)
                found.append(spec)
        return tuple(reversed(found))

    def needed(self, job: str) -> Lineage:
        """A job, and every job that has to come before it."""
        wanted = {self.jobs[job].output}
        found = []
        for spec in reversed(self.order):
            if spec.output in wanted:
                wanted |= set(spec.awaited)
                found.append(spec)
        return Lineage(reversed(found))

    def downstream(self, dataset: str) -> tuple[JobSpec, ...]:
        """All jobs that depend on a dataset, directly or not, in order."""
        reached = {dataset}
        found = []
        for spec in self.order:
            if reached & set(spec.inputs):
                reached.add(spec.output)
                found.append(spec)
        return tuple(found)

    def cascade(
        self,
        dataset: str,
        changed: Iterable[Span],
        *,
        first: int,
        last: int,
        days: Sequence[Day] = (),
    ) -> tuple[Touched, ...]:
        """What a change of a dataset may reach at most, in order, within the blocks first..last.

        At most: a job whose rows come out equal ends the change there.
        """
        known = Span(first, last)
        moved: dict[str, tuple[Span, ...]] = {dataset: _within(changed, known)}
        found = []
        for spec in self.order:
            through = tuple(name for name in dict.fromkeys(spec.inputs) if moved.get(name))
            if not through:
                continue
            arriving = spans.merge(
                Span(part.first, known.last) if name in spec.lookups else part
                for name in through
                for part in moved[name]
            )
            touched = _widened(spec, arriving, known, days)
            if touched:
                found.append(Touched(job=spec.name, spans=touched, through=through))
                moved[spec.output] = touched
        return tuple(found)


def _widened(
    spec: JobSpec, arriving: tuple[Span, ...], known: Span, days: Sequence[Day]
) -> tuple[Span, ...]:
    """The blocks of a job's output that depend on changed blocks of its inputs."""
    if spec.mode is Mode.FULL:
        return (known,)
    if spec.is_serial:
        return (Span(arriving[0].first, known.last),)
    if spec.partitioning is None:
        return arriving
    grid = Grid(spec.partitioning, first=known.first, last=known.last, days=days)
    wide = (grid.widen(part) for part in arriving)
    return spans.merge(part for part in wide if part is not None)


def _within(changed: Iterable[Span], known: Span) -> tuple[Span, ...]:
    parts = (spans.intersect(part, known) for part in changed)
    return spans.merge(part for part in parts if part is not None)


def _ordered(specs: Sequence[JobSpec], writers: Mapping[str, JobSpec]) -> tuple[JobSpec, ...]:
    """Depth first, in the order of the file, so that the same file always gives the same order."""
    order: dict[str, JobSpec] = {}
    path: list[str] = []

    def visit(spec: JobSpec) -> None:
        if spec.name in order:
            return
        if spec.name in path:
            raise Cycle((*path[path.index(spec.name) :], spec.name))
        path.append(spec.name)
        for dataset in spec.awaited:
            if dataset in writers:
                visit(writers[dataset])
        path.pop()
        order[spec.name] = spec

    for spec in specs:
        visit(spec)
    return tuple(order.values())
