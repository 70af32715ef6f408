"""Owns the undoing of derived data: every dataset of the chain goes back to a block at once.

It runs inside the transaction that removes the refs, with every build locked, so that no reader
meets a row of a block that is gone and no run commits into the middle.

- replace: the rows above go.
- append: nothing goes; the blocks of the rows above are flagged as orphaned.
- merge: history puts the rows back. Where it does not reach (an operator went below the floor), an
  empty build takes the place of the one that cannot be mended.
- partitions: the versions that hold blocks above are marked; their rows are served, with the block
  they are of, until the next version is published. A partition without any block left goes with its
  rows: perhaps there is never a next version of it.
- the lake: it holds final blocks alone. Below the floor its versions lose their pointers; the files
  stay for who reads them.
"""

from __future__ import annotations

from collections.abc import Sequence

from unfork.app import content, generations, history, invalidations, state
from unfork.app.generations import Generation
from unfork.app.state import Follower
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.queries import Queries, Query
from unfork.database.session import Session
from unfork.datasets.dataset import Kind
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Strategy


async def unwind(
    session: Session,
    queries: Queries,
    *,
    schema: str,
    held: Follower,
    to: BlockRef | None,
    tip: BlockRef | None,
) -> None:
    """Takes every dataset back to `to`, or to nothing, and records what has to be done again."""
    assert held.position is not None
    builds = generations.read(await session.rows(queries["generations_lock_all"]))
    await session.run(queries["unwind_plan"])
    target = to.number if to else -1
    at = {"target": target, "hash": to.hash if to else None}
    outdated: list[tuple[int, Span]] = []
    for build in builds:
        if build.dataset.mode is Mode.CURSOR and build.next - 1 > target:
            outdated.append((build.id, Span(max(target + 1, build.first), build.next - 1)))
    in_blocks = [build for build in builds if build.dataset.mode is Mode.CURSOR]
    for build in in_blocks:
        if build.dataset.strategy is not Strategy.MERGE:
            await session.run(_rows_query(queries, build), id=build.id, **at)
    mended = await _undo_merges(session, queries, schema, held, in_blocks, target)
    await session.run(queries["unwind_cursors"], generations=[b.id for b in in_blocks], **at)
    outdated = [(mended.get(build_id, build_id), span) for build_id, span in outdated]
    in_parts = [build for build in builds if build.dataset.mode is not Mode.CURSOR]
    outdated += await _mark_versions(session, queries, [build.id for build in in_parts], target)
    for build in in_parts:
        await _remove_vanished(session, queries, build, target)
    await session.run(queries["unwind_leases"], **at)
    await session.run(queries["errors_unwind"], target=target)
    if _is_below_floor(held, to):
        # What is in the lake was final: only an operator goes below it.
        await session.run(queries["unwind_lake"], target=target)
    fork = {
        "old_tip": state.document(held.position),
        "new_tip": state.document(tip),
        "fork_block": state.document(to),
    }
    first = max(target + 1, held.first or 0)
    await invalidations.record(
        session,
        queries,
        dataset="blocks",
        span=Span(first, max(held.position.number, first)),
        outdated=outdated,
        reason="reorg",
        event=fork,
    )


def _is_below_floor(held: Follower, to: BlockRef | None) -> bool:
    return held.floor is not None and (to is None or to.number < held.floor.number)


async def _undo_merges(
    session: Session,
    queries: Queries,
    schema: str,
    held: Follower,
    builds: Sequence[Generation],
    target: int,
) -> dict[int, int]:
    """Undoes what was merged above the target; returns the builds that were replaced, by id."""
    undone, replaced = [], {}
    for build in builds:
        if build.dataset.strategy is not Strategy.MERGE or build.next - 1 <= target:
            continue
        floors = [held.history_floor, build.history_floor]
        floor = max((floor for floor in floors if floor is not None), default=-1)
        if floor <= target or floor < build.first:
            undone.append(merged_table(schema, build))
        else:
            new = await generations.replace(session, queries, schema, build)
            replaced[build.id] = new.id
    await history.undo(session, queries, undone, target=target)
    return replaced


async def _mark_versions(
    session: Session, queries: Queries, ids: Sequence[int], target: int
) -> list[tuple[int, Span]]:
    """Marks what holds blocks above the target, and returns the blocks to do again."""
    if not ids:
        return []
    marked = await session.rows(
        queries["invalidations_versions"],
        generations=list(ids),
        firsts=[target + 1],
        lasts=[2**62],
        only_valid=True,
    )
    await session.run(queries["invalidations_fall"], generations=list(ids))
    return [(row["generation_id"], Span(row["first_number"], row["last_number"])) for row in marked]


async def _remove_vanished(
    session: Session, queries: Queries, build: Generation, target: int
) -> None:
    """Removes the partitions that have no block at or below the target, with their rows."""
    vanished = await session.rows(queries["unwind_vanished"], id=build.id, target=target)
    if not vanished:
        return
    dataset = build.dataset
    given: dict[str, object] = {}
    match dataset.partitioning:
        case None:
            scope = queries.fragment("scope_whole")
        case ByBlocks():
            scope = queries.fragment("scope_from", number=dataset.number_column)
            given["first"] = min(row["first_number"] for row in vanished)
        case ByDay(column):
            is_date = dataset.kind(column) is Kind.DATE
            scope = queries.fragment("scope_dates" if is_date else "scope_texts", column=column)
            given["parts"] = [row["partition_key"] for row in vanished]
    query = queries.of("unwind_rows", build.table, table=build.table, scope=scope)
    await session.run(query, **given)


def merged_table(schema: str, build: Generation) -> history.Table:
    """The table of a merge dataset as history sees it."""
    return history.Table(
        schema=schema,
        name=build.table,
        types={column.name: column.kind.value for column in build.dataset.columns},
        key=build.dataset.key,
    )


def _rows_query(queries: Queries, build: Generation) -> Query:
    """The statement that undoes the rows of a dataset in blocks."""
    dataset = build.dataset
    if dataset.strategy is Strategy.APPEND:
        return queries.of(
            "unwind_append",
            build.table,
            table=build.table,
            number=dataset.number_column,
            hash=dataset.hash_column,
        )
    return queries.of(
        "unwind_replace",
        build.table,
        table=build.table,
        number=dataset.number_column,
        digest=content.digest(queries, dataset),
        content=content.total(queries),
    )
