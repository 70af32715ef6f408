"""Owns what a transform could not make of its input: rows that are told instead of written.

A transform of mode cursor may return the column `indexing_error`. Where it is NULL a row is like
any other. Where it is not, the row is not written: it becomes an entry of indexing_errors, in the
transaction of the run's commit, with the text as its message. So a value that nobody can read is
neither lost nor fatal. The column `indexing_error_data` may hold the bytes that it is about.

Of one run so many are told one by one, the lowest blocks first; the rest is counted. What is told
does not depend on how Spark cut the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from unfork.app.indexing_errors import MESSAGE_MAX, RAW_DATA_BYTES_MAX
from unfork.chain.span import Span
from unfork.database.queries import Queries
from unfork.database.session import Session

#: Why a row is refused; NULL where it is not.
ERROR = "indexing_error"
#: The bytes that could not be read.
DATA = "indexing_error_data"

#: Refused rows of one run that are told one by one.
TOLD_MAX = 1000

_BLOCK, _TRANSACTION = "block_number", "transaction_hash"

#: Refused rows on their way from a task to the driver.
SCHEMA = pa.schema(
    [(_BLOCK, pa.int64()), (_TRANSACTION, pa.binary()), (ERROR, pa.string()), (DATA, pa.binary())]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row that was refused."""

    block_number: int
    #: None where the job's rows name no transaction.
    transaction: bytes | None
    message: str
    #: Its first bytes.
    data: bytes | None

    @property
    def order(self) -> tuple[int, str, bytes]:
        """Its place among others."""
        return self.block_number, self.message, self.transaction or b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The refused rows of a run, or of a part of one."""

    #: Those that are told, in their order.
    rows: tuple[Row, ...] = ()
    #: How many there are in all.
    count: int = 0

    @property
    def untold(self) -> int:
        """How many are only counted."""
        return self.count - len(self.rows)


NOTHING = Refused()


def split(table: pa.Table) -> tuple[pa.Table, Refused]:
    """The rows to write and those that are refused; without the columns that tell them apart."""
    if ERROR not in table.column_names:
        return table, NOTHING
    errors = table.column(ERROR)
    kept = table.drop_columns([name for name in (ERROR, DATA) if name in table.column_names])
    if errors.null_count == len(errors):
        return kept, NOTHING
    is_good = pc.is_null(errors)
    return kept.filter(is_good), read(table.filter(pc.invert(is_good)))


def read(table: pa.Table) -> Refused:
    """Refused rows, of a table that has nothing else."""
    found = []
    names = table.column_names
    columns = [
        table.column(name).to_pylist() if name in names else [None] * table.num_rows
        for name in SCHEMA.names
    ]
    for block_number, transaction, message, data in zip(*columns, strict=True):
        row = Row(
            block_number=block_number,
            transaction=transaction,
            message=message[:MESSAGE_MAX],
            data=None if data is None else data[:RAW_DATA_BYTES_MAX],
        )
        found.append(row)
    return Refused(rows=_first(found), count=len(found))


async def record(
    session: Session,
    queries: Queries,
    *,
    job: str,
    generation_id: int,
    span: Span,
    refused: Refused,
) -> None:
    """Records what a run over a span refused, in the transaction of the caller; safe to repeat.

    What the build refused there before and does not refuse now is closed.
    """
    rows = list(refused.rows)
    if refused.untold:
        message = (
            f"{refused.untold} more rows of blocks {span} were refused, which are only counted"
        )
        rows.append(Row(block_number=span.first, transaction=None, message=message, data=None))
    # Postgres' text takes no NUL.
    messages = [row.message.replace("\x00", "\\0")[:MESSAGE_MAX] for row in rows]
    hashes = [hashlib.sha256(message.encode()).digest() for message in messages]
    keyed = zip(rows, messages, hashes, strict=True)
    # Of rows that cannot be told apart one is told.
    once = {(row.block_number, row.transaction, hash): (row, m) for row, m, hash in keyed}
    await session.run(
        queries["errors_refused"],
        worker_name=job,
        generation_id=generation_id,
        first=span.first,
        last=span.last,
        blocks=[row.block_number for row, _ in once.values()],
        transactions=[row.transaction for row, _ in once.values()],
        hashes=[hash for _, _, hash in once],
        messages=[message for _, message in once.values()],
        data=[row.data for row, _ in once.values()],
    )


def joined(parts: Iterable[Refused]) -> Refused:
    """What several parts of a run refused."""
    parts = list(parts)
    if not any(part.count for part in parts):
        return NOTHING
    rows = _first([row for part in parts for row in part.rows])
    return Refused(rows=rows, count=sum(part.count for part in parts))


def packed(refused: Refused) -> bytes:
    """Refused rows as a task returns them; the count goes beside it."""
    if not refused.rows:
        return b""
    columns = [
        [row.block_number for row in refused.rows],
        [row.transaction for row in refused.rows],
        [row.message for row in refused.rows],
        [row.data for row in refused.rows],
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_table(pa.table(columns, schema=SCHEMA))
    return bytes(sink.getvalue())


def unpacked(data: bytes, count: int) -> Refused:
    """Refused rows as a task returned them."""
    if not data:
        return Refused(count=count)
    with pa.ipc.open_stream(data) as reader:
        return Refused(rows=read(reader.read_all()).rows, count=count)


def _first(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: row.order)[:TOLD_MAX])
