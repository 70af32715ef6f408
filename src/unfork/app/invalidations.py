"""Owns invalidations: what has to be computed again, why, and by whom.

An invalidation says what happened to a dataset. Below it stands one row for each build that has
blocks to do again because of it; a run marks what it has done, and what is left of a row stays
open. A job that came later has no row, so it waits for nothing.

A run marks only the rows it was planned with: one that was written after the run read its inputs
is about something the run has not seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from unfork.chain.span import Span
from unfork.database.queries import Queries
from unfork.database.session import Session
from unfork.datasets.derivation import Mode

Reason = Literal["reorg", "correction", "manual", "schema_change"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """Blocks that one build has to do again."""

    #: Names the row; a run that was planned with it marks it.
    id: int
    generation_id: int
    job: str
    span: Span
    #: The dataset that something happened to.
    dataset: str
    reason: Reason
    at: datetime


async def record(
    session: Session,
    queries: Queries,
    *,
    dataset: str,
    span: Span,
    outdated: Iterable[tuple[int, Span]],
    reason: Reason,
    event: Mapping[str, Any],
) -> None:
    """Records what happened to a dataset, and the blocks that each build has to do again."""
    parts = list(outdated)
    number_filter = {"block_number": {"gte": span.first, "lte": span.last}}
    await session.run(
        queries["invalidations_record"],
        dataset=dataset,
        row_filter=json.dumps(number_filter),
        reason=reason,
        source_event=json.dumps(event),
        generations=[generation_id for generation_id, _ in parts],
        firsts=[part.first for _, part in parts],
        lasts=[part.last for _, part in parts],
    )


async def cascade(
    session: Session,
    queries: Queries,
    *,
    dataset: str,
    spans: Sequence[Span],
    reason: Reason,
    event: Mapping[str, Any],
) -> None:
    """Invalidates what was computed from these blocks of a dataset, in the builds that read it.

    The caller holds the locks of those builds, so that no run that has read the old rows commits
    unseen meanwhile, and none that is about to read them gets a lease.
    """
    if not spans:
        return
    firsts, lasts = [span.first for span in spans], [span.last for span in spans]
    dependents = await session.rows(queries["invalidations_dependents"], dataset=dataset)
    outdated: list[tuple[int, Span]] = []
    for row in dependents:
        if row["mode"] == Mode.CURSOR and row["last_number"] is not None:
            for span in spans:
                first = max(span.first, row["first_number"])
                # What is looked up in a block is looked up in every later one.
                until = row["last_number"] if row["is_lookup"] else span.last
                last = min(until, row["last_number"])
                if first <= last:
                    outdated.append((row["id"], Span(first, last)))
    others = [row["id"] for row in dependents if row["mode"] != Mode.CURSOR]
    if others:
        # Also those that are marked already: a run may be under way that mends them with old rows.
        marked = await session.rows(
            queries["invalidations_versions"],
            generations=others,
            firsts=firsts,
            lasts=lasts,
            only_valid=False,
        )
        # And what is computed for the first time right now: it has no version yet to be marked.
        under_way = await session.rows(
            queries["invalidations_leased"], generations=others, firsts=firsts, lasts=lasts
        )
        outdated += [(row["generation_id"], _span(row)) for row in (*marked, *under_way)]
        await session.run(queries["invalidations_fall"], generations=others)
    if outdated:
        await record(
            session,
            queries,
            dataset=dataset,
            span=Span(min(firsts), max(lasts)),
            outdated=outdated,
            reason=reason,
            event=event,
        )


async def process(
    session: Session, queries: Queries, *, generation_id: int, ids: Sequence[int], span: Span
) -> None:
    """Marks what a run has done of the rows it was planned with."""
    if not ids:
        return
    await session.run(queries["invalidations_turn"], ids=list(ids))
    await session.run(
        queries["invalidations_process"],
        generation_id=generation_id,
        ids=list(ids),
        first=span.first,
        last=span.last,
    )
    await session.run(queries["invalidations_settle"])


async def unprocessed(session: Session, queries: Queries) -> list[Outdated]:
    """What has to be done again, by build and block."""
    return [
        Outdated(
            id=row["id"],
            generation_id=row["generation_id"],
            job=row["job"],
            span=_span(row),
            dataset=row["dataset"],
            reason=row["reason"],
            at=row["created_at"],
        )
        for row in await session.rows(queries["invalidations_open"])
    ]


def _span(row: Mapping[str, Any]) -> Span:
    return Span(row["first_number"], row["last_number"])
