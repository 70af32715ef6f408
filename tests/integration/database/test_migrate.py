"""Goal: migrations run once, in order, each whole or not at all, whoever else runs them too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.places import Place, Server
from unfork import errors
from unfork.database.database import Database
from unfork.database.migrate import Migrations
from unfork.database.queries import Query

FIRST = "CREATE TABLE {raw}.first (n int);"
SECOND = (
    "-- A second step.\nCREATE TABLE {raw}.second (n int); INSERT INTO {raw}.second VALUES (2);"
)


@pytest.fixture
async def database(any_postgres: Server) -> AsyncIterator[Database]:
    database = Database(any_postgres.dsn)
    yield database
    async with database.session() as session:
        await session.run(Query("drop", "DROP SCHEMA IF EXISTS steps_raw CASCADE"))
    await database.close()


def steps(folder: Path, **files: str) -> Migrations:
    for path in folder.glob("*.sql"):
        path.unlink()
    for name, text in files.items():
        (folder / f"{name.removeprefix('f')}.sql").write_text(text)
    return Migrations(folder, "steps_raw", {"raw": "steps_raw"})


async def test_what_is_pending_runs_once_and_in_order(database: Database, tmp_path: Path) -> None:
    async with database.session() as session:
        migrations = steps(tmp_path, f0001_pre_first=FIRST)
        with pytest.raises(errors.SchemaOutdated, match="0001_pre_first"):
            await migrations.require(session)
        assert await migrations.apply(session) == ["0001_pre_first.sql"]
        assert await migrations.apply(session) == []
        more = steps(tmp_path, f0001_pre_first=FIRST, f0002_post_second=SECOND)
        assert [one.name for one in await more.pending(session)] == ["0002_post_second.sql"]
        assert await more.apply(session) == ["0002_post_second.sql"]
        await more.require(session)
        assert await session.rows(Query("read", "SELECT n FROM steps_raw.second")) == [{"n": 2}]


async def test_a_changed_file_and_a_newer_schema_are_refused(
    database: Database, tmp_path: Path
) -> None:
    async with database.session() as session:
        both = {"f0001_pre_first": FIRST, "f0002_pre_second": SECOND}
        await steps(tmp_path, **both).apply(session)
        changed = steps(tmp_path, **{**both, "f0001_pre_first": FIRST + " "})
        with pytest.raises(errors.SchemaOutdated, match="was changed after it ran"):
            await changed.apply(session)
        older = steps(tmp_path, f0001_pre_first=FIRST)
        with pytest.raises(errors.SchemaOutdated, match="newer release"):
            await older.require(session)


async def test_a_migration_that_fails_leaves_nothing(database: Database, tmp_path: Path) -> None:
    broken = SECOND + " SELECT wrong;"
    async with database.session() as session:
        migrations = steps(tmp_path, f0001_pre_first=FIRST, f0002_pre_second=broken)
        with pytest.raises(errors.UnforkError):
            await migrations.apply(session)
        assert [one.version for one in await migrations.pending(session)] == [2]
        there = Query("there", "SELECT to_regclass('steps_raw.second') AS name")
        assert await session.row(there) == {"name": None}


async def test_two_processes_at_once_apply_each_file_once(
    database: Database, tmp_path: Path
) -> None:
    migrations = steps(tmp_path, f0001_pre_first=FIRST, f0002_pre_second=SECOND)

    async def one() -> list[str]:
        async with database.session() as session:
            return await migrations.apply(session)

    done = await asyncio.gather(one(), one(), one())
    assert sorted(name for names in done for name in names) == [
        "0001_pre_first.sql",
        "0002_pre_second.sql",
    ]


async def test_the_schemas_of_a_chain_migrate_twice_without_a_change(fresh_place: Place) -> None:
    query = "SELECT count(*) AS tables FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace "
    query += "WHERE nspname IN (%(raw)s, %(app)s)"
    before = await fresh_place.rows(query, raw=fresh_place.raw, app=fresh_place.app)
    await fresh_place.migrate()
    assert before[0]["tables"] > 50
    assert await fresh_place.rows(query, raw=fresh_place.raw, app=fresh_place.app) == before
