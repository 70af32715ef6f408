"""Owns a reading of derived data: the rows of a dataset's served build, up to its watermark.

How a dataset is kept decides how it can be read:
- by blocks (mode cursor, replace and append): any span up to the watermark; of the rows that append
  keeps, those of blocks that a fork took away are left out;
- as a state (merge, and mode full): as a whole, at its watermark and at no other block;
- by partitions: whole ones, whose versions are current and valid.

Invariants:
- Every task checks in the very state it reads that the build is still the one that is served, that
  the chain still holds the ref R, and that what it reads is complete.
- Above the floor, and for states and partitions, all tasks import the run's snapshot where it has
  one. A correction at or below the floor invalidates whatever has read the rows before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import Filter

from unfork import errors
from unfork.app import derived
from unfork.app.derived import DerivedDataset
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.queries import Query, Sql
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import ByDay, Mode, Strategy
from unfork.jobs.spark import place as places
from unfork.jobs.spark import push, raw_reading
from unfork.jobs.spark.connection import Connection
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.place import Place
from unfork.jobs.spark.push import Pushed
from unfork.jobs.spark.rows import Rows, chosen


class Shape(Enum):
    """How the rows of a dataset lie along the chain."""

    BLOCKS = "blocks"
    STATE = "state"
    PARTITIONS = "partitions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """The served build of a dataset."""

    id: int
    dataset: DerivedDataset
    table: str
    #: The first block it is computed from.
    first: int

    @property
    def shape(self) -> Shape:
        """How its rows lie along the chain."""
        if self.dataset.strategy is Strategy.MERGE or self.dataset.mode is Mode.FULL:
            return Shape.STATE
        return Shape.BLOCKS if self.dataset.mode is Mode.CURSOR else Shape.PARTITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read, with everything that a moment decides decided."""

    request: Request
    chain: str
    build: Build
    columns: tuple[Column, ...]
    #: Tasks to cut it into, at most, on either side of the floor.
    pieces: int
    #: The blocks to read, None where there are none.
    span: Span | None
    #: The block up to which the chain is read, None where nothing is computed.
    at: BlockRef | None
    #: The number of the floor, -1 where nothing is final.
    floor: int
    epoch: int

    def push(self, filters: Iterable[Filter]) -> Pushed:
        """What the database is asked to filter by."""
        dataset = self.build.dataset
        number = dataset.number_column if self.build.shape is Shape.BLOCKS else None
        return push.push(filters, dataset.columns, number=number)

    def cut(self, pushed: Pushed) -> list[Task]:
        """The tasks of the reading, those at or below the floor first."""
        if self.build.shape is not Shape.BLOCKS:
            return [] if self.span is None else [self._whole(self.span, pushed)]
        wanted = raw_reading.both(self.span, pushed.span)
        return [
            self._task(piece, pushed, is_final=is_final)
            for side, is_final in raw_reading.sides(wanted, self.floor)
            for piece in raw_reading.pieces(side, self.pieces)
        ]

    def _whole(self, span: Span, pushed: Pushed) -> Task:
        """The one task for what cannot be cut; below the floor no hash is left to be checked."""
        assert self.at is not None
        task = self._task(span, pushed, is_final=self.at.number < self.floor)
        return replace(task, snapshot=self.request.snapshot)

    def _task(self, span: Span, pushed: Pushed, *, is_final: bool) -> Task:
        return Task(
            config=self.request.config,
            chain=self.chain,
            build=self.build,
            columns=self.columns,
            span=span,
            conditions=pushed.conditions,
            epoch=self.epoch,
            at=None if is_final else self.at,
            snapshot=None if is_final else self.request.snapshot,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of a reading, for one connection."""

    #: The path of the configuration, None where the reader's environment says.
    config: str | None
    chain: str
    build: Build
    columns: tuple[Column, ...]
    span: Span
    conditions: Sql
    epoch: int
    #: The block that the state read must know, None where it is final.
    at: BlockRef | None
    #: The state to read, None for blocks that are final and where the run holds none.
    snapshot: str | None

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch; raises SnapshotLost and BlockReplaced."""
        place = places.find(self.config, self.chain)
        rows = Rows(self.columns)
        query = _rows_query(place, self.build, self.span, rows.expressions, self.conditions)
        with place.app() as connection, connection.one_state(self.snapshot):
            _require(connection, place, self)
            for found in connection.batches(query):
                yield rows.batch(found)


def resolve(request: Request, place: Place) -> Reading:
    """Decides what is read: build, blocks, ref, floor and epoch, from the database as it is now."""
    with place.app() as connection, connection.one_state(request.snapshot):
        row = connection.row(place.queries["derived_served"], request.dataset)
        if row is None:
            raise _unknown(connection, place, request.dataset)
    build = Build(
        id=row["id"],
        dataset=derived.from_document(json.loads(row["declaration"])),
        table=row["table_name"],
        first=row["first_number"],
    )
    at, span = _wanted(request, place, build, row)
    floor = -1 if row["floor_number"] is None else row["floor_number"]
    if request.at is not None and request.floor is None and request.at.number < floor:
        _require_final(request.at, place)
    return Reading(
        request=request,
        chain=place.chain.name,
        build=build,
        columns=chosen(build.dataset, request.columns),
        pieces=request.tasks or place.config.spark.read_tasks,
        span=span,
        at=at,
        floor=floor,
        epoch=row["epoch"] if request.epoch is None else request.epoch,
    )


def _wanted(
    request: Request, place: Place, build: Build, row: dict[str, Any]
) -> tuple[BlockRef | None, Span | None]:
    """The block up to which is read, and the blocks asked for; each None where there is none."""
    name = build.dataset.name
    if row["cursor_value"] is None and build.shape is not Shape.PARTITIONS:
        if request.at is not None or request.last is not None:
            raise errors.BlockReplaced(f"nothing of {name} is computed yet; read again later")
        return None, None
    mark = None
    if row["cursor_value"] is not None:
        mark = BlockRef(row["cursor_value"], row["cursor_hash"])
    at = request.at or mark
    last = request.last if request.last is not None else at.number if at else None
    if at is None or last is None:
        return None, None
    if last > at.number:
        raise errors.ConfigInvalid(
            f"option last: block {last} lies above {at}, up to which is read"
        )
    first = build.first if request.first is None else request.first
    if first < build.first:
        raise errors.ConfigInvalid(
            f"option first: {name} of {place.chain.name} begins at block {build.first}, not at "
            f"{first}"
        )
    if build.shape is Shape.STATE and first > build.first:
        raise errors.ConfigInvalid(
            f"option first: {name} says how things stand at one block and is read as a whole"
        )
    return at, Span(first, last) if first <= last else None


def _require(connection: Connection, place: Place, task: Task) -> None:
    """Raises BlockReplaced unless what the task reads is complete and of its chain."""
    number = task.span.last if task.at is None else task.at.number
    row = connection.row(place.queries["derived_state"], task.build.id, number)
    name = task.build.dataset.name
    if row is None or row["state"] != "served":
        raise errors.BlockReplaced(f"another build of {name} has taken the place; read again")
    if row["epoch"] != task.epoch:
        raise errors.BlockReplaced(
            f"an operator has unwound {place.chain.name} below its floor since this was planned; "
            "read again"
        )
    if task.at is not None and row["hash"] != task.at.hash:
        raise raw_reading.replaced(task.at, row["hash"], place)
    problem = _missing(connection, place, task, row["cursor_value"])
    if problem:
        raise errors.BlockReplaced(f"{name} {problem}; read again", wanted=task.at)


def _missing(connection: Connection, place: Place, task: Task, watermark: int | None) -> str | None:
    """What is not complete of what a task reads, None where everything is."""
    last = task.span.last
    match task.build.shape:
        case Shape.BLOCKS:
            if watermark is None or watermark < last:
                return f"is complete up to block {watermark}, not up to {last}"
        case Shape.STATE:
            if watermark != last:
                return f"stands at block {watermark}, not at {last}"
        case Shape.PARTITIONS:
            at = task.span.first
            query = place.queries["derived_versions"]
            for row in connection.table(query, task.build.id, at, last).to_pylist():
                if row["first_number"] != at or not row["is_valid"]:
                    break
                at = row["last_number"] + 1
            if at != last + 1:
                return f"has no partitions that are valid and hold exactly blocks {task.span}"
    return None


def _rows_query(place: Place, build: Build, span: Span, expressions: Sql, conditions: Sql) -> Query:
    dataset = build.dataset
    name = "derived_by_blocks"
    if build.shape is Shape.STATE:
        name = "derived_whole"
    elif dataset.strategy is Strategy.APPEND:
        name = "derived_kept"
    elif isinstance(dataset.partitioning, ByDay):
        is_date = dataset.kind(dataset.partitioning.column) is Kind.DATE
        name = "derived_by_dates" if is_date else "derived_by_days"
    column = dataset.partitioning.column if isinstance(dataset.partitioning, ByDay) else ""
    return place.queries.of(
        name,
        dataset.name,
        expressions=expressions,
        table=build.table,
        id=build.id,
        number=dataset.number_column,
        hash=dataset.hash_column,
        column=column or dataset.number_column,
        first=span.first,
        last=span.last,
        conditions=conditions,
    )


def _require_final(at: BlockRef, place: Place) -> None:
    """Raises BlockReplaced unless the raw store holds a block that is final to the app side."""
    with place.raw() as connection:
        row = connection.row(place.queries["read_ref"], at.number)
    if row is None or row["hash"] != at.hash:
        raise raw_reading.replaced(at, None if row is None else row["hash"], place)


def _unknown(connection: Connection, place: Place, name: str) -> errors.ConfigInvalid:
    served = connection.table(place.queries["derived_names"]).column("dataset").to_pylist()
    known = ", ".join([*raw_reading.known(place), *served])
    return errors.ConfigInvalid(
        f"option dataset: {place.chain.name} has no {name!r}; there are {known}"
    )
