"""Owns what the driver reads by itself: of a few blocks, the rows that a job looks at.

A run at the head is small, and so is what it reads: of an input whose rows matter by what they hold
the others are left in the database, and of a lookup only what the driving rows ask for is taken,
however much lies in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import In

from unfork.datasets.dataset import Column
from unfork.datasets.derivation import Lookup
from unfork.jobs.spark import reading, schema
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.push import VALUES_MAX
from unfork.jobs.spark.reading import Reading


class Read:
    """An input as the driver has read it."""

    def __init__(self, columns: Sequence[Column], table: pa.Table) -> None:
        self.columns = columns
        self.table = table


def rows(request: Request, only: Mapping[str, Sequence[bytes]]) -> Read:
    """The rows that hold one of the values in each of some columns.

    Where there are too many values to ask for, all rows are read: whoever wants less looks again.
    """
    found = reading.resolve(request)
    filters = [In((name,), tuple(values)) for name, values in only.items()]
    return Read(found.columns, _table(found, [filters]))


def looked_up(request: Request, lookup: Lookup, driving: Read) -> Read:
    """The rows of a lookup that the driving rows ask for."""
    found = reading.resolve(request)
    values = driving.table.column(lookup.by).unique().drop_null().to_pylist()
    parts = [values[first : first + VALUES_MAX] for first in range(0, len(values), VALUES_MAX)]
    return Read(found.columns, _table(found, [[In((lookup.column,), tuple(p))] for p in parts]))


def _table(found: Reading, questions: Sequence[Sequence[Any]]) -> pa.Table:
    """The answers to several questions, one after the other."""
    batches = [
        batch
        for filters in questions
        for task in found.cut(found.push(filters))
        for batch in task.read()
    ]
    return reading.whole(pa.Table.from_batches(batches, schema.arrow(found.columns)))
