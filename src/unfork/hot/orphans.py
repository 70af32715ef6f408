"""Owns the end of orphaned rows: they are kept for a while, then removed a few at a time.

Pruning runs over a connection of its own and never holds anything that a commit waits for.

Streams of changes read orphaned rows too. What a registered stream has still to read stays; how far
pruning went is recorded before the first row goes, so that a stream which registers later learns
that it came too late, and never reads half a fork.
"""

from __future__ import annotations

from collections.abc import Sequence

from unfork.database.database import Database
from unfork.database.queries import Queries
from unfork.datasets.dataset import Dataset

#: Rows removed in one statement.
ROWS_AT_ONCE = 5000


async def prune(
    database: Database,
    queries: Queries,
    datasets: Sequence[Dataset],
    *,
    below: int,
    stream_keep_s: float = 604_800.0,
) -> int:
    """Removes the orphaned rows of blocks below a number; safe to repeat; returns how many.

    Headers go last, so that what is left of a fork can still be told by them. A stream that was
    not seen for `stream_keep_s` seconds keeps nothing.
    """
    async with database.session() as session, session.transaction():
        await session.run(queries["orphans_lock"])
        await session.run(queries["orphans_plan"], below=below, stream_keep_s=stream_keep_s)
    removed = 0
    for dataset in sorted(datasets, key=lambda dataset: dataset.name == "blocks"):
        orphaned = f"orphaned_{dataset.name}"
        query = queries.of(
            "orphans_prune", dataset.name, orphaned=orphaned, number=dataset.number_column
        )
        while True:
            async with database.session() as session:
                count = await session.run(query, below=below, limit=ROWS_AT_ONCE)
            removed += count
            if count < ROWS_AT_ONCE:
                break
    return removed
