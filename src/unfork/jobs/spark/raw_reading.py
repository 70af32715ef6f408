"""Owns a reading of raw data: blocks up to one ref, cut into tasks that see one chain.

What the lake holds of it, at or below the floor, is read from its files (cold.py), the rest from
the hot tables; where one ends the other begins, so no row is read twice and none is missed.

A block's rows never change while its hash stays, so a state of the database that holds the ref R
holds exactly the blocks of R's chain up to R. Every task checks R in the very state it reads:
whatever happens between two tasks, either all of them read one chain or the reading fails.

Invariants:
- Blocks at or below the floor are read without a snapshot; only an operator can take them away,
  and the epoch tells.
- Above the floor all tasks import the run's snapshot where it has one; without one, a fork between
  two tasks fails the reading with BlockReplaced, which is worth a second try.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import Filter

from unfork import errors
from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.queries import Sql
from unfork.datasets.dataset import Column, Dataset
from unfork.datasets.scope import Scope
from unfork.hot import schema as raw_schema
from unfork.jobs.spark import cold as colds
from unfork.jobs.spark import place as places
from unfork.jobs.spark import push
from unfork.jobs.spark.cold import Cold, FileTask
from unfork.jobs.spark.connection import Connection
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.place import Place
from unfork.jobs.spark.push import Pushed
from unfork.jobs.spark.rows import Rows, chosen

#: Blocks below which a reading is not cut any further.
PIECE_BLOCKS_MIN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What depends on when one looks at the chain."""

    #: The blocks to read, None where there are none.
    span: Span | None
    #: The block up to which the chain is read, None where nothing is held.
    at: BlockRef | None
    #: The number of the floor, -1 where nothing is final.
    floor: int
    #: The chain's epoch.
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is read, with everything that a moment decides decided."""

    request: Request
    chain: str
    dataset: Dataset
    columns: tuple[Column, ...]
    #: Tasks to cut it into, at most, on either side of the floor.
    pieces: int
    moment: Moment
    #: What of it is read from the lake.
    cold: Cold = colds.NOTHING

    def push(self, filters: Iterable[Filter]) -> Pushed:
        """What the database is asked to filter by; Spark filters too what comes from files."""
        dataset, filters = self.dataset, tuple(filters)
        offloaded = {payload.column for payload in dataset.payloads}
        held = [column for column in dataset.columns if column.name not in offloaded]
        pushed = push.push(filters, held, number=dataset.number_column)
        return replace(pushed, left=filters) if self.cold.spans else pushed

    def cut(self, pushed: Pushed) -> list[Task | FileTask]:
        """The tasks of the reading: files of the lake first, then those at or below the floor."""
        wanted = both(self.moment.span, pushed.span)
        if wanted is None:
            return []
        among = colds.among(pushed.left)
        tasks: list[Task | FileTask] = [
            FileTask(
                config=self.request.config,
                chain=self.chain,
                columns=self.columns,
                number=self.dataset.number_column,
                piece=piece,
                among=among,
            )
            for piece in self.cold.pieces(wanted)
        ]
        for span in self.hot(wanted):
            tasks += self._hot_tasks(span, pushed)
        return tasks

    def hot(self, wanted: Span) -> tuple[Span, ...]:
        """The blocks of a span that are read from the hot tables."""
        return spans.subtract([wanted], self.cold.spans)

    def _hot_tasks(self, span: Span, pushed: Pushed) -> list[Task]:
        moment, tasks = self.moment, []
        for side, is_final in sides(span, moment.floor):
            tasks += [
                Task(
                    config=self.request.config,
                    chain=self.chain,
                    dataset=self.dataset,
                    columns=self.columns,
                    span=piece,
                    conditions=pushed.conditions,
                    epoch=moment.epoch,
                    at=None if is_final else moment.at,
                    snapshot=None if is_final else self.request.snapshot,
                )
                for piece in pieces(side, self.pieces)
            ]
        return tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One piece of a reading, for one connection."""

    #: The path of the configuration, None where the reader's environment says.
    config: str | None
    chain: str
    dataset: Dataset
    columns: tuple[Column, ...]
    span: Span
    conditions: Sql
    epoch: int
    #: The block that the state read must hold, None at or below the floor.
    at: BlockRef | None
    #: The state to read, None at or below the floor and where the run holds none.
    snapshot: str | None

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch; raises SnapshotLost, BlockReplaced, PayloadDamaged."""
        place = places.find(self.config, self.chain)
        rows = Rows(self.columns, self.dataset.payloads, place.payloads)
        query = place.queries.of(
            "read_rows",
            self.dataset.name,
            expressions=rows.expressions,
            table=self.dataset.name,
            number=self.dataset.number_column,
            first=self.span.first,
            last=self.span.last,
            conditions=self.conditions,
        )
        with place.raw() as connection, connection.one_state(self.snapshot):
            _require_chain(connection, place, self)
            for found in connection.batches(query):
                yield rows.batch(found)


def resolve(request: Request, place: Place, dataset: Dataset) -> Reading:
    """Decides what is read: blocks, ref, floor and epoch, from the chain as it is now.

    A request that names all of them is not looked up: whoever holds a snapshot did that.
    """
    moment = _given(request) or _looked_up(request, place, dataset)
    span = moment.span
    if span is not None and moment.at is not None and span.last > moment.at.number:
        raise errors.ConfigInvalid(
            f"option last: block {span.last} lies above {moment.at}, up to which is read"
        )
    final = both(span, Span(0, moment.floor)) if moment.floor >= 0 else None
    return Reading(
        request=request,
        chain=place.chain.name,
        dataset=dataset,
        columns=chosen(dataset, request.columns),
        pieces=request.tasks or place.config.spark.read_tasks,
        moment=moment,
        cold=colds.NOTHING if request.store == "hot" else colds.find(place, dataset, final),
    )


def pieces(span: Span, count: int) -> list[Span]:
    """A span in about so many pieces, none of them so small that it is not worth a connection."""
    return list(spans.split(span, max(-(-len(span) // count), PIECE_BLOCKS_MIN)))


def known(place: Place) -> dict[str, Dataset]:
    """The raw datasets of a chain, by name."""
    return {dataset.name: dataset for dataset in raw_schema.datasets(place.chain.family)}


def _given(request: Request) -> Moment | None:
    """The moment that the request itself names, None where it leaves something open."""
    if request.at is None or request.floor is None or request.epoch is None:
        return None
    first = request.first
    last = request.at.number if request.last is None else request.last
    if first is None:
        return None
    return Moment(
        span=Span(first, last) if first <= last else None,
        at=request.at,
        floor=request.floor,
        epoch=request.epoch,
    )


def _looked_up(request: Request, place: Place, dataset: Dataset) -> Moment:
    """The moment as the database has it."""
    with place.raw() as connection, connection.one_state(request.snapshot):
        row = connection.row(place.queries["read_chain"])
        if row is None or row["position_number"] is None:
            if request.at is not None:
                raise replaced(request.at, None, place)
            return Moment(span=None, at=None, floor=-1, epoch=row["epoch"] if row else 0)
        at = request.at or BlockRef(row["position_number"], row["position_hash"])
        first = row["first_number"] if request.first is None else request.first
        last = at.number if request.last is None else request.last
        span = Span(first, last) if first <= last else None
        if span is not None:
            require_scope(connection, place, dataset, span, row["first_number"])
    floor = -1 if row["floor_number"] is None else row["floor_number"]
    return Moment(span=span, at=at, floor=floor, epoch=row["epoch"])


def both(left: Span | None, right: Span | None) -> Span | None:
    """The numbers in two spans, each of which may be none at all."""
    return None if left is None or right is None else spans.intersect(left, right)


def sides(wanted: Span | None, floor: int) -> Iterator[tuple[Span, bool]]:
    """The parts of a span at or below the floor, and above it, where there are any."""
    if wanted is not None and wanted.first <= floor:
        yield Span(wanted.first, min(wanted.last, floor)), True
    if wanted is not None and wanted.last > floor:
        yield Span(max(wanted.first, floor + 1), wanted.last), False


def _require_chain(connection: Connection, place: Place, task: Task) -> None:
    """Raises BlockReplaced unless this state holds the chain that the reading is about."""
    at = task.at or BlockRef(task.span.last, b"\0")
    row = connection.row(place.queries["read_ref"], at.number)
    if row is None or row["epoch"] != task.epoch:
        raise errors.BlockReplaced(
            f"an operator has unwound {place.chain.name} below its floor since this was planned; "
            "read again"
        )
    if task.at is not None and row["hash"] != at.hash:
        raise replaced(at, row["hash"], place)


def replaced(at: BlockRef, hash: bytes | None, place: Place) -> errors.BlockReplaced:
    ours = None if hash is None else BlockRef(at.number, hash)
    return errors.BlockReplaced(
        f"{place.chain.name} does not hold block {at} (at that number: {ours or 'none'}); a fork "
        "has taken it away, or it has not come yet; read again",
        wanted=at,
        ours=ours,
    )


def require_scope(
    connection: Connection, place: Place, dataset: Dataset, span: Span, first: int
) -> None:
    """Raises ConfigInvalid where the rows asked for were never fetched: none is not empty."""
    if span.first < first:
        raise errors.ConfigInvalid(
            f"option first: {place.chain.name} begins at block {first}, not at {span.first}"
        )
    scopes = connection.table(place.queries["read_scopes"], span.first, span.last)
    for row in scopes.to_pylist():
        document = json.loads(row["scope"])
        held = Scope(kind=document["kind"], traces=document["traces"]).datasets
        if dataset.name not in held:
            raise errors.ConfigInvalid(
                f"{place.chain.name} holds no {dataset.name} of blocks {row['first']} to "
                f"{row['last']}: they were fetched with a scope of {', '.join(held)}"
            )
