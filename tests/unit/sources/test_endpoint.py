"""The breaker in front of an endpoint: when it opens, what it lets through, when it closes."""

from __future__ import annotations

import logging
from random import Random

import pytest

from tests.nodes import ScriptedWire, SteppedClock
from unfork.sources.endpoint import FAILURES_MAX, PAUSE_S_MIN, Abilities, Endpoint
from unfork.sources.reach import Reach


def endpoint() -> tuple[Endpoint, SteppedClock]:
    clock = SteppedClock()
    made = Endpoint(
        wire=ScriptedWire(lambda request: None),
        clock=clock,
        random=Random(1),
        abilities=Abilities(batch=Reach(10), log_range=Reach(10)),
        pause_s_max=8.0,
    )
    return made, clock


def test_it_stays_closed_through_single_failures() -> None:
    one, _ = endpoint()
    for _ in range(FAILURES_MAX * 3):
        one.failed()
        one.succeeded()
    assert not one.is_open
    assert one.wait_s() == 0


def test_failures_in_a_row_open_it() -> None:
    one, _ = endpoint()
    for _ in range(FAILURES_MAX):
        assert one.wait_s() == 0
        one.failed()
    assert one.is_open
    assert 0 < one.wait_s() <= PAUSE_S_MIN


def test_after_the_pause_one_probe_goes_through_and_the_others_wait() -> None:
    one, clock = endpoint()
    for _ in range(FAILURES_MAX):
        one.failed()
    clock.seconds += one.wait_s()
    assert one.wait_s() == 0
    one.sending()
    assert one.wait_s() > 0
    one.succeeded()
    assert one.wait_s() == 0
    assert not one.is_open


def test_failed_probes_make_the_pause_longer_up_to_its_bound() -> None:
    one, clock = endpoint()
    for _ in range(FAILURES_MAX):
        one.failed()
    pauses = []
    for _ in range(12):
        pauses.append(one.wait_s())
        clock.seconds += one.wait_s()
        one.sending()
        one.failed()
    assert all(pause <= 8.0 for pause in pauses)
    assert min(pauses[-3:]) >= 4.0


def test_a_pause_that_was_asked_for_is_kept_without_opening_it() -> None:
    one, clock = endpoint()
    one.rest(30)
    assert one.wait_s() == 30
    assert not one.is_open
    clock.seconds += 30
    assert one.wait_s() == 0


def test_a_request_given_up_by_ourselves_says_nothing_about_it() -> None:
    one, clock = endpoint()
    for _ in range(FAILURES_MAX):
        one.failed()
    clock.seconds += one.wait_s()
    one.sending()
    one.abandoned()
    assert one.wait_s() == 0
    assert one.failures == FAILURES_MAX


def test_going_down_and_coming_back_are_told_once_each(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="unfork")
    one, _ = endpoint()
    for _ in range(FAILURES_MAX + 5):
        one.failed()
    for _ in range(3):
        one.succeeded()
    events = [record.getMessage() for record in caplog.records]
    assert events == ["source.endpoint_down", "source.endpoint_up"]


def test_its_name_hides_the_key() -> None:
    one, _ = endpoint()
    assert "secret-key" not in one.name
    assert "scripted.test" in one.name
