"""Owns a reading, whatever is read: raw data from one database, derived data from the other.

What is read is decided once, from the options and from the databases as they are: which columns, of
which blocks, up to which ref. Spark then pushes filters, asks for tasks, and has each of them read
somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import Filter

from unfork.database.queries import Sql
from unfork.datasets.dataset import Column
from unfork.jobs.spark import derived_reading, raw_reading, schema
from unfork.jobs.spark import place as places
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.push import ALL, Pushed


class Task(Protocol):
    """One piece of a reading, for one connection; it travels to where it is run."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        ...


class Reading(Protocol):
    """What is read, with everything that a moment decides decided."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns, in order."""
        ...

    def push(self, filters: Iterable[Filter]) -> Pushed:
        """What of the filters the database is asked to answer."""
        ...

    def cut(self, pushed: Pushed) -> Sequence[Task]:
        """The tasks; none where no row can pass."""
        ...


def resolve(request: Request) -> Reading:
    """Decides what is read; raises ConfigInvalid where there is no such thing."""
    place = places.find(request.config, request.chain)
    dataset = raw_reading.known(place).get(request.dataset)
    if dataset is not None:
        return raw_reading.resolve(request, place, dataset)
    return derived_reading.resolve(request, place)


def table(reading: Reading) -> pa.Table:
    """All of a reading, in this process: a few blocks are there before Spark has made its tasks."""
    everything = Pushed(span=ALL, conditions=Sql(""), left=())
    batches = [batch for task in reading.cut(everything) for batch in task.read()]
    return whole(pa.Table.from_batches(batches, schema.arrow(reading.columns)))


def whole(table: pa.Table) -> pa.Table:
    """The same table in at least one piece: Spark takes no list that has none."""
    return table if table.num_rows else table.schema.empty_table()
