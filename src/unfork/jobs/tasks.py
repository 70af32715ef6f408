"""Owns what runs by the clock: each task once a moment, by one worker of many, leased like a run.

The moments are named by cron in UTC. A moment is claimed by inserting its row, so two workers that
see it come due run it once; one that dies loses its lease, and another tries again after a pause. A
moment that was missed while nothing ran is made up for once. What a task found is kept with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from unfork import errors, telemetry
from unfork.app import indexing_errors
from unfork.app import schema as app_schema
from unfork.config.jobs import Schedule
from unfork.database.database import Database
from unfork.jobs import schedule, schema
from unfork.jobs.lease import ERROR_MAX, Policy

log = telemetry.logger(__name__)

#: Does a task and says what it found, as plain values.
Doing = Callable[[], Awaitable[Mapping[str, Any]]]

#: Seconds between two looks at the clock at most; the next moment may be nearer.
LOOK_S_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A task that this worker ran."""

    task: str
    moment: datetime
    #: What it found; None where it failed, or where its lease was lost meanwhile.
    result: Mapping[str, Any] | None
    #: What went wrong, empty where nothing did.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    task: str
    moment: datetime
    token: int
    attempt: int


class Tasks:
    """The scheduled tasks of one chain."""

    def __init__(
        self,
        chain: str,
        database: Database,
        schedules: Sequence[Schedule],
        doing: Mapping[str, Doing],
        *,
        worker: str,
        policy: Policy | None = None,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        self._queries = schema.bound(chain)
        self._app = app_schema.bound(chain)
        self._database = database
        self._schedules = tuple(schedules)
        self._doing = doing
        self._worker = worker
        self._policy = policy or Policy()
        self._now = now

    @property
    def rests(self) -> bool:
        """Always: a moment that has not come yet is nothing to wait for."""
        return True

    async def work(self, stopping: asyncio.Event) -> None:
        """Runs what comes due until it is told to stop."""
        while not stopping.is_set():
            try:
                if await self.step() is not None:
                    continue
                wait_s = await self._pause_s()
            except errors.Retryable as error:
                telemetry.event(log, "schedule_waits", error=str(error))
                wait_s = 1.0
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await stopping.wait()

    async def step(self) -> Done | None:
        """Runs one task that is due, to its end; None where none is, or others have them all."""
        held = await self._claim() if self._schedules else None
        return None if held is None else await self._run(held)

    async def last(self) -> list[Mapping[str, Any]]:
        """The latest row of each task."""
        async with self._database.session() as session:
            return list(await session.rows(self._queries["tasks_last"]))

    async def _claim(self) -> _Held | None:
        names = sorted({one.task for one in self._schedules})
        now = await self._time()
        async with self._database.session() as session:
            backoff = {
                "backoff_s": self._policy.backoff_s,
                "backoff_s_max": self._policy.backoff_s_max,
            }
            await session.run(self._queries["tasks_reap"], now=now, **backoff)
            last = {row["task"]: row for row in await session.rows(self._queries["tasks_last"])}
            about = {"now": now, "worker": self._worker}
            for task in names:
                if task not in last:
                    await session.run(self._queries["tasks_begin"], task=task, **about)
            about["lease_s"] = self._policy.lease_s
            moments = {task: row["moment"] for task, row in last.items()}
            for due in schedule.due(self._schedules, moments, now):
                row = await session.row(
                    self._queries["tasks_claim"], task=due.task, moment=due.moment, **about
                )
                if row is not None:
                    return _Held(**row)
            for task in names:
                row = await session.row(
                    self._queries["tasks_reclaim"],
                    task=task,
                    attempts_max=self._policy.attempts_max,
                    **about,
                )
                if row is not None:
                    return _Held(**row)
        return None

    async def _run(self, held: _Held) -> Done:
        telemetry.event(log, "task_begins", task=held.task, moment=held.moment)
        working = asyncio.ensure_future(self._doing[held.task]())
        renewing = asyncio.create_task(self._renew(held))
        try:
            await asyncio.wait({working, renewing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                return Done(task=held.task, moment=held.moment, result=None, error="lease lost")
            result = dict(working.result())
        except Exception as error:
            # Whatever a task raises is told and tried again; it must not end the worker.
            await self._fail(held, error)
            return Done(task=held.task, moment=held.moment, result=None, error=str(error))
        finally:
            for task in (working, renewing):
                task.cancel()
            await asyncio.gather(working, renewing, return_exceptions=True)
        return await self._complete(held, result)

    async def _complete(self, held: _Held, result: Mapping[str, Any]) -> Done:
        now = await self._time()
        async with self._database.session() as session:
            row = await session.row(
                self._queries["tasks_complete"],
                task=held.task,
                token=held.token,
                now=now,
                result=json.dumps(result, default=str),
            )
            if row is None:
                return Done(task=held.task, moment=held.moment, result=None, error="lease lost")
            await session.run(
                self._app["errors_resolve"], worker_name=_worker_name(held.task), first=0, last=0
            )
        telemetry.event(log, "task_ended", task=held.task, moment=held.moment)
        return Done(task=held.task, moment=held.moment, result=result)

    async def _fail(self, held: _Held, error: Exception) -> None:
        count = 0 if isinstance(error, errors.Retryable) else 1
        now = await self._time()
        async with self._database.session() as session, session.transaction():
            row = await session.row(
                self._queries["tasks_fail"],
                task=held.task,
                token=held.token,
                now=now,
                count=count,
                error=str(error)[:ERROR_MAX].replace("\x00", "\\0"),
                backoff_s=self._policy.backoff_s,
                backoff_s_max=self._policy.backoff_s_max,
            )
            if row is None or not count:
                return
            is_given_up = row["attempt"] >= self._policy.attempts_max
            await indexing_errors.record(
                session,
                self._app,
                worker_name=_worker_name(held.task),
                block_number=None,
                severity="FATAL" if is_given_up else "WARN",
                message=f"scheduled {held.task} failed: {error}",
            )

    async def _renew(self, held: _Held) -> None:
        """Renews the lease in time; ends when it is lost."""
        while True:
            await asyncio.sleep(self._policy.renew_s)
            with suppress(errors.Retryable):
                now = await self._time()
                async with self._database.session() as session:
                    row = await session.row(
                        self._queries["tasks_renew"],
                        task=held.task,
                        token=held.token,
                        now=now,
                        lease_s=self._policy.lease_s,
                    )
                if row is None:
                    return

    async def _pause_s(self) -> float:
        now = await self._time()
        following = schedule.following(self._schedules, now)
        until = LOOK_S_MAX if following is None else (following - now).total_seconds()
        return min(max(until, 0.05), LOOK_S_MAX)

    async def _time(self) -> datetime:
        """The database's time, the same for all workers, unless a test brings its own."""
        if self._now is not None:
            return self._now()
        async with self._database.session() as session:
            row = await session.row(self._queries["tasks_now"])
        assert row is not None
        now: datetime = row["now"]
        return now


def _worker_name(task: str) -> str:
    """What a task is called among the errors."""
    return f"schedule:{task}"
