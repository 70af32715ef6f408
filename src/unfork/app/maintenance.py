"""Owns the end of what the app side no longer needs: tables of retired builds, and old records.

Nothing that a plan, a reader or an undo depends on is touched: only builds that were retired long
enough ago, runs that ended, invalidations that everybody has processed and resolved errors.
"""

from __future__ import annotations

from unfork.app import schema
from unfork.app.generations import Generations
from unfork.database.database import Database

#: Rows removed in one statement.
ROWS_AT_ONCE = 5000

#: Tables whose old rows go, each with a query of its own.
RECORDS = ("runs", "data_invalidations", "indexing_errors", "scheduled_tasks", "contract_reads")


async def prune(
    chain: str, database: Database, *, retired_keep_s: float, record_keep_s: float
) -> dict[str, int]:
    """Removes what is old enough; safe to repeat; returns how many of each were removed.

    Raises a Retryable where a table of a retired build is still read.
    """
    queries = schema.bound(chain)
    removed = {}
    for table in RECORDS:
        removed[table] = 0
        while True:
            async with database.session() as session:
                count = await session.run(
                    queries[f"maintenance_{table}"], keep_s=record_keep_s, limit=ROWS_AT_ONCE
                )
            removed[table] += count
            if count < ROWS_AT_ONCE:
                break
    removed["builds"] = len(await Generations(chain, database).drop_retired(keep_s=retired_keep_s))
    return removed
