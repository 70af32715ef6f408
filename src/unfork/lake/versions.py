"""Owns the versions of partitions: who writes one, which one is current, who reads them still.

A version is claimed before anything is written, published in one transaction, and never changed
afterwards. Its number is the token of its writer: one that was not heard of in time cannot publish
any more, and his files are garbage.

Durability class: final. Invariants:
- A partition has one current version at most, and current versions of a dataset never overlap.
- Where two of them touch, the parent hash of the upper one is the last hash of the lower one (I3).
- A pointer moves only while the chain is what it was when the rows were read (I5); what is
  published lies at or below the floor (I4).
- Every move is counted under a lock; a reader's pin names a count, so what was current at it or
  later is kept for him.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from unfork import errors, telemetry
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.lake import file as lake_file
from unfork.lake import layout, schema
from unfork.lake.file import File

log = telemetry.logger(__name__)

#: Beyond every block.
NUMBER_MAX = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A partition that is to get a version."""

    dataset: str
    key: str
    span: Span
    #: What it is computed with.
    config_hash: str
    #: The columns of its rows.
    schema_hash: str
    #: The version it replaces; None where it must be the first.
    replaces: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A version that is ours to write."""

    version: int
    target: Target
    #: Its folder below the root.
    location: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written, as it was read back, and the blocks it was computed from."""

    files: tuple[File, ...]
    #: The same rows, found by an id.
    lookups: tuple[File, ...] = ()
    #: The first block's hash; what it names as its parent, None for the first block of all.
    first_hash: bytes
    parent_hash: bytes | None
    last: BlockRef
    #: The epoch in which the rows were read.
    epoch: int

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files, lookups too."""
        return sum(file.size for file in (*self.files, *self.lookups))

    @property
    def content(self) -> int:
        """The content of all rows."""
        return lake_file.total(file.content for file in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version that was published."""

    version: int
    dataset: str
    key: str
    span: Span
    location: str
    rows: int
    #: Bytes of all files.
    size: int
    content: int
    first_hash: bytes
    parent_hash: bytes | None
    last: BlockRef
    config_hash: str
    schema_hash: str
    files: tuple[File, ...]
    #: The files that say in which block an id is.
    lookups: tuple[File, ...]
    published_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """Up to where the lake holds a dataset without a gap."""

    #: The last block; None where the first one is missing already.
    last: BlockRef | None
    #: Where partitions begin again after the gap, None where they do not.
    next_first: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Garbage:
    """A version whose files nobody needs."""

    version: int
    dataset: str
    key: str
    location: str
    #: Whether it was never published.
    is_abandoned: bool
    #: Bytes of its files; None where nobody counted.
    size: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """A version that was not published: somebody or something else was faster."""

    why: str


