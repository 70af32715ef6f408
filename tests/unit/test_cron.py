"""Goal: a cron expression names the moments that cron would.

Method: tables of expressions with a moment before and after; random ones against a walk by minutes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unfork.config import cron

NOW = datetime(2024, 3, 13, 14, 7, 30, tzinfo=UTC)  # A Wednesday.


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("* * * * *", "2024-03-13 14:07", "2024-03-13 14:08"),
        ("*/5 * * * *", "2024-03-13 14:05", "2024-03-13 14:10"),
        ("7 14 * * *", "2024-03-13 14:07", "2024-03-14 14:07"),
        ("0 3 * * *", "2024-03-13 03:00", "2024-03-14 03:00"),
        ("30 6,18 * * *", "2024-03-13 06:30", "2024-03-13 18:30"),
        ("0 0 * * sun", "2024-03-10 00:00", "2024-03-17 00:00"),
        ("0 0 * * 7", "2024-03-10 00:00", "2024-03-17 00:00"),
        ("0 0 * * mon-fri", "2024-03-13 00:00", "2024-03-14 00:00"),
        ("0 0 1 * *", "2024-03-01 00:00", "2024-04-01 00:00"),
        ("0 0 31 * *", "2024-01-31 00:00", "2024-03-31 00:00"),
        ("0 0 1 jan *", "2024-01-01 00:00", "2025-01-01 00:00"),
        ("0 0 29 2 *", "2024-02-29 00:00", "2028-02-29 00:00"),
        ("0 0 1 * fri", "2024-03-08 00:00", "2024-03-15 00:00"),
        ("50-59/4 13 * * *", "2024-03-13 13:58", "2024-03-14 13:50"),
        ("10/20 * * * *", "2024-03-13 13:50", "2024-03-13 14:10"),
    ],
)
def test_an_expression_names_the_moments_around_now(text: str, before: str, after: str) -> None:
    read = cron.parse(text)
    assert read.at_or_before(NOW) == datetime.fromisoformat(f"{before}+00:00")
    assert read.after(NOW) == datetime.fromisoformat(f"{after}+00:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * *", "five fields"),
        ("60 * * * *", "minute '60' is not between 0 and 59"),
        ("* * 0 * *", "day '0' is not between 1 and 31"),
        ("* * * foo *", "month 'foo' is not between 1 and 12"),
        ("5-1 * * * *", "minute '5-1' runs backwards"),
        ("*/0 * * * *", "runs backwards or has no step"),
        ("@daily", "five fields"),
        ("1;2 * * * *", "minute '1;2' is not"),
        ("0 0 31 2 *", "never comes"),
    ],
)
def test_what_is_no_expression_is_refused_by_its_field(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        cron.parse(text)


@given(
    st.sampled_from(["*", "0", "*/15", "3-40/7"]),
    st.sampled_from(["*", "5", "0-6/3", "22,23"]),
    st.sampled_from(["*", "1", "28-31", "*/9"]),
    st.sampled_from(["*", "2,3", "jun"]),
    st.sampled_from(["*", "0", "sat", "1-5"]),
    st.integers(0, 2 * 365 * 24 * 60),
)
def test_no_moment_lies_between_two_neighbours(
    minute: str, hour: str, day: str, month: str, weekday: str, offset: int
) -> None:
    read = cron.parse(f"{minute} {hour} {day} {month} {weekday}")
    now = datetime(2023, 1, 1, tzinfo=UTC) + timedelta(minutes=offset)
    before, after = read.at_or_before(now), read.after(now)
    assert before <= now < after
    assert read.at_or_before(before) == before
    assert read.at_or_before(after - timedelta(seconds=1)) == before
    assert read.after(before) == after
