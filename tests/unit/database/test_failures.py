"""Goal: a failure of Postgres means the right thing to the caller: wait, fix, or stop."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors as postgres

from unfork import errors
from unfork.database import failures

URL = "postgresql://someone:hunter2@db.example:5432/chain"


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (postgres.DiskFull("could not extend file"), errors.DatabaseUnavailable, "no disk space"),
        (postgres.OutOfMemory("out of memory"), errors.DatabaseUnavailable, "out of a resource"),
        (postgres.TooManyConnections("sorry"), errors.DatabaseUnavailable, "connections"),
        (postgres.AdminShutdown("terminating"), errors.DatabaseUnavailable, "going down"),
        (postgres.ReadOnlySqlTransaction("cannot"), errors.DatabaseUnavailable, "standby"),
        (postgres.DeadlockDetected("deadlock"), errors.DatabaseUnavailable, "gave up"),
        (psycopg.OperationalError("server closed"), errors.DatabaseUnavailable, "server closed"),
        (postgres.UndefinedTable("no table"), errors.SchemaOutdated, "unfork migrate"),
        (postgres.InvalidSchemaName("no schema"), errors.SchemaOutdated, "unfork migrate"),
        (postgres.UniqueViolation("duplicate key"), errors.RowRefused, "duplicate key"),
        (postgres.CharacterNotInRepertoire("0x00"), errors.RowRefused, "0x00"),
        (postgres.InsufficientPrivilege("denied"), errors.Misconfigured, "denied"),
    ],
)
def test_an_error_of_postgres_says_what_to_do(
    error: Exception, kind: type[errors.UnforkError], words: str
) -> None:
    told = failures.translate(error, URL, "commit_rows_logs")
    assert type(told) is kind
    assert words in str(told)
    assert "hunter2" not in str(told)