class Versions:
    """The versions of one chain's lake."""

    def __init__(self, chain: str, app: str, database: Database) -> None:
        """`app` names the schema that the tables are in."""
        self.chain = chain
        self._queries = schema.bound(app)
        self._database = database

    async def claim(self, target: Target, *, worker: str, lease_s: float) -> Claim | None:
        """Begins a version; None where somebody writes one, or the partition has changed."""
        async with self._database.session() as session:
            await session.run(self._queries["lake_reap"])
            row = await session.row(
                self._queries["lake_claim"],
                dataset=target.dataset,
                key=target.key,
                folder=layout.folder(self.chain, target.dataset, target.key),
                # Numbers begin again after a reset, folders of that time may still be there.
                suffix=secrets.token_hex(4),
                first=target.span.first,
                last=target.span.last,
                config_hash=target.config_hash,
                schema_hash=target.schema_hash,
                replaces=target.replaces,
                worker=worker,
                lease_s=lease_s,
            )
        if row is None:
            return None
        return Claim(version=row["version"], target=target, location=row["location"])

    async def renew(self, claim: Claim, *, lease_s: float) -> bool:
        """Holds a claim for its whole time again; False where it is lost."""
        query = self._queries["lake_renew"]
        async with self._database.session() as session:
            row = await session.row(query, version=claim.version, lease_s=lease_s)
        return row is not None

    async def abandon(self, claim: Claim) -> None:
        """Gives a claim up; what was written is garbage. Safe to repeat."""
        async with self._database.session() as session:
            await session.run(self._queries["lake_abandon"], version=claim.version)

    async def publish(self, claim: Claim, written: Written) -> Version | Lost:
        """Moves the pointer of the partition to what was written; safe to repeat.

        Raises LakeUnlinked where its hashes do not fit the partitions beside it; nothing is changed
        then.
        """
        target = claim.target
        assert written.last.number == target.span.last
        async with self._database.session() as session, session.transaction():
            chain = await session.row(self._queries["lake_chain"])
            move = await session.row(self._queries["lake_move"])
            held = await session.row(self._queries["lake_hold"], version=claim.version)
            assert chain is not None and move is not None
            if held is not None and held["state"] == "current":
                # The answer to the first try was lost.
                return from_row(held)
            lost = _lost(chain, held, written)
            if lost is None:
                around = await session.rows(
                    self._queries["lake_around"],
                    dataset=target.dataset,
                    first=target.span.first,
                    last=target.span.last,
                )
                lost = _displaced(target, around)
            if lost is not None:
                return lost
            _require_links(target, written, around)
            old = [] if target.replaces is None else [target.replaces]
            await self._retire(session, old, move["moves"])
            await session.run(
                self._queries["lake_publish"],
                version=claim.version,
                row_count=written.rows,
                bytes=written.size,
                content_hash=written.content,
                first_hash=written.first_hash,
                last_hash=written.last.hash,
                parent_hash=written.parent_hash,
                files=json.dumps([file.document() for file in written.files]),
                lookups=json.dumps([file.document() for file in written.lookups]),
            )
            row = await session.row(self._queries["lake_hold"], version=claim.version)
        assert row is not None
        telemetry.event(
            log, "lake_published", dataset=target.dataset, span=target.span, rows=written.rows
        )
        return from_row(row)

    async def retire(self, versions: Sequence[int]) -> int:
        """Takes the pointers away from versions; returns how many had one."""
        async with self._database.session() as session, session.transaction():
            move = await session.row(self._queries["lake_move"])
            assert move is not None
            return await self._retire(session, versions, move["moves"])

    async def current(
        self,
        datasets: Sequence[str] | None = None,
        *,
        span: Span | None = None,
        with_files: bool = True,
    ) -> list[Version]:
        """The current versions that hold blocks of a span, by dataset and block.

        There may be very many: who does not need their files should not ask for them.
        """
        async with self._database.session() as session:
            rows = await session.rows(
                self._queries["lake_current"],
                datasets=None if datasets is None else list(datasets),
                first=span.first if span else 0,
                last=span.last if span else NUMBER_MAX,
                with_files=with_files,
            )
        return [from_row(row) for row in rows]

    async def ends(self, first: int) -> dict[str, End]:
        """Where each dataset is complete up to, counted from a block; none where it has nothing."""
        async with self._database.session() as session:
            firsts = await session.rows(self._queries["lake_firsts"], first=first)
            ends = await session.rows(self._queries["lake_ends"], first=first)
        lowest = {row["dataset"]: row["first_number"] for row in firsts}
        found = {}
        for row in ends:
            name = row["dataset"]
            if lowest[name] > first:
                found[name] = End(last=None, next_first=lowest[name])
            else:
                last = BlockRef(row["last_number"], row["last_hash"])
                found[name] = End(last=last, next_first=row["next_first"])
        return found

    async def states(self) -> list[Mapping[str, Any]]:
        """How many versions each dataset has in each state, with rows and bytes."""
        async with self._database.session() as session:
            return list(await session.rows(self._queries["lake_states"]))

    @asynccontextmanager
    async def pinned(self, *, holder: str, keep_s: float) -> AsyncIterator[None]:
        """Keeps the files of what is current from now on, for `keep_s` seconds at most."""
        async with self._database.session() as session:
            row = await session.row(self._queries["lake_pin"], holder=holder, keep_s=float(keep_s))
        assert row is not None
        try:
            yield
        finally:
            try:
                async with self._database.session() as session:
                    await session.run(self._queries["lake_unpin"], id=row["id"])
            except errors.UnforkError as error:
                # It ends by itself; what the caller did is not undone by it.
                telemetry.event(log, "lake_pin_left", holder=holder, error=str(error))

    async def garbage(self, *, keep_s: float) -> list[Garbage]:
        """The versions that no pointer names and no reader needs."""
        async with self._database.session() as session:
            await session.run(self._queries["lake_reap"])
            # Readers on Spark leave their pins to their end.
            await session.run(self._queries["lake_unpin"], id=None)
            rows = await session.rows(self._queries["lake_garbage"], keep_s=float(keep_s))
        return [
            Garbage(
                version=row["version"],
                dataset=row["dataset"],
                key=row["partition_key"],
                location=row["location"],
                is_abandoned=row["state"] == "abandoned",
                size=row["bytes"],
            )
            for row in rows
        ]

    async def locations(self) -> set[str]:
        """The folders of all versions there are, whatever became of them."""
        async with self._database.session() as session:
            return {row["location"] for row in await session.rows(self._queries["lake_locations"])}

    async def forget(self, versions: Sequence[int]) -> None:
        """Forgets versions whose files are gone."""
        async with self._database.session() as session:
            await session.run(self._queries["lake_forget"], versions=list(versions))

    async def _retire(self, session: Session, versions: Sequence[int], move: int) -> int:
        query = self._queries["lake_retire"]
        return await session.run(query, versions=list(versions), move=move)


