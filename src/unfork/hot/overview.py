"""Owns what an operator is told about a chain's raw store, read beside the writer.

Nothing here takes a lock that a commit waits for, and nothing grows with the chain: forks are
counted by the orphaned blocks that are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from unfork.config import tree
from unfork.database import migrate
from unfork.database.database import Database
from unfork.hot import schema, state
from unfork.hot.state import ChainState


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphaned:
    """The forks of which orphaned blocks are kept."""

    forks: int
    blocks: int
    #: Blocks that the deepest of them took away.
    depth_max: int
    #: When the last one was, None where there is none.
    last_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The process that writes the chain now."""

    pid: int
    application_name: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """A chain's raw store at one moment."""

    state: ChainState
    orphaned: Orphaned
    #: None where nobody writes.
    writer: Writer | None
    #: Bytes of the whole schema.
    bytes: int


async def read(database: Database, chain: tree.Chain) -> Overview | None:
    """The overview, None where no writer has ever opened the store; raises SchemaOutdated."""
    queries, name = schema.bound(chain.name), schema.name(chain.name)
    async with database.session() as session:
        await schema.migrations(chain.name).require(session)
        row = await session.row(queries["chain_read"])
        if row is None:
            return None
        orphaned = await session.row(queries["overview_orphaned"])
        holder = await session.row(
            queries["writer_holder"], key=migrate.advisory_key("writer", name)
        )
        size = await session.row(queries["reset_bytes"], schema=name)
    assert orphaned is not None and size is not None
    writer = None
    if holder is not None:
        writer = Writer(
            pid=holder["pid"], application_name=holder["application_name"], host=holder["host"]
        )
    return Overview(
        state=state.from_row(row), orphaned=Orphaned(**orphaned), writer=writer, bytes=size["bytes"]
    )


async def chains(database: Database) -> list[str]:
    """The names of the chains that the database has raw tables for."""
    suffix = schema.name("")
    async with database.session() as session:
        rows = await session.rows(schema.bound("")["overview_chains"])
    return [row["schema"].removesuffix(suffix) for row in rows]
