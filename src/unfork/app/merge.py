"""Owns the merge: changes that are folded into one row per key, and can be undone block by block.

Order matters: +5 by block 150 before +3 by block 110, undone to block 120 by what was there before,
would lose the 3. So changes come in the order of the chain only (the caller sees to it), and within
one flush each key is taken through its blocks one after another, by window functions, in a single
statement: the state after each block is the state before the next.

A column that has no value is no change to a sum, a lowest or a highest; `set` sets it all the same.
"""

from __future__ import annotations

from unfork import errors
from unfork.app import history, unwind
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation
from unfork.database.queries import Queries, Query, joined
from unfork.database.session import Session
from unfork.datasets.derivation import Rule


async def merge(
    session: Session,
    queries: Queries,
    *,
    schema: str,
    build: Generation,
    source: Query,
    parameters: dict[str, object],
    floor: int | None,
) -> int:
    """Folds the changes of a source into the table; returns how many rows were written.

    Blocks above `floor` leave history. Raises RowRefused where a block sets a key twice.
    """
    dataset = build.dataset
    if _is_ambiguous(dataset):
        await _require_once(session, queries, build, source, parameters)
    table = unwind.merged_table(schema, build)
    query = queries.made(
        "merge_rows",
        table=build.table,
        source=source,
        number=dataset.number_column,
        key=dataset.key,
        columns=dataset.names,
        folds=_each(queries, dataset, "merge_fold"),
        afters=_each(queries, dataset, "merge_after"),
        folded_key=joined(queries.fragment("merge_folded", column=name) for name in dataset.key),
        match=joined(
            (queries.fragment("merge_match", column=name) for name in dataset.key), " AND "
        ),
        is_held=queries.fragment("history_held", column=dataset.key[0]),
        held_image=history.image(queries, dataset.names),
        after_image=history.image(queries, dataset.names),
        pk_image=history.image(queries, dataset.key),
        resolution=history.resolution(queries, table),
    )
    row = await session.row(
        query,
        floor=-1 if floor is None else floor,
        table_name=table.full_name,
        **parameters,
    )
    assert row is not None
    count: int = row["row_count"]
    return count


def _each(queries: Queries, dataset: DerivedDataset, prefix: str) -> Query:
    """One fragment for every column that is not in the key, by its rule."""
    return joined(
        queries.fragment(
            f"{prefix}_{dataset.rule(name).replace('-', '_')}",
            column=name,
            number=dataset.number_column,
        )
        for name in dataset.names
        if name not in dataset.key
    )


def _is_ambiguous(dataset: DerivedDataset) -> bool:
    """Whether it matters which of two changes of a key in one block comes last."""
    of_the_block = {dataset.number_column, dataset.hash_column}
    return any(
        dataset.rule(name) in (Rule.SET, Rule.SET_IF_NULL)
        for name in set(dataset.names) - set(dataset.key) - of_the_block
    )


async def _require_once(
    session: Session,
    queries: Queries,
    build: Generation,
    source: Query,
    parameters: dict[str, object],
) -> None:
    dataset = build.dataset
    query = queries.made(
        "merge_doubled", source=source, key=dataset.key, number=dataset.number_column
    )
    row = await session.row(query, **parameters)
    if row is not None:
        key = {name: row[name] for name in dataset.key}
        raise errors.RowRefused(
            f"job `{dataset.job}` sets {key} of `{dataset.name}` twice in block {row['number']}; "
            "which value stays would be chance: return one row per key and block"
        )
