"""Owns the stream of changes: the journal as rows that came and rows that went, entry by entry.

A micro-batch is a span of journal entries, and what an entry did never changes: its rows are found
wherever a later fork has moved them. So a batch that is run again after a crash is the same batch,
whatever the chain did meanwhile.

The rows have two more columns before their own: `change` (insert or delete) and `change_seq`, the
journal entry that did it. Within a batch they have no order; applied by `change_seq` they lead from
the state at the batch's start to that at its end. Sinks must expect a batch twice, as Spark says.

Invariants:
- An offset is a journal entry and the position after it. Where the journal says otherwise (the
  store was reset or restored), or where rows that follow it are gone, the stream ends with
  StreamLost.
- What a registered stream has still to read is kept: it is registered before it reads, and moves
  only when Spark has made a batch durable.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from unfork import errors
from unfork.chain.span import Span
from unfork.database.queries import Query
from unfork.datasets.dataset import Column, Dataset, Kind
from unfork.jobs.spark import place as places
from unfork.jobs.spark import raw_reading
from unfork.jobs.spark.connection import Connection
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.place import Place
from unfork.jobs.spark.rows import Rows, chosen

#: The columns that say what happened to a row.
CHANGE = Column("change", Kind.TEXT)
CHANGE_SEQ = Column("change_seq", Kind.INT)

INSERTED = ((CHANGE, "'insert'::text"), (CHANGE_SEQ, "block.journal_seq"))
DELETED = ((CHANGE, "'delete'::text"), (CHANGE_SEQ, "row.unwind_seq"))

#: Seconds between two signs of life of a stream that has nothing to do.
SEEN_EVERY_S = 30.0

#: A place in the journal, as Spark keeps it: `seq`, `number` and `hash` (hex), in this order.
Offset = dict[str, Any]

#: Before the first journal entry.
BEGINNING: Offset = {"seq": 0, "number": None, "hash": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Some blocks of a micro-batch, for one connection."""

    #: The journal entries: those after the one and up to the other.
    after: int
    upto: int
    #: Whether the rows held at `upto` are wanted, not what led to them.
    is_snapshot: bool
    span: Span


def columns(request: Request) -> tuple[Column, ...]:
    """The columns of a stream: what happened, then the row; its block is always among them."""
    place = places.find(request.config, request.chain)
    return (CHANGE, CHANGE_SEQ, *_own(request, _known(place, request.dataset)))


def forget(place: Place, name: str) -> None:
    """Takes a stream off the record, so that nothing is kept for it; safe to repeat."""
    with place.raw() as connection:
        connection.run(place.queries["stream_forget"], name)


