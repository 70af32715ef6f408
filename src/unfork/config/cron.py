"""Owns the cron expression: five fields in UTC, and the moments they name.

`minute hour day month weekday`, each `*`, a value, a range, a list or a step; months and weekdays
also by their English names, Sunday is 0 or 7. As in every cron, a day matches by either of day and
weekday where both are restricted. UTC has no daylight saving, so no moment is skipped or doubled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

#: The longest pause between two moments: February 29 on one weekday, around the year 2100.
DAYS_MAX = 41 * 366


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """A set of moments, one a minute at most."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    #: Sunday is 0.
    weekdays: frozenset[int]
    #: Whether a day that matches by day or by weekday matches; else it must match by both.
    is_either: bool

    def at_or_before(self, moment: datetime) -> datetime:
        """The latest of its moments that has come."""
        moment = moment.astimezone(UTC)
        for back in range(DAYS_MAX + 1):
            day = moment.date() - timedelta(days=back)
            if self._has(day):
                for hour in reversed(self.hours):
                    for minute in reversed(self.minutes):
                        found = _moment(day, hour, minute)
                        if found <= moment:
                            return found
        raise AssertionError("an expression without a moment is refused when it is read")

    def after(self, moment: datetime) -> datetime:
        """The first of its moments that is still to come."""
        moment = moment.astimezone(UTC)
        for ahead in range(DAYS_MAX + 1):
            day = moment.date() + timedelta(days=ahead)
            if self._has(day):
                for hour in self.hours:
                    for minute in self.minutes:
                        found = _moment(day, hour, minute)
                        if found > moment:
                            return found
        raise AssertionError("an expression without a moment is refused when it is read")

    def _has(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_day = day.day in self.days
        by_weekday = day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday if self.is_either else by_day and by_weekday


def parse(text: str) -> Cron:
    """Reads an expression; raises ValueError with the field that is wrong."""
    fields = text.split()
    if len(fields) != 5:
        raise ValueError("must have five fields: minute hour day month weekday (UTC)")
    minute, hour, day, month, weekday = fields
    made = Cron(
        minutes=tuple(sorted(_values("minute", minute, 0, 59))),
        hours=tuple(sorted(_values("hour", hour, 0, 23))),
        days=_values("day", day, 1, 31),
        months=_values("month", month, 1, 12, names=MONTHS),
        weekdays=frozenset(n % 7 for n in _values("weekday", weekday, 0, 7, names=WEEKDAYS)),
        is_either=not day.startswith("*") and not weekday.startswith("*"),
    )
    # 2000 is a leap year, so that each day that a month ever has is looked at.
    year = [date(2000, 1, 1) + timedelta(days=n) for n in range(366)]
    if made.is_either or any(
        known.day in made.days and known.month in made.months for known in year
    ):
        return made
    raise ValueError(f"never comes: no month that is named has such a day ({day} {month})")


def _values(
    field: str, text: str, low: int, high: int, *, names: tuple[str, ...] = ()
) -> frozenset[int]:
    found: set[int] = set()
    for part in text.lower().split(","):
        match = re.fullmatch(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", part)
        if match is None:
            raise ValueError(f"{field} {part!r} is not *, a value, a range, a list or a step")
        whole, first_text, last_text, step_text = match.groups()
        step = int(step_text or 1)
        if whole == "*":
            first, last = low, high
        else:
            first = _value(field, first_text, low, high, names)
            last = first if last_text is None else _value(field, last_text, low, high, names)
            if last_text is None and step_text is not None:
                last = high
        if last < first or step < 1:
            raise ValueError(f"{field} {part!r} runs backwards or has no step")
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _value(field: str, text: str, low: int, high: int, names: tuple[str, ...]) -> int:
    if text in names:
        return names.index(text) + low
    if not text.isdigit() or not low <= int(text) <= high:
        raise ValueError(f"{field} {text!r} is not between {low} and {high}")
    return int(text)


def _moment(day: date, hour: int, minute: int) -> datetime:
    return datetime(day.year, day.month, day.day, hour, minute, tzinfo=UTC)
