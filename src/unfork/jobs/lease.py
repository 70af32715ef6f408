"""Owns leases: who computes which blocks, for how long, and what becomes of them when nobody does.

A lease is a row; that two of them never overlap is a constraint of the table, so claiming is an
insert that succeeds or does not. A worker renews its lease at a third of its time. One that does
not come back in time has lost it: whatever it does afterwards carries a token that is no longer
valid, and is refused.

What failed is claimed again before anything new, after a pause that doubles. A failure counts,
whether the worker told it or the reaper found it; waiting for a database does not. After
`attempts_max` failures the blocks are left alone, and `indexing_errors` says so, until a person
releases them or the job's code is another one.

Time is the database's, the same for all workers, unless a test brings its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from unfork import errors, telemetry
from unfork.app import indexing_errors, staging
from unfork.app import schema as app_schema
from unfork.app.generations import Generation
from unfork.chain.span import Span
from unfork.database import migrate
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.jobs import schema
from unfork.jobs.state import Kind, Status, config_of

log = telemetry.logger(__name__)

#: What Postgres calls a second row where there may be one.
UNIQUE_VIOLATION = "23505"

#: Characters of an error that are kept.
ERROR_MAX = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How long leases last and how often they are tried."""

    #: Seconds a lease is held without being renewed.
    lease_s: float = 60.0
    #: Failures after which blocks are left alone.
    attempts_max: int = 5
    #: Seconds of the first pause after a failure; each one after it doubles.
    backoff_s: float = 1.0
    #: Seconds of the longest pause.
    backoff_s_max: float = 300.0

    @property
    def renew_s(self) -> float:
        """Seconds after which a lease is renewed."""
        return self.lease_s / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Blocks of one build that somebody has, had or gave up."""

    id: int
    generation_id: int
    job: str
    kind: Kind
    span: Span
    status: Status
    #: How often it failed.
    attempt: int
    #: What every write of its holder carries.
    token: int
    #: The worker that holds it, or held it last.
    worker: str
    #: Until when it is held; None where it is not.
    expires_at: datetime | None
    #: When it may be claimed again; None where it did not fail.
    not_before: datetime | None
    #: What it is tried with (Fingerprint.trial).
    config_hash: str
    #: What went wrong last.
    error: str | None


class Leases:
    """The leases of one chain's jobs."""

    def __init__(
        self,
        chain: str,
        database: Database,
        *,
        policy: Policy | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._schema = app_schema.name(chain)
        self._queries = schema.bound(chain)
        self._app = app_schema.bound(chain)
        self._database = database
        self.policy = policy or Policy()
        self._now = now

    def now(self) -> datetime | None:
        """The time that a test brings; None for the database's own."""
        return self._now() if self._now is not None else None

    async def claim(
        self, build: Generation, span: Span, *, kind: Kind, worker: str, config_hash: str
    ) -> Lease | None:
        """Claims blocks of a build; None where somebody has one of them or it is not their turn.

        Kinds live and backfill add blocks above the watermark, live and serial ones right after
        it; recompute does blocks again.
        """
        async with self._database.session() as session:
            row = await session.row(
                self._queries["lease_claim"],
                generation_id=build.id,
                kind=kind,
                is_serial=build.dataset.is_serial,
                first=span.first,
                last=span.last,
                worker=worker,
                config_hash=config_hash,
                lease_s=self.policy.lease_s,
                now=self.now(),
            )
        return None if row is None else from_row(row)

    async def reclaim(
        self, build: Generation, *, worker: str, config_hash: str, id: int | None = None
    ) -> Lease | None:
        """Claims the lowest blocks of a build that failed and whose pause is over; None for none.

        `id` names the lease that is meant. With another `config_hash` than the one they failed
        with they are free at once.
        """
        async with self._database.session() as session:
            try:
                row = await session.row(
                    self._queries["lease_reclaim"],
                    generation_id=build.id,
                    worker=worker,
                    config_hash=config_hash,
                    attempts_max=self.policy.attempts_max,
                    id=id,
                    lease_s=self.policy.lease_s,
                    now=self.now(),
                )
            except errors.RowRefused as error:
                if error.fields.get("sqlstate") != UNIQUE_VIOLATION:
                    raise
                # Another live run of the build was claimed at the same moment.
                return None
        return None if row is None else from_row(row)

    async def renew(self, lease: Lease) -> bool:
        """Holds a lease for its whole time again; False where it is lost."""
        async with self._database.session() as session:
            row = await session.row(
                self._queries["lease_renew"],
                id=lease.id,
                token=lease.token,
                lease_s=self.policy.lease_s,
                now=self.now(),
            )
        return row is not None

    async def fail(self, lease: Lease, error: Exception, *, reason: str = "new data") -> bool:
        """Gives a lease up after an error and records it; False where it was lost already.

        A Retryable error is no fault of the job: it does not count.
        """
        is_retryable = isinstance(error, errors.Retryable)
        async with self._database.session() as session, session.transaction():
            row = await session.row(
                self._queries["lease_fail"],
                id=lease.id,
                token=lease.token,
                count=0 if is_retryable else 1,
                error=str(error)[:ERROR_MAX].replace("\x00", "\\0"),
                backoff_s=self.policy.backoff_s,
                backoff_s_max=self.policy.backoff_s_max,
                now=self.now(),
            )
            if row is None:
                return False
            failed = from_row(row)
            await staging.drop(session, self._app, lease.token)
            await self._tell(session, failed, str(error), "failed", reason, is_retryable)
        return True

    async def give_back(self, lease: Lease) -> None:
        """Gives a lease back as if it had never been claimed; safe to repeat."""
        async with self._database.session() as session, session.transaction():
            await session.run(self._queries["lease_drop"], id=lease.id, token=lease.token)
            await staging.drop(session, self._app, lease.token)

    async def reap(self) -> list[Lease]:
        """Takes the leases of workers that did not come back, and clears what runs have left.

        One process at a time does it, the others return at once.
        """
        key = migrate.advisory_key("reaper", self._schema)
        async with self._database.session() as session, session.transaction():
            turn = await session.row(self._queries["lease_reaper"], key=key)
            assert turn is not None
            if not turn["taken"]:
                return []
            rows = await session.rows(
                self._queries["lease_reap"],
                backoff_s=self.policy.backoff_s,
                backoff_s_max=self.policy.backoff_s_max,
                now=self.now(),
            )
            taken = [from_row(row) for row in rows]
            for lease in taken:
                await self._tell(session, lease, lease.error or "", "expired", "", False)
            await staging.sweep(session, self._app, schema=self._schema)
        for lease in taken:
            telemetry.event(log, "lease_expired", job=lease.job, span=lease.span)
        return taken

    async def release(self, job: str, span: Span | None = None) -> list[Lease]:
        """Lets a job's blocks that failed too often be claimed again at once."""
        async with self._database.session() as session:
            rows = await session.rows(
                self._queries["lease_release"],
                job=job,
                first=span.first if span else None,
                last=span.last if span else None,
                now=self.now(),
            )
        return [from_row(row) for row in rows]

    async def all(self) -> list[Lease]:
        """Every lease there is, by build and block."""
        async with self._database.session() as session:
            rows = await session.rows(self._queries["lease_all"])
        return [from_row(row) for row in rows]

    async def _tell(
        self,
        session: Session,
        lease: Lease,
        message: str,
        outcome: Literal["failed", "expired"],
        reason: str,
        is_retryable: bool,
    ) -> None:
        """Records a failure in runs and, where it counts, in indexing_errors."""
        await session.run(
            self._queries["run_record"],
            generation_id=lease.generation_id,
            first=lease.span.first,
            last=lease.span.last,
            kind=lease.kind,
            reason=reason,
            invalidations=[],
            config_hash=config_of(lease.config_hash),
            token=lease.token,
            worker=lease.worker,
            outcome=outcome,
            row_count=None,
            error=message[:ERROR_MAX].replace("\x00", "\\0"),
            started_at=None,
        )
        if is_retryable:
            return
        is_poison = lease.attempt >= self.policy.attempts_max
        after = f" (given up after {lease.attempt} failures)" if is_poison else ""
        await indexing_errors.record(
            session,
            self._app,
            worker_name=lease.job,
            block_number=lease.span.first,
            severity="FATAL" if is_poison else "WARN",
            message=f"blocks {lease.span}: {message}{after}",
        )


def from_row(row: Mapping[str, Any]) -> Lease:
    """Reads a lease."""
    # Postgres writes ranges with their upper end left out.
    return Lease(
        id=row["id"],
        generation_id=row["generation_id"],
        job=row["job"],
        kind=Kind(row["kind"]),
        span=Span(row["span"].lower, row["span"].upper - 1),
        status=Status(row["status"]),
        attempt=row["attempt"],
        token=row["token"],
        worker=row["leased_by"],
        expires_at=row["lease_expires_at"],
        not_before=row["not_before"],
        config_hash=row["config_hash"],
        error=row["error"],
    )
