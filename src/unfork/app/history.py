"""Owns history: how changes of any table near the head are undone.

Before rows are changed by a block, they are written down as they are, block by block and in order,
also where the changes of several blocks are flushed together. Undoing goes by sets: for each key
the state before its first change above the target is the state at the target. Blocks at or below
the floor are never undone, so their changes are not written down.

Every value is kept as the text that Postgres itself writes and reads, so nothing is rounded and no
type is special. A table needs a primary key: without one, rows cannot be told apart.

Where tables refer to each other, rows are taken from children before parents and put back in
parents before children. Rows that nobody refers to are taken first, so that what is put back does
not meet them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from unfork import errors
from unfork.database.queries import Queries, Query, joined, literal
from unfork.database.session import Session

#: Changes forgotten in one statement.
PRUNE_ROWS_MAX = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table whose changes can be undone."""

    schema: str
    name: str
    #: The columns that can be written, each with its type.
    types: Mapping[str, str]
    #: The columns of the primary key.
    key: tuple[str, ...]
    #: Columns that a row gets when it is inserted and that Postgres lets nobody change.
    fixed: frozenset[str] = frozenset()

    @property
    def full_name(self) -> str:
        """The table as history names it."""
        return f"{self.schema}.{self.name}"


async def describe(session: Session, queries: Queries, *, schema: str, table: str) -> Table:
    """A table as it is in the database; raises KeyMissing where it has no primary key."""
    columns = await session.rows(queries["history_columns"], schema=schema, table=table)
    key = await session.rows(queries["history_key"], schema=schema, table=table)
    types = {row["name"]: row["type"] for row in columns}
    if not key:
        raise errors.KeyMissing(
            f"table {schema}.{table} ({', '.join(types)}) has no primary key, so its changes could "
            "not be undone after a fork; give it one",
            table=f"{schema}.{table}",
            columns=list(types),
        )
    return Table(
        schema=schema,
        name=table,
        types=types,
        key=tuple(row["name"] for row in key),
        fixed=frozenset(row["name"] for row in columns if row["is_fixed"]),
    )


async def record(
    session: Session,
    queries: Queries,
    table: Table,
    *,
    block_number: int,
    keys: Sequence[Mapping[str, str]],
    op: Literal["UPDATE", "DELETE"] = "UPDATE",
    seq: int = 0,
) -> None:
    """Writes down rows that are about to be inserted, updated or deleted by a block.

    `keys` are the primary keys as text, in the order of the changes; `seq` is the place of the
    first of them within the block. The caller knows that the block is above the floor.
    """
    if not keys:
        return
    assert all(set(key) == set(table.key) for key in keys)
    query = queries.of(
        "history_record",
        table.full_name,
        schema=table.schema,
        table=table.name,
        match=_match(queries, table),
        image=image(queries, tuple(table.types)),
        is_held=queries.fragment("history_held", column=table.key[0]),
    )
    await session.run(
        query,
        block_number=block_number,
        seq=seq,
        table_name=table.full_name,
        op=op,
        keys=json.dumps([dict(key) for key in keys]),
    )


async def undo(session: Session, queries: Queries, tables: Sequence[Table], *, target: int) -> None:
    """Puts the tables back to where they were after block `target`; safe to repeat."""
    if not tables:
        return
    children_first, referred = await _children_first(session, queries, tables)
    for table in children_first:
        if table.name not in referred:
            await _run(session, queries, "history_undo_insert", table, target)
    for table in reversed(children_first):
        await _run(session, queries, "history_undo_update", table, target)
    for table in children_first:
        if table.name in referred:
            await _run(session, queries, "history_undo_insert", table, target)
    await session.run(
        queries["history_forget"],
        target=target,
        table_names=[table.full_name for table in tables],
    )


async def prune(session: Session, queries: Queries, *, floor: int) -> int:
    """Forgets changes at or below the floor, a bounded number at a time; returns how many."""
    await session.run(queries["history_pruned"], floor=floor)
    return await session.run(queries["history_prune"], floor=floor, limit=PRUNE_ROWS_MAX)


async def _run(session: Session, queries: Queries, name: str, table: Table, target: int) -> None:
    query = queries.of(
        name,
        table.full_name,
        schema=table.schema,
        table=table.name,
        earliest=queries.fragment("history_earliest"),
        match=_match(queries, table),
        columns=tuple(table.types),
        values=joined(
            queries.fragment("history_value", label=literal(column), type=Query("type", kind))
            for column, kind in table.types.items()
        ),
        key=table.key,
        resolution=resolution(queries, table),
    )
    await session.run(query, target=target, table_name=table.full_name)


async def _children_first(
    session: Session, queries: Queries, tables: Sequence[Table]
) -> tuple[list[Table], set[str]]:
    """The tables, every one before those it refers to, and the names of those referred to."""
    parents: dict[str, set[str]] = {table.name: set() for table in tables}
    if len(tables) > 1:
        found = await session.rows(
            queries["history_references"], schema=tables[0].schema, tables=list(parents)
        )
        for row in found:
            parents[row["child"]].add(row["parent"])
    left = {table.name: table for table in tables}
    ordered: list[Table] = []
    while left:
        waiting = {parent for name in left for parent in parents[name]}
        # A circle of references has no order; one of its tables goes first all the same.
        free = [name for name in left if name not in waiting] or [next(iter(left))]
        ordered += [left.pop(name) for name in free]
    return ordered, set().union(*parents.values())


def _match(queries: Queries, table: Table) -> Query:
    return joined(
        (
            queries.fragment(
                "history_match",
                column=column,
                label=literal(column),
                type=Query("type", table.types[column]),
            )
            for column in table.key
        ),
        " AND ",
    )


def image(queries: Queries, columns: Sequence[str]) -> Query:
    """Some columns of a row that a query calls `held`, as history keeps them."""
    return queries.fragment(
        "history_image",
        names=joined(literal(column) for column in columns),
        texts=joined(queries.fragment("history_text", column=column) for column in columns),
    )


def resolution(queries: Queries, table: Table) -> Query:
    """What happens to a row that is there already when it is written."""
    unchanged = {*table.key, *table.fixed}
    others = [column for column in table.types if column not in unchanged]
    if not others:
        return queries.fragment("history_nothing")
    assignments = joined(queries.fragment("history_assign", column=column) for column in others)
    return queries.fragment("history_assignments", assignments=assignments)
