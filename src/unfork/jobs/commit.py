"""Owns the commit of a run: rows, versions, watermark, invalidations and lease in one transaction.

The build is locked, the lease is checked by its token, what was read is checked against the refs;
whatever does not fit discards the run, with nothing written. A fork locks every build before it
takes refs away, so a run commits wholly before it, and is undone, or wholly after it, and is judged
by what the chain is then.

Invariants:
- No commit without the right parent, nor with a token that is not the lease's own (I5).
- The watermark passes only blocks that are complete and linked by hash (I6).
- A commit that is run twice is discarded the second time: its lease is gone (I8).
- Rows of a serial dataset come in the order of the chain, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from unfork import errors, telemetry
from unfork.app import indexing_errors, invalidations, refused, rows, staging, versions
from unfork.app import schema as app_schema
from unfork.app.generations import Generation
from unfork.app.partitions import TablePartitions
from unfork.app.rows import Part, Prepared, Rows
from unfork.app.staging import Staged
from unfork.app.state import Follower
from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.datasets.derivation import Mode, Strategy
from unfork.jobs import held, schema, verdict
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Why

log = telemetry.logger(__name__)

#: Rows above which they are encoded beside the event loop instead of on it.
ROWS_ON_LOOP = 500


@dataclass(frozen=True, slots=True)
class _Written:
    count: int
    changed: tuple[Span, ...]


class Commits:
    """Commits the runs of one chain's jobs."""

    def __init__(
        self, chain: str, database: Database, *, now: Callable[[], datetime] | None = None
    ) -> None:
        self._schema = app_schema.name(chain)
        self._queries = schema.bound(chain)
        self._app = app_schema.bound(chain)
        self._database = database
        self._partitions = TablePartitions(self._schema, database)
        self._now = now

    async def commit(self, run: Finished) -> Committed | Discarded:
        """Commits a run in one transaction, or discards it.

        Raises RowRefused where its rows do not fit (a fault of the job), DatabaseUnavailable where
        the answer was lost: committing again then tells by discarding.
        """
        assert run.lease.generation_id == run.build.id
        assert run.anchor.span.first in run.lease.span and run.anchor.span.last in run.lease.span
        assert run.lease.kind is Kind.RECOMPUTE or run.anchor.span == run.lease.span
        given = await self._prepared(run)
        await self._partitions.ensure(run.build, run.anchor.span)
        try:
            async with self._database.session() as session:
                async with session.transaction(self._queries["held_patience"]):
                    outcome = await self._commit(session, run, given)
        except errors.RowRefused as error:
            if not error.fields.get("strangers"):
                raise
            outcome = Discarded(why=Why.ORPHANED, detail=error.message)
            async with self._database.session() as session, session.transaction():
                await self._discard(session, run, outcome)
        if isinstance(outcome, Discarded):
            telemetry.event(
                log,
                "run_discarded",
                job=run.lease.job,
                span=run.anchor.span,
                why=outcome.why.value,
                detail=outcome.detail,
            )
        return outcome

    async def advance(self, build: Generation) -> BlockRef | None:
        """Moves the watermark over what was completed ahead of it, as far as the hashes link."""
        async with self._database.session() as session:
            async with session.transaction(self._queries["held_patience"]):
                now = await held.lock(session, self._queries, build, with_dependents=False)
                reached = await self._reach(session, now, now.watermark)
                if reached != now.watermark:
                    await held.move(session, self._queries, now, reached)
        return reached

    async def _prepared(self, run: Finished) -> Prepared | Staged:
        if isinstance(run.rows, Staged):
            return run.rows
        dataset = run.build.dataset
        if run.rows.num_rows <= ROWS_ON_LOOP:
            return rows.prepare(dataset, run.rows)
        return await asyncio.to_thread(rows.prepare, dataset, run.rows)

    async def _commit(
        self, session: Session, run: Finished, given: Prepared | Staged
    ) -> Committed | Discarded:
        is_fresh = run.build.dataset.mode is Mode.CURSOR and run.lease.kind is not Kind.RECOMPUTE
        now = await held.lock(session, self._queries, run.build, with_dependents=not is_fresh)
        lease = await session.row(
            self._queries["lease_hold"], id=run.lease.id, token=run.lease.token, now=self._time()
        )
        numbers = sorted({number for anchor in run.anchors for number in anchor.numbers})
        now, chain, refs = await held.read(session, self._queries, now, numbers)
        told = _judge(run, now, chain, refs, is_leased=lease is not None)
        if told is None and isinstance(given, Staged):
            differs = await staging.differs(session, self._app, given, schema=self._schema)
            told = None if differs is None else (Why.STAGING_DIFFERS, differs)
        if told is not None:
            outcome = Discarded(why=told[0], detail=told[1])
            await self._discard(session, run, outcome)
            return outcome
        floor = chain.floor.number if chain.floor else None
        writer = Rows(
            session,
            self._app,
            schema=self._schema,
            build=now,
            given=given,
            span=run.anchor.span,
            floor=floor,
        )
        written = await self._write(session, run, now, writer, is_fresh)
        watermark = await self._finish(session, run, now, floor, is_fresh)
        await self._settle(session, run, now, written)
        return Committed(rows=written.count, watermark=watermark, changed=written.changed)

    async def _write(
        self, session: Session, run: Finished, now: Generation, writer: Rows, is_fresh: bool
    ) -> _Written:
        """Writes rows and versions, by mode and strategy."""
        strategy = now.dataset.strategy
        anchor = run.anchor
        if now.dataset.mode is not Mode.CURSOR:
            parts = await writer.write_changed([part.key for part in run.parts])
            changed = await versions.publish(
                session,
                self._app,
                now,
                partitions=run.parts,
                parts=parts,
                config_hash=run.config_hash,
                invalidations=run.invalidations,
            )
            gone = await versions.vanished(session, self._app, now)
            if gone:
                await writer.remove(list(gone))
            return _Written(_count(parts), (*changed, *gone.values()))
        if strategy is Strategy.MERGE:
            return _Written(await writer.merge(), ())
        if strategy is Strategy.REPLACE and not is_fresh:
            parts = [part for part in await writer.write_changed(None) if part.is_changed]
            await versions.adjust(
                session,
                self._app,
                now,
                span=anchor.span,
                parts=parts,
                config_hash=run.config_hash,
            )
            await versions.divide(
                session, self._app, now, span=anchor.span, config_hash=run.config_hash
            )
            return _Written(_count(parts), _blocks(int(part.key) for part in parts))
        counted: list[Part] | None = None
        if strategy is Strategy.APPEND:
            found = await writer.append()
            written = _Written(sum(found.values()), () if is_fresh else _blocks(found))
        else:
            counted = await writer.write_fresh()
            written = _Written(_count(counted), ())
        if is_fresh:
            await versions.extend(
                session,
                self._app,
                now,
                span=anchor.span,
                parent_hash=anchor.parent_hash,
                last=anchor.last,
                parts=counted,
                config_hash=run.config_hash,
            )
        return written

    async def _finish(
        self,
        session: Session,
        run: Finished,
        now: Generation,
        floor: int | None,
        is_fresh: bool,
    ) -> BlockRef | None:
        """Moves the watermark as far as everything is complete, and ends the lease."""
        anchor = run.anchor
        reached = now.watermark
        if now.dataset.mode is not Mode.CURSOR:
            reached = await versions.watermark(session, self._app, now)
        elif is_fresh and verdict.continues(now, anchor):
            reached = await self._reach(session, now, anchor.last)
        if reached != now.watermark:
            lowest = None
            if now.dataset.strategy is Strategy.MERGE and floor is not None:
                lowest = min(floor, anchor.span.last) if anchor.span.first <= floor else None
            await held.move(session, self._queries, now, reached, history_floor=lowest)
        is_ahead = is_fresh and (reached is None or reached.number < anchor.span.last)
        if is_ahead:
            await session.run(
                self._queries["lease_complete"],
                id=run.lease.id,
                parent_hash=anchor.parent_hash,
                last_hash=anchor.last.hash,
            )
        else:
            await session.run(self._queries["lease_forget"], ids=[run.lease.id])
        return reached

    async def _settle(
        self, session: Session, run: Finished, now: Generation, written: _Written
    ) -> None:
        """Marks what the run has mended, invalidates what it has changed, and records it."""
        await invalidations.process(
            session,
            self._app,
            generation_id=now.id,
            ids=run.invalidations,
            span=run.anchor.span,
        )
        await invalidations.cascade(
            session,
            self._app,
            dataset=now.dataset.name,
            spans=written.changed,
            reason="correction",
            event={"job": now.dataset.job, "reason": run.reason},
        )
        if run.may_refuse:
            await refused.record(
                session,
                self._app,
                job=now.dataset.job,
                generation_id=now.id,
                span=run.anchor.span,
                refused=run.refused,
            )
        if isinstance(run.rows, Staged):
            await staging.drop(session, self._app, run.lease.token)
        # What a check said of blocks that a fork took away is settled by those that came instead.
        if run.lease.attempt or run.warnings is not None:
            await session.run(
                self._app["errors_resolve"],
                worker_name=run.lease.job,
                first=run.anchor.span.first,
                last=run.anchor.span.last,
            )
        for message in run.warnings or ():
            await indexing_errors.record(
                session,
                self._app,
                worker_name=run.lease.job,
                # A fork that takes any of its blocks takes the last one.
                block_number=run.anchor.span.last,
                severity="WARN",
                message=message,
            )
        await self._record(session, run, "committed", rows=written.count, error=None)

    async def _discard(self, session: Session, run: Finished, outcome: Discarded) -> None:
        """Gives the lease back, where it is still the run's own, and records why."""
        if outcome.why is not Why.LEASE_LOST:
            query = self._queries["lease_drop"]
            await session.run(query, id=run.lease.id, token=run.lease.token)
            if isinstance(run.rows, Staged):
                await staging.drop(session, self._app, run.lease.token)
        told = f"{outcome.why.value}: {outcome.detail}"
        await self._record(session, run, "discarded", rows=None, error=told)

    async def _record(
        self, session: Session, run: Finished, outcome: str, *, rows: int | None, error: str | None
    ) -> None:
        await session.run(
            self._queries["run_record"],
            generation_id=run.build.id,
            first=run.anchor.span.first,
            last=run.anchor.span.last,
            kind=run.lease.kind,
            reason=run.reason,
            invalidations=list(run.invalidations),
            config_hash=run.config_hash,
            token=run.lease.token,
            worker=run.lease.worker,
            outcome=outcome,
            row_count=rows,
            error=error,
            started_at=run.started_at,
        )

    async def _reach(
        self, session: Session, now: Generation, known: BlockRef | None
    ) -> BlockRef | None:
        """How far completed leases lead from a block, linked by hash; those behind are forgotten.

        One that does not link was computed from another chain than what lies before it. It is
        forgotten, and so computed again.
        """
        done = []
        completed = self._queries["lease_completed"]
        for row in await session.rows(completed, generation_id=now.id):
            following = now.first if known is None else known.number + 1
            if row["first"] > following:
                break
            done.append(row["id"])
            if row["first"] == following:
                if known is not None and row["parent_hash"] != known.hash:
                    telemetry.event(log, "lease_unlinked", job=now.dataset.job, first=following)
                    break
                known = BlockRef(row["last"], row["last_hash"])
        if done:
            await session.run(self._queries["lease_forget"], ids=done)
        return known

    def _time(self) -> datetime | None:
        return self._now() if self._now is not None else None


