"""A size that adapts to a limit nobody states: it shrinks when refused and widens again."""

from __future__ import annotations

from unfork.sources.reach import Reach


def test_a_refusal_halves_and_successes_double_up_to_the_bound() -> None:
    reach = Reach(100)
    assert reach.refused(100)
    assert reach.size == 50
    for _ in range(Reach.PATIENCE):
        reach.succeeded(50)
    assert reach.size == 100


def test_a_single_unit_cannot_be_refused_further() -> None:
    reach = Reach(4)
    assert reach.refused(4) and reach.refused(2)
    assert reach.size == 1
    assert not reach.refused(1)


def test_several_refusals_of_one_size_count_once() -> None:
    reach = Reach(64)
    for _ in range(5):
        reach.refused(64)
    assert reach.size == 32


def test_successes_of_smaller_requests_do_not_widen() -> None:
    reach = Reach(64)
    reach.refused(64)
    for _ in range(100):
        reach.succeeded(3)
    assert reach.size == 32


def test_a_steady_limit_is_met_ever_more_rarely() -> None:
    limit, reach, refusals = 10, Reach(1000), []
    for turn in range(4000):
        if reach.size > limit:
            refusals.append(turn)
            reach.refused(reach.size)
        else:
            reach.succeeded(reach.size)
    late = [turn for turn in refusals if turn >= 2000]
    assert len(late) <= 2000 / Reach.PATIENCE_MAX + 2
    assert limit / 2 < reach.size <= limit * 2


def test_a_limit_that_has_passed_is_left_behind() -> None:
    reach = Reach(64)
    for size in (64, 32, 16):
        reach.refused(size)
    for _ in range(10 * Reach.PATIENCE):
        reach.succeeded(reach.size)
    assert reach.size == 64
