"""Goal: whatever blocks did to any table near the head is undone exactly, to any block.

Method: tables of a test's own with awkward types and references, changed block by block; after an
undo they must be what they were after that block, to the last digit.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.places import Place
from unfork import errors
from unfork.app import history
from unfork.app import schema as app_schema
from unfork.database.database import Database
from unfork.database.queries import Query
from unfork.database.session import Session

TABLES = """
    CREATE TABLE {app}.parents (id bigint PRIMARY KEY, name text UNIQUE, size numeric);
    CREATE TABLE {app}.children (
        parent bigint NOT NULL REFERENCES {app}.parents, place int, word varchar(20),
        PRIMARY KEY (parent, place)
    )
"""


@pytest.fixture
async def tables(fresh_place: Place) -> Database:
    await fresh_place.app_rows(TABLES)
    return fresh_place.app_database()


class Sink:
    """Changes tables as a sink does: each change is written down before it is made."""

    def __init__(self, place: Place, session: Session) -> None:
        self.place, self.session = place, session
        self.queries = app_schema.bound(place.name)
        self.seq = 0

    async def table(self, name: str) -> history.Table:
        return await history.describe(self.session, self.queries, schema=self.place.app, table=name)

    async def change(
        self, block: int, table: str, key: dict[str, str], text: str, *, op: Any = "UPDATE"
    ) -> None:
        self.seq += 1
        await history.record(
            self.session,
            self.queries,
            await self.table(table),
            block_number=block,
            keys=[key],
            op=op,
            seq=self.seq,
        )
        await self.run(text)

    async def run(self, text: str) -> None:
        await self.session.run(Query("test", text.replace("{app}", f'"{self.place.app}"')))

    async def undo(self, target: int, *names: str) -> None:
        tables = [await self.table(name) for name in names]
        async with self.session.transaction():
            await history.undo(self.session, self.queries, tables, target=target)


async def held(place: Place, table: str, order: str) -> list[dict[str, Any]]:
    return await place.app_rows(f"SELECT * FROM {{app}}.{table} ORDER BY {order}")


async def test_several_changes_of_one_row_in_one_block_go_back_to_before_the_first(
    fresh_place: Place, tables: Database
) -> None:
    async with tables.session() as session:
        sink = Sink(fresh_place, session)
        await sink.run("INSERT INTO {app}.parents VALUES (1, 'one', 1)")
        for size in (2, 3, 4):
            text = f"UPDATE {{app}}.parents SET size = {size} WHERE id = 1"
            await sink.change(10, "parents", {"id": "1"}, text)
        text = "DELETE FROM {app}.parents WHERE id = 1"
        await sink.change(10, "parents", {"id": "1"}, text, op="DELETE")
        text = "INSERT INTO {app}.parents VALUES (1, 'again', 9)"
        await sink.change(11, "parents", {"id": "1"}, text)
        await sink.undo(9, "parents")
    assert await held(fresh_place, "parents", "id") == [{"id": 1, "name": "one", "size": 1}]
    assert await fresh_place.app_rows("SELECT * FROM {app}.history") == []


async def test_parents_and_children_of_one_block_are_undone_together(
    fresh_place: Place, tables: Database
) -> None:
    async with tables.session() as session:
        sink = Sink(fresh_place, session)
        await sink.run("INSERT INTO {app}.parents VALUES (1, 'kept', 1), (2, 'gone', 2)")
        await sink.run("INSERT INTO {app}.children VALUES (1, 1, 'a'), (2, 1, 'b')")
        # A child moves to a new parent, another one goes with its parent.
        await sink.change(5, "parents", {"id": "3"}, "INSERT INTO {app}.parents VALUES (3, 'new')")
        await sink.change(
            5,
            "children",
            {"parent": "3", "place": "1"},
            "INSERT INTO {app}.children VALUES (3, 1, 'c')",
        )
        text = "DELETE FROM {app}.children WHERE parent = 2"
        await sink.change(5, "children", {"parent": "2", "place": "1"}, text, op="DELETE")
        text = "DELETE FROM {app}.parents WHERE id = 2"
        await sink.change(5, "parents", {"id": "2"}, text, op="DELETE")
        await sink.undo(4, "parents", "children")
    assert [row["name"] for row in await held(fresh_place, "parents", "id")] == ["kept", "gone"]
    children = await held(fresh_place, "children", "parent, place")
    assert [(row["parent"], row["word"]) for row in children] == [(1, "a"), (2, "b")]


async def test_plus_five_at_150_after_plus_three_at_110_undone_to_120_leaves_three(
    fresh_place: Place, tables: Database
) -> None:
    async with tables.session() as session:
        sink = Sink(fresh_place, session)
        key = {"id": "7"}
        text = "INSERT INTO {app}.parents VALUES (7, NULL, 3)"
        await sink.change(110, "parents", key, text)
        await sink.change(150, "parents", key, "UPDATE {app}.parents SET size = size + 5")
        await sink.undo(120, "parents")
    assert [row["size"] for row in await held(fresh_place, "parents", "id")] == [3]


async def test_every_type_comes_back_to_the_last_digit(fresh_place: Place) -> None:
    await fresh_place.app_rows('''
        CREATE TABLE {app}.awkward (
            id uuid, place int, PRIMARY KEY (id, place),
            number numeric, real_number double precision, bytes bytea, words text[], nested jsonb,
            raw json, at timestamptz, span int8range, flag boolean, "Odd ""name""" text,
            twice bigint GENERATED ALWAYS AS (place * 2) STORED,
            counter bigint GENERATED ALWAYS AS IDENTITY
        )''')
    await fresh_place.app_rows(
        "INSERT INTO {app}.awkward VALUES ('7b3c9a1e-0000-4000-8000-000000000001', 1,"
        " 115792089237316195423570985008687907853269984665640564039457584007913129639935.10,"
        " 0.1::float8 + 0.2::float8, '\\x00ff', ARRAY['a,b', NULL, '\"'], '{\"n\": 1e400}',"
        " '{\"a\": 1,  \"a\": 2}', '2024-02-29 23:59:59.999999+00', '[1,9)', NULL, 'ü''\\\"')"
    )
    before = await held(fresh_place, "awkward", "id")
    texts = await fresh_place.app_rows("SELECT awkward::text AS text FROM {app}.awkward")
    async with fresh_place.app_database().session() as session:
        sink = Sink(fresh_place, session)
        key = {"id": "7b3c9a1e-0000-4000-8000-000000000001", "place": "1"}
        text = "DELETE FROM {app}.awkward"
        await sink.change(3, "awkward", key, text, op="DELETE")
        await sink.undo(2, "awkward")
    assert await held(fresh_place, "awkward", "id") == before
    assert await fresh_place.app_rows("SELECT awkward::text AS text FROM {app}.awkward") == texts


async def test_a_table_without_a_primary_key_is_refused_with_its_columns(
    fresh_place: Place,
) -> None:
    await fresh_place.app_rows("CREATE TABLE {app}.keyless (first int, second text)")
    async with fresh_place.app_database().session() as session:
        sink = Sink(fresh_place, session)
        with pytest.raises(errors.KeyMissing, match=r"keyless \(first, second\)") as caught:
            await sink.table("keyless")
    assert caught.value.fields["columns"] == ["first", "second"]


async def test_pruning_is_bounded_and_takes_only_what_is_final(
    fresh_place: Place, tables: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "PRUNE_ROWS_MAX", 2)
    async with tables.session() as session:
        sink = Sink(fresh_place, session)
        for block in range(1, 8):
            text = f"INSERT INTO {{app}}.parents VALUES ({block}, 'n{block}')"
            await sink.change(block, "parents", {"id": str(block)}, text)
        removed = [await history.prune(session, sink.queries, floor=5) for _ in range(4)]
    assert removed == [2, 2, 1, 0]
    left = await fresh_place.app_rows("SELECT block_number FROM {app}.history ORDER BY 1")
    assert [row["block_number"] for row in left] == [6, 7]


@pytest.mark.parametrize("seed", range(8))
async def test_any_changes_are_undone_to_any_block(
    fresh_place: Place, tables: Database, seed: int
) -> None:
    dice = random.Random(seed)
    states: dict[int, list[dict[str, Any]]] = {}
    async with tables.session() as session:
        sink = Sink(fresh_place, session)
        for block in range(1, 12):
            for _ in range(dice.randrange(4)):
                number = dice.randrange(1, 5)
                key, there = {"id": str(number)}, f"WHERE id = {number}"
                size = dice.randrange(10**30)
                change = dice.choice(
                    [
                        f"INSERT INTO {{app}}.parents VALUES ({number}, NULL, {size})"
                        f" ON CONFLICT (id) DO UPDATE SET size = excluded.size",
                        f"UPDATE {{app}}.parents SET size = size + {size} {there}",
                        f"DELETE FROM {{app}}.parents {there}",
                    ]
                )
                op = "DELETE" if change.startswith("DELETE") else "UPDATE"
                await sink.change(block, "parents", key, change, op=op)
            states[block] = await held(fresh_place, "parents", "id")
        for target in sorted(dice.sample(sorted(states), 5), reverse=True):
            for _ in range(2):
                await sink.undo(target, "parents")
                assert await held(fresh_place, "parents", "id") == states[target]
