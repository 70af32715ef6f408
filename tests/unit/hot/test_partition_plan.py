"""Goal: the partitions to make are those a span needs and two after it, overlapping no others."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from unfork.chain import span
from unfork.chain.span import Span, missing


def test_the_first_block_needs_its_partition_and_two_ahead() -> None:
    assert missing([], Span(0, 0), 100, ahead=2) == [Span(0, 99), Span(100, 199), Span(200, 299)]
    assert missing([], Span(1234, 1234), 100, ahead=0) == [Span(1200, 1299)]


def test_nothing_is_missing_while_two_lie_ahead() -> None:
    known = [Span(0, 99), Span(100, 199), Span(200, 299)]
    assert missing(known, Span(50, 99), 100, ahead=2) == []
    assert missing(known, Span(99, 100), 100, ahead=2) == [Span(300, 399)]


def test_a_batch_over_a_border_needs_both_sides() -> None:
    assert missing([], Span(95, 210), 100, ahead=0) == [Span(0, 99), Span(100, 199), Span(200, 299)]


def test_a_changed_size_is_cut_around_what_there_is() -> None:
    known = [Span(0, 99), Span(100, 199)]
    assert missing(known, Span(200, 200), 1000, ahead=1) == [Span(200, 999), Span(1000, 1999)]
    assert missing([Span(500, 999)], Span(10, 10), 1000, ahead=0) == [Span(0, 499)]


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=12),
)
def test_whatever_the_sizes_were_partitions_never_overlap_and_cover_what_is_needed(
    sizes: list[int], steps: list[tuple[int, int]]
) -> None:
    known: list[Span] = []
    for index, (first, extra) in enumerate(steps):
        needed = Span(first, first + extra)
        known = sorted(known + missing(known, needed, sizes[index % len(sizes)], ahead=2))
        assert span.subtract([needed], known) == ()
        assert all(left.last < right.first for left, right in itertools.pairwise(known))
        assert sum(one.first > needed.last for one in known) >= 2
