"""Owns the preview of a job: what it would write over some blocks, computed and kept nowhere.

It computes as a run does, from the code as it is now, but claims, writes and publishes nothing.
Inputs come from the store where it holds them as they would be computed now; others are computed in
memory by their own jobs, over the same blocks. What can only be known from all blocks before (a
merge, an append whose key lacks the block) has to be stored, and is asked for by name where it is
not.

Everything is read at blocks of one chain: what was read is looked at again at the end, and where a
fork came in between all of it is done again.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unfork import errors
from unfork.app import refused, rows
from unfork.app.derived import DerivedDataset
from unfork.app.refused import Refused
from unfork.chain.advance import Day
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.dataset import Column
from unfork.datasets.derivation import ByDay, Mode, Strategy
from unfork.jobs import days as chain_days
from unfork.jobs import differ, judge
from unfork.jobs.answering import Answering
from unfork.jobs.calling import Calls
from unfork.jobs.check import Relation, Severity
from unfork.jobs.declaration import Declarations
from unfork.jobs.differ import Difference
from unfork.jobs.inputs import LOCAL_BLOCKS_MAX, Inputs, Moment
from unfork.jobs.lineage import Lineage
from unfork.jobs.partition import Grid, Partition
from unfork.jobs.spark import raw_reading, reading, schema
from unfork.jobs.spark.place import Place
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import State
from unfork.jobs.stored import Stored

#: Times that a preview is done again because a fork came in between.
TRIES_MAX = 5
#: Partitions that one preview computes at most: each is computed by itself.
PARTITIONS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """What a job would write."""

    spec: JobSpec
    dataset: DerivedDataset
    #: The blocks that were computed: those asked for, or the whole partitions around them.
    span: Span
    #: The last of them.
    at: BlockRef
    #: How many rows there are.
    count: int
    #: The first of them in the order of the chain, as plain values.
    rows: tuple[dict[str, Any], ...]
    #: The derived datasets that were computed in memory, for want of stored rows.
    computed: tuple[str, ...]
    #: What is stored of the same blocks, compared; None where that cannot be.
    difference: Difference | None
    #: The checks that the rows fail, as sentences, those that would keep them back first.
    findings: tuple[str, ...]
    #: Whether the rows would be published.
    is_published: bool
    #: What a person should know about all this.
    notes: tuple[str, ...]
    seconds: float


@dataclass(slots=True)
class _Seen:
    """What one try has read and has to say."""

    moments: list[Moment] = field(default_factory=list)
    computed: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class Previews:
    """Previews of the jobs of one chain, as its stores are at one moment."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        declarations: Declarations,
        lineage: Lineage,
        inputs: Inputs,
        *,
        calls: Calls | None,
        state: State | None,
    ) -> None:
        """`state` is the survey's; None where nothing was ever computed. `calls` is the node, where
        a job asks contracts.
        """
        self._spark = spark
        self._place = place
        self._declarations = declarations
        self._lineage = lineage
        self._state = state
        self._stored = Stored(place, lineage, state)
        self._inputs = inputs
        self._calls = calls
        self._seen = _Seen()

    def compute(
        self, job: str, *, span: Span | None = None, last: int | None = None, limit: int = 20
    ) -> Preview:
        """What a job would write over a span, or over the last blocks; blocks until it is there.

        Raises Misconfigured where an input is missing that only a worker can compute, and whatever
        keeps the job from computing.
        """
        for again in range(TRIES_MAX):
            self._seen = _Seen()
            self._stored = Stored(self._place, self._lineage, self._state)
            try:
                found = self._compute(self._lineage.jobs[job], span, last, limit)
                self._require_one_chain()
                return found
            except errors.BlockReplaced:
                if again + 1 == TRIES_MAX:
                    raise
        raise AssertionError("unreachable")

    def _compute(self, spec: JobSpec, span: Span | None, last: int | None, limit: int) -> Preview:
        started = time.monotonic()
        wanted = self._wanted(spec, span, last)
        dataset = self._declarations.datasets[spec.name]
        pieces = self._pieces(spec, wanted)
        whole = Span(pieces[0].first, pieces[-1].last)
        if whole != wanted:
            self._seen.notes.append(f"whole partitions around blocks {wanted} are computed")
        frame = self._rows(spec, pieces)
        moment = self._seen.moments[-1]
        is_small = len(whole) <= LOCAL_BLOCKS_MAX
        kept: DataFrame | None = None
        try:
            if is_small:
                table, told = refused.split(frame.toArrow())
                kind = judge.good(frame, dataset).schema
                frame = self._spark.createDataFrame(reading.whole(table), kind).coalesce(1)
                count = table.num_rows
            else:
                kept = frame.persist()
                told = self._refused(kept)
                frame = judge.good(kept, dataset)
                count = frame.count()
            if told.count:
                what = f"{told.count:,} rows are refused and told in indexing_errors instead"
                self._seen.notes.append(f"{what}, such as: {told.rows[0].message}")
            shown = frame.orderBy(*_places(dataset)).limit(limit).toArrow()
            found = self._judge(spec, dataset, frame, moment)
            difference = self._difference(spec, dataset, frame, whole, moment, limit)
        finally:
            if kept is not None:
                kept.unpersist()
        fitting = rows.fit(dataset, shown)
        messages = [one.message(whole) for one in found]
        return Preview(
            spec=spec,
            dataset=dataset,
            span=whole,
            at=moment.anchor.last,
            count=count,
            rows=tuple(differ.plain(dataset, row) for row in fitting.to_pylist()),
            computed=tuple(self._seen.computed),
            difference=difference,
            findings=tuple(messages),
            is_published=not any(one.check.severity is Severity.ERROR for one in found),
            notes=tuple(self._seen.notes),
            seconds=time.monotonic() - started,
        )

    def _wanted(self, spec: JobSpec, span: Span | None, last: int | None) -> Span:
        """The blocks that a person asked for, as far as they are held."""
        with self._place.raw() as connection:
            row = connection.row(self._place.queries["read_chain"])
        if row is None or row["position_number"] is None:
            raise errors.Misconfigured(f"no block of {self._place.chain.name} is stored yet")
        lowest, highest = row["first_number"], row["position_number"]
        if span is None:
            span = Span(max(lowest, highest - (last or 1) + 1), highest)
        if span.first < lowest or span.last > highest:
            raise errors.Misconfigured(
                f"blocks {lowest}..{highest} of {self._place.chain.name} are stored, not all of "
                f"{span}"
            )
        if spec.mode is Mode.FULL:
            return Span(lowest, self._state_block(spec, span.last))
        return span

    def _state_block(self, spec: JobSpec, last: int) -> int:
        """The block up to which a full job can be computed: a state is only read where it is."""
        states = [name for name in spec.inputs if self._is_merged(name)]
        marks = {self._stored.up_to(name) for name in states}
        if not marks:
            return last
        if len(marks) > 1 or None in marks:
            names = " and ".join(f"`{name}`" for name in states)
            raise errors.Misconfigured(
                f"job `{spec.name}` reads {names}, which only a worker computes, block after "
                "block; start one (`unfork work`) and ask again"
            )
        (mark,) = marks
        assert mark is not None
        self._seen.notes.append(f"`{states[0]}` stands at block {mark}; that is where it is read")
        return mark

    def _pieces(self, spec: JobSpec, span: Span) -> list[Span]:
        """The spans that are computed each by itself: partitions, or all at once."""
        if spec.partitioning is None:
            return [span]
        pieces: list[Span] = [part.span for part in self._partitions(spec, span)]
        if len(pieces) > PARTITIONS_MAX:
            raise errors.Misconfigured(
                f"blocks {span} lie in {len(pieces):,} partitions of `{spec.output}`; a preview "
                f"computes {PARTITIONS_MAX} at most"
            )
        return pieces

    def _partitions(self, spec: JobSpec, span: Span) -> Iterable[Partition]:
        assert spec.partitioning is not None
        with self._place.raw() as connection:
            row = connection.row(self._place.queries["read_chain"])
        assert row is not None
        lowest, highest = row["first_number"], row["position_number"]
        days: Sequence[Day] = ()
        if isinstance(spec.partitioning, ByDay):
            days = chain_days.around(span, Span(lowest, highest), self._made)
            lowest, highest = days[0].first, days[-1].last
        grid = Grid(spec.partitioning, first=lowest, last=highest, days=days)
        return list(grid.within(span.first, span.last))

    def _made(self, number: int) -> datetime:
        with self._place.raw() as connection:
            row = connection.row(self._place.queries["check_time"], number)
        if row is None:
            raise errors.BlockReplaced(f"block {number} is not held any more; read again")
        made: datetime = row["timestamp"]
        return made

    def _rows(self, spec: JobSpec, pieces: Sequence[Span]) -> DataFrame:
        """The rows of a job over some spans, not computed yet."""
        frames = []
        for piece in pieces:
            moment = self._inputs.look(piece)
            self._seen.moments.append(moment)
            given = [self._input(spec, name, piece, moment) for name in spec.inputs]
            if spec.reads:
                given += self._answers(spec, given, moment)
            made = self._declarations.transforms[spec.name].apply(self._spark, given)
            names = self._declarations.datasets[spec.name].names
            frames.append(made.select(*names, *self._declarations.refusals[spec.name]))
        return functools.reduce(DataFrame.unionAll, frames)

    def _input(self, spec: JobSpec, name: str, span: Span, moment: Moment) -> DataFrame:
        """An input as the store has it, or as its own job would write it now."""
        is_whole = name in spec.lookups
        if is_whole:
            with self._place.raw() as connection:
                row = connection.row(self._place.queries["read_chain"])
            assert row is not None
            span = Span(row["first_number"], span.last)
        if self._declarations.is_derived(name) and not self._stored.holds(name, span):
            return self._computed(name, span)
        columns = spec.columns.get(name, ())
        return self._inputs.read(name, moment, columns, is_whole=is_whole)

    def _answers(
        self, spec: JobSpec, given: Sequence[DataFrame], moment: Moment
    ) -> list[DataFrame]:
        """What contracts answer, asked from here and kept nowhere."""
        if self._calls is None:
            raise errors.Misconfigured(
                f"job `{spec.name}` asks contracts, and {self._place.chain.name} has no node to "
                "ask; set source.urls"
            )
        answering = Answering(
            spark=self._spark,
            place=self._place,
            declarations=self._declarations,
            config=None,
            calls=self._calls,
            build=None,
            anchor=moment.anchor,
            as_read=moment.as_read,
        )
        return answering.frames(spec, given)

    def _refused(self, frame: DataFrame) -> Refused:
        """The rows that would be refused."""
        if refused.ERROR not in frame.columns:
            return refused.NOTHING
        return refused.read(frame.where(F.col(refused.ERROR).isNotNull()).toArrow())

    def _computed(self, name: str, span: Span) -> DataFrame:
        """A derived input that is not stored, computed by its own job as it would be read."""
        spec = self._lineage.writer(name)
        assert spec is not None
        if not spec.is_planned or spec.name not in self._declarations.datasets:
            raise errors.Misconfigured(f"`{name}` cannot be computed: {spec.unavailable}")
        if spec.is_serial:
            raise errors.Misconfigured(
                f"`{name}` is not stored up to block {span.last}, and only a worker computes it: "
                "its rows gather what all blocks before brought; start one (`unfork work`) and ask "
                "again"
            )
        self._seen.computed[name] = None
        dataset = self._declarations.datasets[spec.name]
        frame = judge.good(self._rows(spec, self._pieces(spec, span)), dataset)
        if spec.strategy is Strategy.APPEND:
            frame = frame.dropDuplicates(list(dataset.key))
        return frame.select(*map(_stored, dataset.columns))

    def _judge(
        self, spec: JobSpec, dataset: DerivedDataset, frame: DataFrame, moment: Moment
    ) -> tuple[judge.Finding, ...]:
        """The checks that the rows fail; how fresh they are depends on when a run takes place."""
        asked = []
        for check in spec.checks:
            condition = check.condition
            if isinstance(condition, Relation) and not self._can_read(condition, moment):
                self._seen.notes.append(
                    f"check `{check.name}` is not judged: `{condition.dataset}` is not stored"
                )
            else:
                asked.append(check)
        if not asked:
            return ()
        world = _World(self._inputs, moment)
        given = dataclasses.replace(spec, checks=tuple(asked))
        return judge.judge(self._spark, given, dataset, frame, world)

    def _can_read(self, relation: Relation, moment: Moment) -> bool:
        name = relation.dataset
        return not self._declarations.is_derived(name) or self._stored.holds(
            name, moment.anchor.span
        )

    def _difference(
        self,
        spec: JobSpec,
        dataset: DerivedDataset,
        frame: DataFrame,
        span: Span,
        moment: Moment,
        limit: int,
    ) -> Difference | None:
        """How the rows differ from those that are stored of the same blocks."""
        if spec.strategy is Strategy.MERGE:
            note = "these are changes; a merge folds them into one row a key, so none is compared"
            self._seen.notes.append(note)
            return None
        covered = self._stored.covered(spec, span)
        if covered is None:
            self._seen.notes.append(f"nothing of `{spec.output}` is stored of these blocks")
            return None
        if covered != span:
            self._seen.notes.append(f"`{spec.output}` is stored, and compared, for {covered}")
            number = F.col(dataset.number_column)
            frame = frame.where(number.between(covered.first, covered.last))
        at = moment if covered == span else self._inputs.look(covered)
        old = self._inputs.read(spec.output, at)
        return differ.differ(dataset, frame, old, span=covered, limit=limit)

    def _is_merged(self, name: str) -> bool:
        writer = self._lineage.writer(name)
        return writer is not None and writer.strategy is Strategy.MERGE

    def _require_one_chain(self) -> None:
        """Raises BlockReplaced unless everything that was read is of the chain as it is now."""
        with self._place.raw() as connection, connection.one_state(None):
            for moment in self._seen.moments:
                last = moment.anchor.last
                row = connection.row(self._place.queries["read_ref"], last.number)
                held = None if row is None else row["hash"]
                if held != last.hash:
                    raise raw_reading.replaced(last, held, self._place)


@dataclass(frozen=True, slots=True)
class _World:
    """What checks see around a preview."""

    inputs: Inputs
    at: Moment

    @property
    def moment(self) -> datetime | None:
        return None

    def age(self, newest: int | None) -> float:
        raise AssertionError("nobody asks how fresh a preview is")

    def related(self, relation: Relation, values: DataFrame) -> DataFrame:
        return self.inputs.read(
            relation.dataset, self.at, relation.to, is_whole=not relation.is_by_block
        )


def _places(dataset: DerivedDataset) -> list[str]:
    """The columns by which rows stand in the order of the chain."""
    known = ("block_number", "transaction_index", "log_index", "trace_index", "batch_ordinal")
    named = [name for name in known if name in dataset.names]
    return list(dict.fromkeys([*named, *dataset.key])) or [dataset.names[0]]


def _stored(column: Column) -> Any:
    """A column as it comes back from the store."""
    kept = F.col(column.name).cast(schema.SPARK[column.kind])
    return kept.alias(column.name, metadata={schema.KIND: column.kind.value})
