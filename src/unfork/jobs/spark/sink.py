"""Owns the staging of a large run: each task sends its rows to the app database by itself.

What Spark computes does not pass through the driver. A task sends all its rows in one COPY, which
is in as a whole or not at all, marked with its number and attempt; what it returns to the driver is
how many there were. Spark counts one attempt a task, and so does the commit: whatever a task left
that failed after its COPY, or that ran twice, is never looked at.

It is an ordinary function over Arrow batches, so it works in the same way on a Spark of our own, on
a cluster and over Spark Connect.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import errors as refusals
from pyspark import TaskContext
from pyspark.sql import DataFrame

from unfork import errors
from unfork.app import refused, rows, staging
from unfork.app import schema as app_schema
from unfork.app.derived import DerivedDataset
from unfork.app.refused import Refused
from unfork.app.staging import Attempt, Staged
from unfork.database import copy, failures
from unfork.jobs.spark import connection, settling
from unfork.jobs.spark import place as places

#: What a task returns, for Spark and for Arrow: its number, its attempt, how many rows it sent, how
#: many it refused, and those of them that are told.
TYPES = "task bigint, attempt bigint, rows bigint, refused bigint, told binary"
MESSAGE = pa.schema(
    [
        ("task", pa.int64()),
        ("attempt", pa.int64()),
        ("rows", pa.int64()),
        ("refused", pa.int64()),
        ("told", pa.binary()),
    ]
)


def stage(
    frame: DataFrame,
    dataset: DerivedDataset,
    *,
    token: int,
    chain: str,
    config: str | None = None,
) -> Staged:
    """Computes a DataFrame, and has its rows staged by the tasks that compute them.

    The place must be there already (`staging.create`); `config` is the path of the configuration
    as executors see it. Blocks until all is done. Safe to repeat: only what the last call returns
    counts. Raises RowRefused, through Spark, where a row does not fit the dataset.
    """
    writer = Writer(dataset=dataset, token=token, chain=chain, config=config)
    return gathered(token, frame.mapInArrow(writer, TYPES).toArrow())


def gathered(token: int, told: pa.Table) -> Staged:
    """What all tasks have told, together."""
    rows = told.to_pylist()
    return Staged(
        token=token,
        attempts=tuple(
            Attempt(task=row["task"], attempt=row["attempt"], rows=row["rows"]) for row in rows
        ),
        refused=refused.joined(refused.unpacked(row["told"], row["refused"]) for row in rows),
    )


class Refusals:
    """What a task refuses of its rows while they pass."""

    def __init__(self) -> None:
        #: So far.
        self.refused: Refused = refused.NOTHING

    def sifted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that are not refused."""
        for batch in batches:
            if refused.ERROR not in batch.schema.names:
                yield batch
                continue
            kept, found = refused.split(pa.Table.from_batches([batch]))
            self.refused = refused.joined((self.refused, found))
            yield from kept.to_batches()


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """What every task does; it travels to where the task runs."""

    dataset: DerivedDataset
    token: int
    chain: str
    config: str | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Sends the rows of one task and tells how many there were."""
        settling.settle()
        context = TaskContext.get()
        assert context is not None, "only a task of Spark has rows to send"
        task, attempt = context.partitionId(), context.taskAttemptId()
        found = Refusals()
        count = self.send(found.sifted(batches), task=task, attempt=attempt)
        told = {"refused": found.refused.count, "told": refused.packed(found.refused)}
        yield pa.RecordBatch.from_pylist(
            [{"task": task, "attempt": attempt, "rows": count, **told}], schema=MESSAGE
        )

    def send(self, batches: Iterable[pa.RecordBatch], *, task: int, attempt: int) -> int:
        """Sends rows in one COPY; returns how many."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return 0
        sent = 0

        def tables() -> Iterator[pa.Table]:
            nonlocal sent
            for batch in itertools.chain([first], filled):
                sent += batch.num_rows
                yield self._marked(batch, task, attempt)

        query = staging.copy_query(app_schema.bound(self.chain), self.dataset, self.token)
        with self._connected() as cursor, cursor.copy(query.text) as place:
            for piece in copy.encode_all(tables(), staging.types(self.dataset)):
                place.write(piece)
        return sent

    def _marked(self, batch: pa.RecordBatch, task: int, attempt: int) -> pa.Table:
        """Rows as they are staged: those of the dataset, and whose they are."""
        table = rows.fit(self.dataset, pa.Table.from_batches([batch]))
        for name, value in zip(staging.EXTRA, (task, attempt), strict=True):
            table = table.append_column(name, pa.array(np.full(table.num_rows, value)))
        return table

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Cursor[Any]]:
        """A connection to the app database for one COPY, and what its failures mean."""
        place = places.find(self.config, self.chain)
        url, timeout_s = place.app_url, place.config.database.connect_timeout_s
        try:
            # A COPY takes as long as Spark takes to compute its rows: it has no limit of its own.
            parameters = connection.parameters(url, timeout_s, statement_s=0)
            with psycopg.connect(parameters, autocommit=True) as opened:
                yield opened.cursor()
        except refusals.UndefinedTable as error:
            raise errors.Retryable(
                f"{staging.name(self.token)} is gone: the lease of its run is no longer its own; "
                "the run is planned again"
            ) from error
        except psycopg.Error as error:
            raise failures.translate(error, url, "staging_copy") from error
