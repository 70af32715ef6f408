"""Owns the tables of derived datasets: how a declaration looks in Postgres.

Each build of a dataset is a table of its own; what people read is a view with the dataset's name.
Every table can be searched by what a fork or a new version takes away: by block number, or by the
column of its partitions.
"""

from __future__ import annotations

from unfork.app.derived import DESCENDING, DerivedDataset
from unfork.database.queries import Queries, Query, joined
from unfork.datasets.derivation import ByDay, Mode, Strategy


def create(queries: Queries, dataset: DerivedDataset, table: str) -> list[Query]:
    """The statements that make the table of a build."""
    nothing = Query("nothing", "")
    columns = joined(
        queries.fragment(
            "table_column",
            column=column.name,
            type=Query("type", column.kind.value),
            needed=nothing if column.nullable else Query("needed", " NOT NULL"),
        )
        for column in dataset.columns
    )
    key = unique_key(dataset)
    keyed = nothing
    if key:
        can_be_null = any(column.nullable for column in dataset.columns if column.name in key)
        keyed = queries.fragment("table_unique" if can_be_null else "table_primary_key", key=key)
    partitioned = nothing
    if dataset.table_blocks is not None:
        partitioned = queries.fragment("table_partitioned", number=dataset.number_column)
    made = queries.made(
        "table_create", table=table, columns=columns, keyed=keyed, partitioned=partitioned
    )
    return [made, *(_index(queries, table, columns) for columns in _indexes(dataset))]


def view(queries: Queries, dataset: DerivedDataset, table: str, generation_id: int) -> Query:
    """The statement that lets a build be read under the dataset's name."""
    if dataset.mode is not Mode.CURSOR or dataset.strategy is Strategy.MERGE:
        return queries.made("view_whole", dataset=dataset.name, columns=dataset.names, table=table)
    return queries.made(
        "view_flagged" if dataset.strategy is Strategy.APPEND else "view_cut",
        dataset=dataset.name,
        columns=dataset.names,
        table=table,
        number=dataset.number_column,
        hash=dataset.hash_column,
        id=generation_id,
    )


def unique_key(dataset: DerivedDataset) -> tuple[str, ...]:
    """What the database keeps from being there twice.

    Rows of append stay when their block is orphaned, and the same key may come again in another
    block: so its block is part of the key.
    """
    if dataset.strategy is Strategy.APPEND and dataset.hash_column not in dataset.key:
        return (*dataset.key, dataset.hash_column)
    return dataset.key


def _indexes(dataset: DerivedDataset) -> list[tuple[str, ...]]:
    """The indexes beside the key: what is declared, and what an unwind or a new version needs."""
    needed: list[tuple[str, ...]] = list(dataset.indexes)
    searched: str | None = dataset.number_column
    if dataset.strategy is Strategy.MERGE or dataset.mode is Mode.FULL:
        searched = None
    elif isinstance(dataset.partitioning, ByDay):
        searched = dataset.partitioning.column
    if searched is not None and unique_key(dataset)[:1] != (searched,):
        needed.append((searched,))
    return needed


def _index(queries: Queries, table: str, columns: tuple[str, ...]) -> Query:
    listed = (
        queries.fragment(
            "table_descending" if name.endswith(DESCENDING) else "table_ascending",
            column=name.removesuffix(DESCENDING),
        )
        for name in columns
    )
    return queries.made("table_index", table=table, columns=joined(listed))
