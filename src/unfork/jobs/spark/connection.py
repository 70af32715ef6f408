"""Owns a reader's connection to Postgres: Arrow in, one state of the database, typed failures.

It is the counterpart of `database/`, for code that runs inside a Spark task: blocking, without an
event loop, and over ADBC, which hands on Arrow without a Python object a value. It only reads,
but for the place of a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import adbc_driver_manager
import pyarrow as pa
from adbc_driver_postgresql import StatementOptions, dbapi
from psycopg import conninfo

from unfork import errors
from unfork.database import failures
from unfork.database.queries import Query

#: Bytes of one Arrow batch: large enough that its overhead does not count, small enough that the
#: server, this process and Spark work at the same time.
BATCH_BYTES = 4 << 20

#: Milliseconds after which a server that does not even acknowledge is given up.
SILENCE_MS_MAX = 60_000

_BEGIN = Query("begin", "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
_ROLLBACK = Query("rollback", "ROLLBACK")


class Connection:
    """One connection, used by one task."""

    def __init__(self, url: str, *, timeout_s: float, statement_s: float) -> None:
        self._url = url
        with self._doing("connecting"):
            self._connection = dbapi.connect(parameters(url, timeout_s, statement_s))
            # Transactions are ours to open: the driver's own would begin with another isolation.
            self._connection.adbc_connection.set_autocommit(True)

    def close(self) -> None:
        """Ends the connection and whatever it was in the middle of; safe to repeat."""
        self._connection.close()

    @contextmanager
    def one_state(self, snapshot: str | None = None) -> Iterator[None]:
        """Everything read inside is of one state: the snapshot's, or that of the first statement.

        Raises SnapshotLost where the snapshot cannot be imported: its holder is gone.
        """
        self.run(_BEGIN)
        if snapshot is not None:
            self._import(snapshot)
        yield
        self.run(_ROLLBACK)

    def table(self, query: Query, *parameters: Any) -> pa.Table:
        """Everything the statement answers."""
        with self._doing(query.name), self._connection.cursor() as cursor:
            cursor.execute(query.text, parameters or None)
            return cursor.fetch_arrow_table()

    def row(self, query: Query, *parameters: Any) -> dict[str, Any] | None:
        """The first row the statement answers, None where there is none."""
        rows: list[dict[str, Any]] = self.table(query, *parameters).slice(0, 1).to_pylist()
        return rows[0] if rows else None

    def run(self, query: Query, *parameters: Any) -> None:
        """Runs a statement that answers nothing."""
        with self._doing(query.name), self._connection.cursor() as cursor:
            cursor.execute(query.text, parameters or None)

    def batches(self, query: Query) -> Iterator[pa.RecordBatch]:
        """What the statement answers, piece by piece as the server sends it."""
        with self._doing(query.name), self._connection.cursor() as cursor:
            cursor.adbc_statement.set_options(
                **{StatementOptions.BATCH_SIZE_HINT_BYTES.value: BATCH_BYTES}
            )
            cursor.execute(query.text)
            yield from cursor.fetch_record_batch()

    def _import(self, snapshot: str) -> None:
        # It is a name that Postgres made, and goes into the statement as text.
        assert set(snapshot) <= set("0123456789ABCDEF-"), "not a snapshot's name"
        try:
            self.run(Query("import_snapshot", f"SET TRANSACTION SNAPSHOT '{snapshot}'"))
        except errors.Misconfigured as error:
            raise errors.SnapshotLost(
                f"snapshot {snapshot} cannot be imported: the run that holds it has ended or held "
                "it for too long (SNAPSHOT_MAX_S); the run is planned again",
                snapshot=snapshot,
            ) from error

    @contextmanager
    def _doing(self, name: str) -> Iterator[None]:
        """Gives a failure its meaning."""
        try:
            yield
        except adbc_driver_manager.Error as error:
            raise _translated(error, self._url, name) from error


def _translated(error: Exception, url: str, doing: str) -> errors.UnforkError:
    said = str(error).replace("\n", " ")
    if getattr(error, "sqlstate", None) is None:
        # The driver itself gives up without a state only where the server does not answer.
        return failures.translate(OSError(said), url, doing)
    return failures.translate(error, url, doing)


def parameters(url: str, timeout_s: float, statement_s: float) -> str:
    """How a task connects: its statements end in time, and so does what it leaves behind.

    `statement_s` is 0 for statements that take as long as Spark does.
    """
    given = conninfo.conninfo_to_dict(url)
    options = (
        f"-c statement_timeout={int(statement_s * 1000)}"
        f" -c idle_in_transaction_session_timeout={int(statement_s * 1000)}"
        " -c client_connection_check_interval=1000 -c timezone=UTC"
    )
    return conninfo.make_conninfo(
        url,
        options=f"{given.get('options') or ''} {options}".strip(),
        application_name=given.get("application_name") or "unfork spark",
        connect_timeout=max(2, round(timeout_s)),
        # A server that is gone without a word is noticed also where a statement has no limit.
        tcp_user_timeout=given.get("tcp_user_timeout") or SILENCE_MS_MAX,
    )