def _judge(
    run: Finished,
    now: Generation,
    chain: Follower,
    refs: Mapping[int, bytes],
    *,
    is_leased: bool,
) -> tuple[Why, str] | None:
    """Why a run must be discarded, None where it must not."""
    if now.state == "retired":
        return Why.RETIRED, f"{now.table} is no longer kept up to date"
    if not is_leased:
        return Why.LEASE_LOST, f"token {run.lease.token} holds nothing"
    if now.dataset.is_serial and run.config_hash != now.config_hash:
        return Why.CONFIG_CHANGED, f"{now.table} is computed with {now.config_hash}"
    told = verdict.of_chain(run.anchors, run.as_read, chain, refs)
    if told is not None or now.dataset.mode is not Mode.CURSOR:
        return told
    if run.lease.kind is Kind.RECOMPUTE:
        if now.next - 1 < run.anchor.span.last:
            return Why.NOT_NEXT, f"only blocks up to {now.watermark} can be done again"
    elif run.lease.kind is Kind.LIVE or now.dataset.is_serial:
        if not verdict.continues(now, run.anchor):
            return Why.NOT_NEXT, f"the watermark is {now.watermark}"
    elif run.anchor.span.first < now.next:
        # Claimed while the commit of whoever computed them was under way.
        return Why.NOT_NEXT, f"blocks up to {now.watermark} are computed already"
    return None


def _count(parts: Iterable[Part]) -> int:
    """Rows that were written."""
    return sum(part.new_count for part in parts if part.is_changed)


def _blocks(numbers: Iterable[int]) -> tuple[Span, ...]:
    """Blocks as spans."""
    return spans.merge(Span(number, number) for number in numbers)
