"""Places for tests that need Postgres: a chain's schemas in a server, and what tests make there."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unfork.app import schema as app_schema
from unfork.config import tree
from unfork.database.database import Database
from unfork.database.queries import Query
from unfork.database.session import Probe
from unfork.hot import schema as raw_schema
from unfork.hot.payloads import PayloadStore
from unfork.hot.reader import HotReader
from unfork.hot.store import HotStore

SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "max_wal_size": "2GB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "1h",
    "jit": "off",
    "autovacuum_naptime": "5s",
}

#: Below this the store's constraints do not exist (UNIQUE NULLS NOT DISTINCT).
OLDEST = 15


@dataclass
class Place:
    """One chain's schemas in one server, and what a test makes there."""

    dsn: str
    name: str
    folder: Path
    #: Where the app side is; the same server unless a test wants two.
    app_dsn: str = ""
    databases: list[Database] = field(default_factory=list)
    stores: list[HotStore] = field(default_factory=list)

    @property
    def raw(self) -> str:
        return raw_schema.name(self.name)

    @property
    def app(self) -> str:
        return app_schema.name(self.name)

    def chain(self, **settings: Any) -> tree.Chain:
        """The chain's configuration, with small partitions unless the test says otherwise."""
        sizes = {"blocks": 5000, "transactions": 5000, "logs": 5000, "traces": 5000}
        given = {"partition_sizes": {**sizes, "withdrawals": 5000}, **settings}
        return tree.Chain(name=self.name, **given)

    def database(self, *, probe: Probe | None = None, **settings: Any) -> Database:
        """A pool of its own, closed with the test."""
        database = Database(self.dsn, probe=probe, **settings)
        self.databases.append(database)
        return database

    def app_database(self, *, probe: Probe | None = None, **settings: Any) -> Database:
        """A pool of its own to the app side, closed with the test."""
        given = {"pool": tree.Pool(max_open_conns=8, max_idle_conns=4), **settings}
        database = Database(self.app_dsn or self.dsn, probe=probe, **given)
        self.databases.append(database)
        return database

    def payloads(self) -> PayloadStore:
        """The payload store of the place."""
        return PayloadStore(str(self.folder / "payloads"))

    def reader(self) -> HotReader:
        """A reader of the chain's raw tables, payloads whole."""
        return HotReader(self.chain(), self.database(), self.payloads())

    def store(
        self,
        *,
        chain: tree.Chain | None = None,
        probe: Probe | None = None,
        database: Database | None = None,
        **settings: Any,
    ) -> HotStore:
        """A hot store, not opened yet, closed with the test."""
        store = HotStore(
            chain or self.chain(),
            database or self.database(probe=probe),
            self.payloads(),
            **settings,
        )
        self.stores.append(store)
        return store

    async def rows(self, text: str, **parameters: Any) -> list[dict[str, Any]]:
        """Runs SQL of a test; {raw} and {app} stand for the schemas."""
        return await self._run(self.dsn, text, parameters)

    async def app_rows(self, text: str, **parameters: Any) -> list[dict[str, Any]]:
        """The same where the app side is."""
        return await self._run(self.app_dsn or self.dsn, text, parameters)

    async def _run(
        self, dsn: str, text: str, parameters: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        filled = text.replace("{raw}", f'"{self.raw}"').replace("{app}", f'"{self.app}"')
        # Nothing stays idle, so that nothing is left to close.
        pool = tree.Pool(max_open_conns=1, max_idle_conns=0)
        async with Database(dsn, pool=pool).session() as session:
            if filled.lstrip().upper().startswith(("SELECT", "WITH", "SHOW", "TABLE")):
                return await session.rows(Query("test", filled), **parameters)
            await session.run(Query("test", filled), **parameters)
            return []

    async def migrate(self) -> None:
        """Makes the schemas."""
        async with self.database().session() as session:
            await raw_schema.migrations(self.name).apply(session)
        async with self.app_database().session() as session:
            await app_schema.migrations(self.name).apply(session)
        await self.close()

    async def wipe(self) -> None:
        """Empties every table in one round trip; partitions stay."""
        await self.close()
        tables = ["blocks", "transactions", "logs", "traces", "withdrawals"]
        tables += [f"orphaned_{table}" for table in tables]
        tables += ["tx_lookup", "block_lookup", "journal", "spans", "payloads", "chain"]
        tables += ["pins", "streams", "pruned"]
        deletes = [f'DELETE FROM "{self.raw}".{table}' for table in tables]
        await self.rows("; ".join(deletes))
        await self._wipe_app()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _wipe_app(self) -> None:
        builds = await self.app_rows("SELECT dataset, table_name FROM {app}.generations")
        statements = [f'DROP VIEW IF EXISTS {{app}}."{row["dataset"]}"' for row in builds]
        statements += [f'DROP TABLE {{app}}."{row["table_name"]}"' for row in builds]
        tables = ["indexing_errors", "runs", "history", "refs", "days", "orphans", "follower"]
        tables += ["scheduled_tasks", "contract_reads"]
        # The others go with the builds and what happened to them.
        tables += ["generations", "jobs", "data_invalidations"]
        tables += ["lake_versions", "lake_pins"]
        statements += [f"DELETE FROM {{app}}.{table}" for table in tables]
        statements.append("INSERT INTO {app}.follower DEFAULT VALUES")
        await self.app_rows("; ".join(statements))

    async def close(self) -> None:
        """Ends what the test opened."""
        for store in self.stores:
            await store.close()
        for database in self.databases:
            await database.close()
        self.stores.clear()
        self.databases.clear()


@dataclass
class Server:
    """A running Postgres and the places made in it."""

    dsn: str
    version: int
    folder: Path
    free: list[Place] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    async def fresh(self) -> Place:
        """A place whose schemas were never used: for tests that change the schemas themselves."""
        number = next(self.numbers)
        place = Place(self.dsn, f"chain{number}", self.folder / f"files{number}")
        await place.migrate()
        return place

    async def place(self) -> Place:
        """An empty place, used before perhaps."""
        return self.free.pop() if self.free else await self.fresh()


def machine_binaries() -> Path | None:
    """The machine's own Postgres, where it has one that is new enough."""
    folders = [Path(found).resolve().parent for found in [shutil.which("postgres")] if found]
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("postgres", "pg_ctl", "initdb")):
            if version_of(folder / "postgres") >= OLDEST:
                return folder
    return None


def version_of(program: Path) -> int:
    output = subprocess.check_output([program, "--version"], text=True)
    match = re.search(r"\) (\d+)", output)
    assert match, output
    return int(match.group(1))
