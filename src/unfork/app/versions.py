"""Owns versions: what of a dataset was computed, from which blocks, with what, and with which rows.

In mode cursor a version is a span of blocks within bounds that never move, so that a table of any
length has few of them and each can be computed again by itself. In mode partition it is a
partition, and in mode full the one version of everything. A version without rows is one too: where
none is, nothing was ever computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from unfork.app import content, derived, state
from unfork.app.derived import VERSION_BLOCKS
from unfork.app.generations import Generation
from unfork.app.rows import Part
from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span, aligned
from unfork.database.queries import Queries
from unfork.database.session import Session
from unfork.datasets.derivation import ByBlocks, ByDay


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRead:
    """A partition as a run has computed it."""

    #: Its key: `1000-1999`, `2024-01-31`, or `all`.
    key: str
    #: The blocks it was computed from.
    span: Span
    #: The hash that its first block names as its parent; None for the chain's very first block.
    parent_hash: bytes | None
    #: The last block it was computed from.
    last: BlockRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What is current of a dataset, of some of its blocks."""

    generation_id: int
    dataset: str
    key: str
    span: Span
    last: BlockRef | None
    config_hash: str
    schema_hash: str
    #: Rows in it; None where nobody counted.
    rows: int | None
    #: The sum of the hashes of its rows; None where nobody added it up.
    content: Decimal | None
    is_valid: bool
    published_at: datetime


async def extend(
    session: Session,
    queries: Queries,
    build: Generation,
    *,
    span: Span,
    parent_hash: bytes | None,
    last: BlockRef,
    parts: Iterable[Part] | None,
    config_hash: str,
) -> None:
    """Records the new blocks of a dataset in blocks; `parts` None where rows are not counted."""
    found = None if parts is None else {int(part.key): part for part in parts}
    pieces = []
    first = span.first
    while first <= span.last:
        bounds = aligned(first, VERSION_BLOCKS)
        until = min(bounds.last, span.last)
        pieces.append((bounds, Span(first, until)))
        first = until + 1
    counted = [(found or {}).get(bounds.first) for bounds, _ in pieces]
    await session.run(
        queries["versions_extend"],
        keys=[_key(bounds) for bounds, _ in pieces],
        firsts=[piece.first for _, piece in pieces],
        lasts=[piece.last for _, piece in pieces],
        row_counts=None if found is None else [part.new_count if part else 0 for part in counted],
        contents=None if found is None else _contents(counted),
        parent_hashes=[parent_hash if piece.first == span.first else None for _, piece in pieces],
        last_hashes=[last.hash if piece.last == span.last else None for _, piece in pieces],
        **_about(build, config_hash),
    )


async def adjust(
    session: Session,
    queries: Queries,
    build: Generation,
    *,
    span: Span,
    parts: Sequence[Part],
    config_hash: str,
) -> None:
    """Records what became of blocks that were done again."""
    await session.run(
        queries["versions_adjust"],
        generation_id=build.id,
        first=span.first,
        last=span.last,
        config_hash=config_hash,
        numbers=[int(part.key) for part in parts],
        row_counts=[part.new_count - part.old_count for part in parts],
        # Whole numbers, because decimal arithmetic would round them to 28 digits.
        contents=[Decimal(int(part.new_content) - int(part.old_content)) for part in parts],
    )


async def divide(
    session: Session, queries: Queries, build: Generation, *, span: Span, config_hash: str
) -> None:
    """Cuts blocks that were done again out of versions of other code, so that each is of one.

    A run is smaller than a version where ranges are configured to be; what it has not done stays
    what it was.
    """
    mixed = await session.rows(
        queries["versions_mixed"],
        generation_id=build.id,
        first=span.first,
        last=span.last,
        config_hash=config_hash,
    )
    for row in mixed:
        whole = Span(row["first_number"], row["last_number"])
        done = spans.intersect(whole, span)
        assert done is not None
        pieces = [*spans.subtract([whole], [done]), done]
        measured = [await _measured(session, queries, build, piece) for piece in pieces]
        await session.run(
            queries["versions_divide"],
            version=row["version"],
            generation_id=build.id,
            config_hash=config_hash,
            firsts=[piece.first for piece in pieces],
            lasts=[piece.last for piece in pieces],
            row_counts=[count for count, _ in measured],
            contents=[content for _, content in measured],
            are_new=[piece == done for piece in pieces],
        )