def from_row(row: Mapping[str, Any]) -> Version:
    """Reads a version that was published."""
    return Version(
        version=row["version"],
        dataset=row["dataset"],
        key=row["partition_key"],
        span=Span(row["first_number"], row["last_number"]),
        location=row["location"],
        rows=row["row_count"],
        size=row["bytes"],
        content=int(row["content_hash"]),
        first_hash=row["first_hash"],
        parent_hash=row["parent_hash"],
        last=BlockRef(row["last_number"], row["last_hash"]),
        config_hash=row["config_hash"],
        schema_hash=row["schema_hash"],
        files=tuple(lake_file.from_document(found) for found in row["files"]),
        lookups=tuple(lake_file.from_document(found) for found in row["lookups"]),
        published_at=row["published_at"],
    )


def _lost(
    chain: Mapping[str, Any], held: Mapping[str, Any] | None, written: Written
) -> Lost | None:
    """Why a version must not be published, None where nothing is in the way."""
    if held is None or not held["is_held"]:
        return Lost(why="its writer was not heard of in time")
    if chain["epoch"] != written.epoch:
        return Lost(why=f"epoch {written.epoch} is over, it is {chain['epoch']}")
    if chain["floor_number"] is None or chain["floor_number"] < written.last.number:
        return Lost(why=f"block {written.last} is not final")
    return None


def _displaced(target: Target, around: Sequence[Mapping[str, Any]]) -> Lost | None:
    """Whether other versions hold blocks of the partition by now."""
    for row in around:
        other = Span(row["first_number"], row["last_number"])
        if other.overlaps(target.span) and row["version"] != target.replaces:
            return Lost(why=f"version {row['version']} holds blocks {other} by now")
    if target.replaces is not None and target.replaces not in [row["version"] for row in around]:
        return Lost(why=f"version {target.replaces} is not current any more")
    return None


def _require_links(target: Target, written: Written, around: Sequence[Mapping[str, Any]]) -> None:
    """Raises LakeUnlinked unless the hashes of neighbours fit."""
    for row in around:
        if row["last_number"] == target.span.first - 1 and row["last_hash"] != written.parent_hash:
            below, above = BlockRef(row["last_number"], row["last_hash"]), written.parent_hash
        elif row["first_number"] == target.span.last + 1 and (
            row["parent_hash"] != written.last.hash
        ):
            below, above = written.last, row["parent_hash"]
        else:
            continue
        named = "nothing" if above is None else f"0x{above.hex()[:10]}"
        raise errors.LakeUnlinked(
            f"partition {target.key} of {target.dataset} does not link to the one beside it: block "
            f"{below} is the last below, and the first above names {named} as its parent; a fork "
            "came after one of them was compacted; `unfork lake repair` puts it right",
            dataset=target.dataset,
            span=str(target.span),
        )
