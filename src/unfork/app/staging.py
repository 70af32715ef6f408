"""Owns staging: where the tasks of a large run put their rows until the run is committed.

The place is named for the token of the run's lease, so a run that lost its lease finds it gone, and
what is left of such runs is removed. A task that failed after its COPY leaves rows, and so does one
that ran twice: rows carry task and attempt, and only those of the attempts that Spark names count.
The place is not logged: a server that crashed comes back with it empty, which the counts tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation
from unfork.app.refused import NOTHING, Refused
from unfork.database.queries import Queries, Query
from unfork.database.session import Session

#: The columns that staging adds after those of the dataset, and their types.
EXTRA = ("unfork_task", "unfork_attempt")
EXTRA_TYPES = ("bigint", "bigint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a task says it has written, in its commit message."""

    #: The number of the task's partition.
    task: int
    #: Tells the tries of a task apart.
    attempt: int
    #: Rows written.
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """The rows of a run, as its tasks left them."""

    #: The token of the run's lease.
    token: int
    #: The attempts that won, one a task.
    attempts: tuple[Attempt, ...]
    #: What they refused, and did not write.
    refused: Refused = NOTHING

    @property
    def rows(self) -> int:
        """Rows of all tasks."""
        return sum(attempt.rows for attempt in self.attempts)


def name(token: int) -> str:
    """The table of a run."""
    return f"staging_{token}"


def columns(dataset: DerivedDataset) -> tuple[str, ...]:
    """The columns that a task writes, in order."""
    return (*dataset.names, *EXTRA)


def types(dataset: DerivedDataset) -> tuple[str, ...]:
    """Their types."""
    return (*(column.kind.value for column in dataset.columns), *EXTRA_TYPES)


def copy_query(queries: Queries, dataset: DerivedDataset, token: int) -> Query:
    """The statement over which a task sends its rows as binary COPY data."""
    return queries.made("staging_copy", staging=name(token), columns=dataset.names)


async def create(session: Session, queries: Queries, build: Generation, token: int) -> None:
    """Makes the place of a run."""
    await session.run(queries.made("staging_create", staging=name(token), table=build.table))


async def drop(session: Session, queries: Queries, token: int) -> None:
    """Removes the place of a run; safe to repeat."""
    await session.run(queries.made("staging_drop", staging=name(token)))


async def sweep(session: Session, queries: Queries, *, schema: str) -> list[str]:
    """Removes what runs without a lease have left, and returns the names."""
    rows = await session.rows(queries["staging_left"], schema=schema)
    for row in rows:
        await session.run(queries.made("staging_drop", staging=row["name"]))
    return [row["name"] for row in rows]


async def differs(session: Session, queries: Queries, staged: Staged, *, schema: str) -> str | None:
    """What is wrong with the rows found, None where they are the ones that the tasks wrote."""
    staging = name(staged.token)
    there = await session.row(queries["staging_there"], schema=schema, staging=staging)
    assert there is not None
    if not there["is_there"]:
        return f"{staging} is gone"
    found = {
        (row["task"], row["attempt"]): row["row_count"]
        for row in await session.rows(queries.made("staging_counts", staging=staging))
    }
    return _difference(staged.attempts, found)


def source(queries: Queries, dataset: DerivedDataset, staged: Staged) -> Query:
    """The rows that count, for other queries; needs `parameters`."""
    return queries.fragment("staging_source", staging=name(staged.token), columns=dataset.names)


def parameters(staged: Staged) -> dict[str, object]:
    """What `source` needs."""
    return {
        "tasks": [attempt.task for attempt in staged.attempts],
        "attempts": [attempt.attempt for attempt in staged.attempts],
    }


def _difference(attempts: Sequence[Attempt], found: dict[tuple[int, int], int]) -> str | None:
    tasks: Iterable[int] = [attempt.task for attempt in attempts]
    if len(set(tasks)) != len(attempts):
        raise errors.Inconsistent("a task is said to have won twice")
    for attempt in attempts:
        rows = found.get((attempt.task, attempt.attempt), 0)
        if rows != attempt.rows:
            return (
                f"task {attempt.task} wrote {attempt.rows} rows in attempt {attempt.attempt}, "
                f"{rows} are there"
            )
    return None
