"""Goal: the migrated tables are the declared ones: columns, types, NULLs, keys and indexes.

Method: Postgres' own catalogue against datasets/evm.py.
"""

from __future__ import annotations

import pytest

from tests.places import Place
from unfork.datasets import evm
from unfork.datasets.dataset import Dataset

COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type, a.attnotnull AS required
FROM pg_attribute a
WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
INDEXES = """
SELECT i.indisprimary AS is_key,
       array(SELECT a.attname FROM unnest(i.indkey) WITH ORDINALITY AS k(n, place)
             JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n
             ORDER BY place)::text[] AS columns,
       am.amname AS method
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am am ON am.oid = c.relam
WHERE i.indrelid = to_regclass(%(table)s)
"""
OWN = {
    "blocks": [("journal_seq", "bigint", True)],
    "transactions": [("events", "jsonb", False)],
}
POSTGRES = {"timestamptz": "timestamp with time zone"}

datasets = pytest.mark.parametrize("dataset", evm.DATASETS, ids=lambda dataset: dataset.name)


def declared(dataset: Dataset) -> list[tuple[str, str, bool]]:
    moved = {payload.column for payload in dataset.payloads}
    columns = [
        (
            column.name,
            POSTGRES.get(column.kind.value, column.kind.value),
            not column.nullable and column.name not in moved,
        )
        for column in dataset.columns
    ]
    for payload in dataset.payloads:
        columns += [(payload.hash_column, "bytea", False), (payload.ref_column, "text", False)]
    return columns + OWN.get(dataset.name, [])


async def columns(place: Place, table: str) -> list[tuple[str, str, bool]]:
    rows = await place.rows(COLUMNS, table=f"{place.raw}.{table}")
    return [(row["name"], row["type"].replace(", ", ","), row["required"]) for row in rows]


@datasets
async def test_a_raw_table_has_the_declared_columns_and_keys(
    any_place: Place, dataset: Dataset
) -> None:
    assert await columns(any_place, dataset.name) == declared(dataset)
    indexes = await any_place.rows(INDEXES, table=f"{any_place.raw}.{dataset.name}")
    keys = [tuple(row["columns"]) for row in indexes if row["is_key"]]
    others = {tuple(row["columns"]) for row in indexes if not row["is_key"]}
    assert keys == [dataset.key]
    assert others == {*dataset.indexes, *((p.hash_column,) for p in dataset.payloads)}


@datasets
async def test_an_orphaned_table_has_the_same_columns_and_the_fork_that_did_it(
    any_place: Place, dataset: Dataset
) -> None:
    found = await columns(any_place, f"orphaned_{dataset.name}")
    assert found == [*declared(dataset), ("unwind_seq", "bigint", True)]


async def test_no_raw_table_has_an_index_that_is_not_a_btree(any_place: Place) -> None:
    methods = await any_place.rows(
        "SELECT DISTINCT am.amname AS method FROM pg_class c JOIN pg_am am ON am.oid = c.relam "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %(schema)s AND c.relkind IN ('i', 'I')",
        schema=any_place.raw,
    )
    assert methods == [{"method": "btree"}]


async def test_lookups_are_split_by_hash_of_the_id_into_eight(any_place: Place) -> None:
    for table in ("tx_lookup", "block_lookup"):
        parts = await any_place.rows(
            "SELECT pg_get_expr(c.relpartbound, c.oid) AS bounds FROM pg_inherits i "
            "JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = to_regclass(%(table)s)",
            table=f"{any_place.raw}.{table}",
        )
        assert {row["bounds"] for row in parts} == {
            f"FOR VALUES WITH (modulus 8, remainder {index})" for index in range(8)
        }


async def test_every_table_is_logged(any_place: Place) -> None:
    unlogged = await any_place.rows(
        "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %(schema)s AND c.relpersistence <> 'p'",
        schema=any_place.raw,
    )
    assert unlogged == []
