"""Owns the making of partitions by number: ahead of need, never in the way of readers.

A partition is made as a table of its own with a CHECK that proves its span, then attached: that
takes a lock which readers do not hold, so an open reader delays nothing (I7). `CREATE … PARTITION
OF` would wait for every reader, and every insert would then wait for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from unfork import errors
from unfork.database import migrate, queries
from unfork.database.session import Session

_BOUNDS = re.compile(r"FOR VALUES FROM \('(\d+)'\) TO \('(\d+)'\)")
_OWN = Path(__file__).parent / "sql"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """One partition as the database has it."""

    table: str
    name: str
    #: The lowest number it may hold.
    first: int
    #: The lowest number after it.
    end: int
    #: Rows, as the last ANALYZE counted them.
    rows: int
    #: Whether it was being detached when something interrupted that.
    is_leaving: bool


def name(table: str, first: int) -> str:
    """The name of a partition."""
    return f"{table}_p{first}"


async def attached(session: Session, *, schema: str, tables: Sequence[str]) -> list[Attached]:
    """Every partition of some tables, by table and number."""
    query = queries.Queries(_OWN, {"schema": schema})["partitions_of"]
    found = []
    for row in await session.rows(query, schema=schema, tables=list(tables)):
        match = _BOUNDS.fullmatch(row["bounds"] or "")
        assert match, f"unforeseen bounds {row['bounds']} of {row['partition_name']}"
        found.append(
            Attached(
                table=row["table_name"],
                name=row["partition_name"],
                first=int(match.group(1)),
                end=int(match.group(2)),
                rows=row["row_count"],
                is_leaving=row["is_leaving"],
            )
        )
    return sorted(found, key=lambda one: (one.table, one.first))


async def attach(
    session: Session,
    *,
    schema: str,
    table: str,
    number: str,
    first: int,
    end: int,
    timeout_ms: int,
) -> bool:
    """Makes one partition in a transaction of its own; False when a lock was in the way.

    Safe to repeat, and in two processes at once. Must not be called in a transaction.
    """
    named = queries.Queries(_OWN, {"schema": schema})
    partition = name(table, first)
    try:
        async with session.transaction():
            await session.run(named["partitions_patience"], timeout=f"{timeout_ms}ms")
            key = migrate.advisory_key("partitions", schema)
            await session.run(named["partitions_lock"], key=key)
            known = await attached(session, schema=schema, tables=[table])
            if all(one.name != partition for one in known):
                query = named.of(
                    "partitions_attach",
                    table,
                    table=table,
                    partition=partition,
                    bounds=f"{partition}_bounds",
                    number=number,
                    first=first,
                    end=end,
                )
                await session.run(query)
    except errors.DatabaseUnavailable as error:
        if error.fields.get("sqlstate") != "55P03":
            raise
        return False
    return True
