"""Owns migrations: numbered SQL files, applied in order, once, as a step of its own.

Files are named `0001_pre_words.sql`; `pre` ones may run while the previous release still writes,
`post` ones after it ended. Each runs in one transaction under a lock of the schema, and is recorded
with its checksum: two processes at once apply each file once, and a file that was changed after it
ran is an error, never a surprise.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from unfork import errors
from unfork.database import queries
from unfork.database.queries import Query
from unfork.database.session import Session

_FILE = re.compile(r"^(\d{4})_(pre|post)_\w+\.sql$")
_OWN = Path(__file__).parent / "sql"


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """One file."""

    #: Its place in the order, from 1, without gaps.
    version: int
    #: The file's name.
    name: str
    #: SHA-256 of the file, before any schema name is filled in.
    checksum: str
    #: The SQL, with schema names filled in.
    text: str


class Migrations:
    """The migrations of one schema."""

    def __init__(self, folder: Path, schema: str, identifiers: Mapping[str, str]) -> None:
        self.schema = schema
        self._files = _read(folder, identifiers)
        self._queries = queries.Queries(_OWN, {"schema": schema})

    async def pending(self, session: Session) -> list[Migration]:
        """The files that have not run yet, in order; raises where one was changed since it ran."""
        if await self.is_new(session):
            return list(self._files)
        return self._left(await session.rows(self._queries["migrations_applied"]))

    async def is_new(self, session: Session) -> bool:
        """Whether nothing was ever applied to the schema."""
        return await session.row(self._queries["migrations_present"], schema=self.schema) is None

    async def apply(self, session: Session) -> list[str]:
        """Runs what is pending and returns the names; safe to repeat and to run twice at once."""
        done = []
        for migration in await self.pending(session):
            async with session.transaction():
                key = advisory_key("migrate", self.schema)
                await session.run(self._queries["migrations_lock"], key=key)
                await session.run(self._queries["migrations_prepare"])
                applied = await session.rows(self._queries["migrations_applied"])
                if migration not in self._left(applied):
                    continue
                await session.run(Query(migration.name, migration.text))
                await session.run(
                    self._queries["migrations_record"],
                    version=migration.version,
                    name=migration.name,
                    checksum=migration.checksum,
                )
            done.append(migration.name)
        return done

    async def require(self, session: Session) -> None:
        """Raises SchemaOutdated unless everything has run."""
        pending = await self.pending(session)
        if pending:
            names = ", ".join(migration.name for migration in pending)
            raise errors.SchemaOutdated(
                f"schema {self.schema} lacks {names}; run `unfork migrate` first",
                schema=self.schema,
            )

    def _left(self, applied: list[dict[str, object]]) -> list[Migration]:
        by_version = {row["version"]: row for row in applied}
        for migration in self._files:
            row = by_version.pop(migration.version, None)
            if row is not None and row["checksum"] != migration.checksum:
                raise errors.SchemaOutdated(
                    f"{migration.name} was changed after it ran in schema {self.schema}; "
                    "put it back and write a new migration",
                    schema=self.schema,
                )
        if by_version:
            raise errors.SchemaOutdated(
                f"schema {self.schema} was made by a newer release of unfork "
                f"(migration {max(map(str, by_version))}); use that one",
                schema=self.schema,
            )
        known = {row["version"] for row in applied}
        return [migration for migration in self._files if migration.version not in known]


def advisory_key(purpose: str, name: str) -> int:
    """The number of an advisory lock of ours, the same in every process."""
    digest = hashlib.sha256(f"unfork {purpose} {name}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _read(folder: Path, identifiers: Mapping[str, str]) -> tuple[Migration, ...]:
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = _FILE.match(path.name)
        assert match, f"{path.name} is not named like 0001_pre_words.sql"
        text = path.read_text(encoding="utf-8")
        found.append(
            Migration(
                version=int(match.group(1)),
                name=path.name,
                checksum=hashlib.sha256(text.encode()).hexdigest(),
                text=queries.fill(text, identifiers),
            )
        )
    assert [migration.version for migration in found] == list(range(1, len(found) + 1))
    return tuple(found)