async def publish(
    session: Session,
    queries: Queries,
    build: Generation,
    *,
    partitions: Sequence[PartitionRead],
    parts: Sequence[Part],
    config_hash: str,
    invalidations: Sequence[int],
) -> list[Span]:
    """Records partitions, and returns the blocks of those that others have read otherwise.

    A partition that grew by new blocks is not among them: whoever read it is merely behind.
    """
    keys = [partition.key for partition in partitions]
    before = {
        row["partition_key"]: row
        for row in await session.rows(queries["versions_before"], generation_id=build.id, keys=keys)
    }
    by_key = {part.key: part for part in parts}
    changed = [key for key in keys if key in by_key and by_key[key].is_changed]
    if changed:
        await session.run(queries["versions_retire"], generation_id=build.id, keys=changed)
    counted = [by_key.get(key) for key in keys]
    await session.run(
        queries["versions_publish"],
        keys=keys,
        firsts=[partition.span.first for partition in partitions],
        lasts=[partition.span.last for partition in partitions],
        row_counts=[part.new_count if part else 0 for part in counted],
        contents=_contents(counted),
        parent_hashes=[partition.parent_hash for partition in partitions],
        last_hashes=[partition.last.hash for partition in partitions],
        invalidations=list(invalidations),
        **_about(build, config_hash),
    )
    return [
        partition.span
        for partition in partitions
        if partition.key in changed
        and partition.key in before
        and not (
            before[partition.key]["is_valid"]
            and before[partition.key]["last_number"] < partition.span.last
        )
    ]


async def vanished(session: Session, queries: Queries, build: Generation) -> dict[str, Span]:
    """Forgets the days that a fork left without a block; returns them with the blocks they had.

    Nobody will ever compute them again, and as long as they are there they are read.
    """
    if not isinstance(build.dataset.partitioning, ByDay):
        return {}
    rows = await session.rows(queries["versions_vanished"], generation_id=build.id)
    return {row["partition_key"]: Span(row["first_number"], row["last_number"]) for row in rows}


async def watermark(session: Session, queries: Queries, build: Generation) -> BlockRef | None:
    """How far the partitions of a build are complete, valid and linked, from its watermark on.

    It falls where a partition below it is not valid: one that was fine may have grown by blocks
    whose rows were corrected while they were read.
    """
    known = build.watermark
    wrong = await session.row(queries["versions_lowest_invalid"], generation_id=build.id)
    if wrong is not None and known is not None and wrong["first_number"] <= known.number:
        known = state.ref(wrong["first_number"] - 1, wrong["parent_hash"])
        return None if wrong["first_number"] <= build.first else known
    rows = await session.rows(
        queries["versions_after"],
        generation_id=build.id,
        number=known.number if known else build.first - 1,
    )
    for row in rows:
        following = build.first if known is None else known.number + 1
        is_linked = (
            known is None or row["first_number"] < following or row["parent_hash"] == known.hash
        )
        if not row["is_valid"] or row["first_number"] > following or not is_linked:
            break
        known = BlockRef(row["last_number"], row["last_hash"])
        if row["last_number"] < _end(build, row):
            break
    return known


async def current(session: Session, queries: Queries) -> list[Version]:
    """Every current version, by build and block."""
    return [
        Version(
            generation_id=row["generation_id"],
            dataset=row["dataset"],
            key=row["partition_key"],
            span=Span(row["first_number"], row["last_number"]),
            last=state.ref(row["last_number"], row["last_hash"]),
            config_hash=row["config_hash"],
            schema_hash=row["schema_hash"],
            rows=row["row_count"],
            content=row["content_hash"],
            is_valid=row["is_valid"],
            published_at=row["published_at"],
        )
        for row in await session.rows(queries["versions_current"])
    ]


async def _measured(
    session: Session, queries: Queries, build: Generation, span: Span
) -> tuple[int, Decimal]:
    """The rows of a span, and their content."""
    query = queries.of(
        "versions_measure",
        build.table,
        table=build.table,
        number=build.dataset.number_column,
        digest=content.digest(queries, build.dataset),
        content=content.total(queries),
    )
    row = await session.row(query, first=span.first, last=span.last)
    assert row is not None
    return row["row_count"], row["content"]


def _end(build: Generation, row: Mapping[str, Any]) -> int:
    """The last block that a partition has, or will have."""
    match build.dataset.partitioning:
        case ByBlocks(size):
            return aligned(int(row["last_number"]), size).last
        case ByDay():
            return int(row["day_last"]) if row["day_last"] is not None else row["last_number"]
        case None:
            assert row["partition_key"] == derived.WHOLE
            return int(row["last_number"])


def _contents(parts: Sequence[Part | None]) -> list[Decimal]:
    """The content of each part; nothing for one without rows."""
    return [part.new_content if part else Decimal(0) for part in parts]


def _key(bounds: Span) -> str:
    return f"{bounds.first}-{bounds.last}"


def _about(build: Generation, config_hash: str) -> dict[str, Any]:
    return {
        "generation_id": build.id,
        "dataset": build.dataset.name,
        "config_hash": config_hash,
        "schema_hash": build.schema_hash,
        "location": build.table,
    }
