"""Owns the contract reads of one run: whose rows ask, and the tables of answers for its transform.

Questions that are asked in the same places (a token's name, symbol and decimals) are asked together
by a small run. A built-in job may leave out what it knows already: then a function says who is
asked, and what the job has written before this run is told to it, in exactly the state after which
the run is. A job that is computed in the order of the chain alone has such a state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unfork import errors
from unfork.app.generations import Generation
from unfork.chain.block import BlockRef
from unfork.datasets.dataset import ARROW
from unfork.jobs import code
from unfork.jobs import read as reads
from unfork.jobs.calling import Calls
from unfork.jobs.declaration import Declarations
from unfork.jobs.read import Asking, Read
from unfork.jobs.spark import asking, kept, schema
from unfork.jobs.spark.asking import Asker, Question
from unfork.jobs.spark.kept import Moment
from unfork.jobs.spark.place import Place
from unfork.jobs.spec import JobSpec
from unfork.jobs.verdict import Anchor, AsRead


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """What the reads of one run need to know of it."""

    spark: SparkSession
    place: Place
    declarations: Declarations
    #: The path by which tasks find the configuration, None for their own.
    config: str | None
    #: The node, for a run that asks from this process; None where its tasks ask.
    calls: Calls | None
    #: The build that is written; None where nothing is.
    build: Generation | None
    anchor: Anchor
    as_read: AsRead

    def frames(self, spec: JobSpec, inputs: Sequence[DataFrame]) -> list[DataFrame]:
        """The answers, in the order of the job's reads."""
        named = dict(zip(spec.inputs, inputs, strict=True))
        asked: dict[tuple[object, ...], DataFrame] = {}
        for read in spec.reads:
            if read.asks_alike not in asked:
                asked[read.asks_alike] = self._asked(read, named)
        questions = [self._question(read) for read in spec.reads]
        frames = [asked[read.asks_alike] for read in spec.reads]
        if self.calls is not None:
            return self._here(self.calls, questions, frames)
        return [
            self._in_tasks(question, frame)
            for question, frame in zip(questions, frames, strict=True)
        ]

    @property
    def _moment(self) -> Moment:
        floor = self.as_read.floor
        return Moment(
            last=self.anchor.last,
            floor=-1 if floor is None else floor,
            epoch=self.as_read.epoch,
        )

    def _question(self, read: Read) -> Question:
        return Question(read=read, asked=read.asked(self.declarations.asked(read.of)))

    def _here(
        self, calls: Calls, questions: Sequence[Question], frames: Sequence[DataFrame]
    ) -> list[DataFrame]:
        """Asks from this process, everything at once."""
        tables: dict[int, pa.Table] = {}
        for frame in frames:
            if id(frame) not in tables:
                tables[id(frame)] = frame.toArrow()
        asker = Asker(self.place, self._moment, calls, keeps=self.build is not None)
        asked = [
            (question, tables[id(frame)]) for question, frame in zip(questions, frames, strict=True)
        ]
        return [
            self.spark.createDataFrame(table, schema.struct(question.columns)).coalesce(1)
            for (question, _), table in zip(asked, asker.answers(asked), strict=True)
        ]

    def _in_tasks(self, question: Question, frame: DataFrame) -> DataFrame:
        """Has tasks ask, each with its share of what may be under way."""
        tasks = min(self.place.config.spark.read_tasks, self.place.chain.source.concurrency)
        task = asking.Task(
            question=question,
            moment=self._moment,
            chain=self.place.chain.name,
            config=self.config,
            tasks=tasks,
        )
        spread = frame.repartition(tasks)
        return spread.mapInArrow(task, schema.struct(question.columns))

    def _asked(self, read: Read, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """The rows that ask, each question once."""
        if read.asking is not None:
            return self._said(read, read.asking, inputs)
        columns = self.declarations.asked(read.of)
        number, hash = reads.place_of(columns)
        rows = inputs[read.of].select(
            F.col(number).alias("block_number"),
            F.col(hash).alias("block_hash"),
            F.col(read.address).alias("address"),
            *read.arguments,
        )
        return rows.dropna().distinct()

    def _said(self, read: Read, asking: Asking, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """The rows that a function says."""
        if self.build is None:
            raise errors.Misconfigured(
                f"`{read.name}` is asked by what the job has written before, so it can only be run"
            )
        function = code.load(asking.function, None)
        rows = function(*inputs.values(), self._known(asking, inputs, self.build))
        names = [column.name for column in (*reads.PLACE, *asking.carried)]
        return rows.select(*names)  # type: ignore[no-any-return]

    def _known(
        self, asking: Asking, inputs: Mapping[str, DataFrame], build: Generation
    ) -> DataFrame:
        """What the job has written of the addresses that its inputs name."""
        named, *others = (
            inputs[dataset].select(F.col(column).alias("address")).dropna()
            for dataset, column in asking.keys
        )
        for other in others:
            named = named.union(other)
        found = named.distinct().toArrow()
        keys = found.column("address").to_pylist()
        rows = []
        if keys:
            first, parent = self.anchor.span.first, None
            if first > build.first:
                assert self.anchor.parent_hash is not None
                parent = BlockRef(first - 1, self.anchor.parent_hash)
            with kept.opened(self.place, self._moment) as store:
                rows = store.known(build, parent, keys, asking.known)
        columns = [one for one in build.dataset.columns if one.name in asking.known]
        table = pa.Table.from_pylist(
            rows, pa.schema([(column.name, ARROW[column.kind]) for column in columns])
        )
        return self.spark.createDataFrame(table, schema.struct(columns))
