"""Owns what the checks of a run see around its rows: other datasets at R, and how old rows are.

Everything is as it is at the block R that the run computes up to, or the run is planned again: an
input is read in a state that holds R, and the newest stored row is asked of a build that stands
right below the run.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork import errors
from unfork.app.generations import Generation
from unfork.chain.block import BlockRef
from unfork.datasets.derivation import Mode
from unfork.jobs.check import Relation
from unfork.jobs.inputs import Inputs, Moment
from unfork.jobs.run import Run
from unfork.jobs.spark.place import Place
from unfork.jobs.spark.push import VALUES_MAX
from unfork.jobs.spark.snapshot import Snapshots
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Anchor


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What there is around one run."""

    place: Place
    inputs: Inputs
    #: The states that the run holds, None where each input is read in one of its own.
    held: Snapshots | None
    run: Run
    build: Generation
    #: The run's own blocks, and R.
    at: Moment

    @property
    def anchor(self) -> Anchor:
        """What ties the run's blocks to the chain."""
        return self.at.anchor

    @property
    def moment(self) -> datetime | None:
        """When R was made; None over history, whose rows are old by nature."""
        is_asked = self.run.kind is Kind.LIVE or self.run.mode is Mode.FULL
        return self._made(self.anchor.last.number) if is_asked else None

    def age(self, newest: int | None) -> float:
        """How many seconds older than R the newest row is, computed or stored."""
        found = newest
        if found is None and self.run.mode is Mode.CURSOR:
            found = self._stored()
        if found is None:
            span = self.anchor.span
            found = self.build.first if self.run.mode is Mode.CURSOR else span.first
        return (self._made(self.anchor.last.number) - self._made(found)).total_seconds()

    def related(self, relation: Relation, values: DataFrame) -> DataFrame:
        """The rows of another dataset that may have one of these values."""
        if relation.is_by_block:
            return self._read(relation, is_whole=False)
        # A few values are looked up by the database; of many, Spark compares all.
        wanted = values.limit(VALUES_MAX + 1).toArrow()
        there = self._read(relation, is_whole=True)
        if wanted.num_rows <= VALUES_MAX:
            for mine, other in zip(relation.columns, relation.to, strict=True):
                known: list[Any] = list(dict.fromkeys(wanted[mine].to_pylist()))
                there = there.where(F.col(other).isin(known) if known else F.lit(False))
        return there

    def _read(self, relation: Relation, *, is_whole: bool) -> DataFrame:
        name, columns = relation.dataset, relation.to
        return self.inputs.read(name, self.at, columns, self.held, is_whole=is_whole)

    def _made(self, number: int) -> datetime:
        """When a block was made."""
        with self.place.raw() as connection:
            row = connection.row(self.place.queries["check_time"], number)
        if row is None:
            raise errors.BlockReplaced(f"block {number} is not held any more; read again")
        made: datetime = row["timestamp"]
        return made

    def _stored(self) -> int | None:
        """The block of the newest stored row; raises BlockReplaced where it is of another chain."""
        first = self.anchor.span.first
        dataset = self.build.dataset
        query = self.place.queries.of(
            "check_newest",
            self.build.table,
            table=self.build.table,
            number=dataset.number_column,
            hash=dataset.hash_column,
            first=first,
            id=self.build.id,
        )
        with self.place.app() as connection:
            found = connection.table(query).to_pylist()
        mark = None
        if found and found[0]["cursor_value"] is not None:
            mark = BlockRef(found[0]["cursor_value"], found[0]["cursor_hash"])
        before = self.anchor.parent_hash
        if mark is not None and before is not None and mark != BlockRef(first - 1, before):
            raise errors.BlockReplaced(f"the build stands at {mark}, not below {first}; read again")
        newest: int | None = found[0]["number"] if found else None
        return newest
