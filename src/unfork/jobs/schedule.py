"""Owns what is due by the clock: scheduled tasks, each once a moment that its cron names.

A moment that was missed while nothing ran is made up for once, not once for every one missed. The
moment is part of what is due, so that several workers that see the same one lease it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from unfork.config import cron
from unfork.config.jobs import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A task that should run now."""

    task: str
    #: The moment its cron named, in UTC.
    moment: datetime


def due(
    schedules: Iterable[Schedule], last: Mapping[str, datetime], now: datetime
) -> tuple[Due, ...]:
    """The tasks that should run now; `last` is the moment each began for the last time.

    A task that never ran begins to count at `last` as well: whoever sees it first records now.
    """
    found: dict[str, datetime] = {}
    for schedule in schedules:
        moment = cron.parse(schedule.cron).at_or_before(now)
        began = last.get(schedule.task)
        if began is not None and moment > began:
            found[schedule.task] = max(moment, found.get(schedule.task, moment))
    return tuple(Due(task=task, moment=moment) for task, moment in sorted(found.items()))


def following(schedules: Iterable[Schedule], now: datetime) -> datetime | None:
    """When the next task comes due; None without schedules."""
    moments = [cron.parse(schedule.cron).after(now) for schedule in schedules]
    return min(moments, default=None)