class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One stream: in the driver it decides what a batch is, in tasks it reads."""

    def __init__(self, request: Request) -> None:
        assert request.stream is not None
        self._request = request
        self._name = request.stream
        self._connection: Connection | None = None
        self._target: int | None = None
        self._seen_at: float | None = None

    def initialOffset(self) -> Offset:
        """Where a new stream begins."""
        if self._request.start != "latest":
            return BEGINNING
        return self._offset(self._state()["seq"])

    def prepareForTriggerAvailableNow(self) -> None:
        """Ends the stream at what is there now."""
        self._target = self._state()["seq"]

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch: what is there now, as far as one batch may go."""
        self._register(start)
        end = self._state()["seq"] if self._target is None else self._target
        if not self._is_snapshot(start):
            end = min(end, start["seq"] + self._request.entries_max)
        return start if end <= start["seq"] else self._offset(end)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """The tasks of a batch; the same batch may be asked for again after a restart."""
        self._register(start)
        row = self._row("stream_span", start["seq"], end["seq"])
        if row is None or row["first"] is None:
            return []
        touched = Span(row["first"], row["last"])
        pieces = self._request.tasks or self._place.config.spark.read_tasks
        return [
            InputPartition(
                Piece(
                    after=start["seq"],
                    upto=end["seq"],
                    is_snapshot=self._is_snapshot(start),
                    span=span,
                )
            )
            for span in raw_reading.pieces(touched, pieces)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        piece: Piece = partition.value
        place = self._place
        dataset = _known(place, self._request.dataset)
        own = _own(self._request, dataset)
        rows = Rows(own, dataset.payloads, place.payloads, before=INSERTED)
        query = place.queries.of(
            "stream_snapshot" if piece.is_snapshot else "stream_changes",
            dataset.name,
            inserted=rows.expressions,
            deleted=Rows(own, dataset.payloads, place.payloads, before=DELETED).expressions,
            table=dataset.name,
            orphaned=f"orphaned_{dataset.name}",
            number=dataset.number_column,
            first=piece.span.first,
            last=piece.span.last,
            after=piece.after,
            upto=piece.upto,
        )
        with place.raw() as connection, connection.one_state():
            row = connection.row(self._query("stream_state"))
            self._require_kept(row, piece.upto if piece.is_snapshot else piece.after)
            for found in connection.batches(query):
                yield rows.batch(found)

    def commit(self, end: Offset) -> None:
        """Spark has made everything up to `end` durable: what came before is not needed again."""
        self._record(end["seq"])

    def stop(self) -> None:
        """Ends the driver's connection; the stream stays on record."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _place(self) -> Place:
        return places.find(self._request.config, self._request.chain)

    def _is_snapshot(self, start: Offset) -> bool:
        return bool(start["seq"] == 0 and self._request.start == "snapshot")

    def _register(self, start: Offset) -> None:
        """Puts the stream on record at its place, then makes sure that it can go on from there.

        In this order: a pruning that does not see the stream has said by then how far it goes.
        """
        now = time.monotonic()
        if self._seen_at is not None and now - self._seen_at < SEEN_EVERY_S:
            return
        self._record(start["seq"])
        if start["seq"] > 0 and self._offset(start["seq"]) != start:
            raise errors.StreamLost(
                f"stream {self._name} has read up to journal entry {start['seq']} at block "
                f"{start['number']} ({start['hash']}), which is not what the journal of "
                f"{self._place.chain.name} says: the store was reset or restored; begin again "
                "with a new checkpoint",
                stream=self._name,
            )
        if not self._is_snapshot(start):
            self._require_kept(self._state(), start["seq"])
        self._seen_at = now

    def _require_kept(self, row: dict[str, Any] | None, seq: int) -> None:
        if row is None or row["pruned"] > seq:
            raise errors.StreamLost(
                f"stream {self._name} has read up to journal entry {seq}, but orphaned rows are "
                f"kept only after entry {row and row['pruned']}; begin again with a new "
                "checkpoint (option start: snapshot), or raise ORPHAN_KEEP before that",
                stream=self._name,
            )

    def _record(self, seq: int) -> None:
        self._open().run(self._query("stream_register"), self._name, seq)

    def _state(self) -> dict[str, Any]:
        return self._row("stream_state") or {"seq": 0, "pruned": 0}

    def _offset(self, seq: int) -> Offset:
        """The place after a journal entry; the beginning where there is no such entry."""
        row = self._row("stream_entry", seq)
        if row is None:
            return BEGINNING
        hash = None if row["hash"] is None else "0x" + row["hash"].hex()
        return {"seq": row["seq"], "number": row["number"], "hash": hash}

    def _row(self, name: str, *parameters: Any) -> dict[str, Any] | None:
        return self._open().row(self._query(name), *parameters)

    def _query(self, name: str) -> Query:
        return self._place.queries[name]

    def _open(self) -> Connection:
        """The driver's connection, which lives as long as the stream."""
        if self._connection is None:
            self._connection = self._place.connect_raw()
        return self._connection


def _known(place: Place, name: str) -> Dataset:
    """A raw dataset of the chain by its name: what is derived has no journal."""
    known = raw_reading.known(place)
    if name not in known:
        raise errors.ConfigInvalid(
            f"option dataset: {place.chain.name} has no {name!r} to stream; there are "
            f"{', '.join(known)}"
        )
    return known[name]


def _own(request: Request, dataset: Dataset) -> tuple[Column, ...]:
    """The columns of the rows: those asked for, and those that name their block."""
    asked = chosen(dataset, request.columns)
    named = (dataset.number_column, dataset.hash_column)
    block = [column for column in dataset.columns if column.name in named and column not in asked]
    return (*block, *asked)
