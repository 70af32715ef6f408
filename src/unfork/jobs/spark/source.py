"""Owns `format("unfork")`: a dataset of a chain as a Spark DataFrame, and as a stream of changes.

Without `at` a DataFrame reads up to the position, as it is when Spark analyses the plan: once a
DataFrame on a Spark of our own, before every action over Spark Connect. DataFrames that belong
together (a join, two actions) are loaded with one `at`, or with the options of one `snapshot.hold`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.types import StructType

from unfork import errors
from unfork.jobs.spark import options, reading, schema, settling, stream
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.reading import Reading


class UnforkSource(DataSource):
    """Reads the tables of a chain; the options are described in options.py."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._reading: Reading | None = None

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "unfork"

    def schema(self) -> StructType:
        """The columns, and the moment at which everything else about the reading is decided."""
        settling.settle()
        request = options.parse(self.options)
        if request.stream is not None:
            return schema.struct(stream.columns(request))
        self._reading = reading.resolve(request)
        return schema.struct(self._reading.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the rows as they are."""
        if self._reading is None:
            raise errors.ConfigInvalid("option stream: a stream is read with readStream")
        request = options.parse(self.options)
        return (Pushing if request.push else Reader)(self._reading, request)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """A reader of what changes."""
        request = options.parse(self.options)
        if request.stream is None:
            raise errors.ConfigInvalid(
                "option stream is missing: a stream needs a name, by which its place is kept"
            )
        return stream.Reader(request)


class Reader(DataSourceReader):
    """One reading: tasks, then rows.

    It takes no filters from Spark, which keeps those of one use of a DataFrame for all of its uses
    (4.3): in `d.where(a).union(d)`, or in two actions, one would get the rows of the other.
    """

    def __init__(self, reading: Reading, request: Request) -> None:
        self._reading = reading
        self._only = [In((name,), values) for name, values in request.only.items()]
        self._pushed = reading.push(self._only)

    def partitions(self) -> Sequence[InputPartition]:
        """One task a span; none where no block can pass."""
        settling.settle()
        return [InputPartition(task) for task in self._reading.cut(self._pushed)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        settling.settle()
        # Without any task Spark asks for a nameless one.
        return iter(()) if partition.value is None else partition.value.read()


class Pushing(Reader):
    """The same for a DataFrame that is used once: the database answers its filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Keeps the filters that the database answers and gives the others back."""
        self._pushed = self._reading.push([*self._only, *filters])
        yield from (each for each in self._pushed.left if each not in self._only)
