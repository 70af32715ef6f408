"""Proves the span algebra against plain sets of numbers, on random spans."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unfork.chain import span
from unfork.chain.span import Span

spans = st.builds(
    lambda first, length: Span(first, first + length), st.integers(0, 60), st.integers(0, 12)
)


def numbers(*given_spans: Span) -> set[int]:
    return {n for s in given_spans for n in range(s.first, s.last + 1)}


@given(st.lists(spans), st.lists(spans))
def test_subtract_is_set_difference_in_the_fewest_spans(left: list[Span], gone: list[Span]) -> None:
    rest = span.subtract(left, gone)

    assert numbers(*rest) == numbers(*left) - numbers(*gone)
    assert span.merge(rest) == rest


@given(st.lists(spans))
def test_merge_keeps_the_numbers_and_no_two_spans_touch(given_spans: list[Span]) -> None:
    merged = span.merge(given_spans)

    assert numbers(*merged) == numbers(*given_spans)
    assert all(not a.touches(b) for a, b in itertools.pairwise(merged))


@given(spans, spans)
def test_intersect_and_overlaps_are_set_intersection(left: Span, right: Span) -> None:
    shared = span.intersect(left, right)

    assert (numbers(shared) if shared else set()) == numbers(left) & numbers(right)
    assert left.overlaps(right) == bool(shared)


@given(spans, st.integers(1, 7))
def test_split_covers_the_span_in_order_with_pieces_of_at_most_size(whole: Span, size: int) -> None:
    pieces = list(span.split(whole, size))

    assert [n for p in pieces for n in range(p.first, p.last + 1)] == sorted(numbers(whole))
    assert all(len(p) <= size for p in pieces)


@given(st.integers(0, 500), st.integers(1, 50))
def test_aligned_starts_at_a_multiple_and_holds_the_number(number: int, size: int) -> None:
    found = span.aligned(number, size)

    assert number in found and found.first % size == 0 and len(found) == size


@pytest.mark.parametrize("text", ["", "a:b", "5:3", "-1:2", "1:2:3", "1-2"])
def test_parse_refuses_what_is_not_a_span_and_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match="span"):
        span.parse(text)


def test_parse_reads_a_pair_and_a_single_number() -> None:
    assert span.parse("3:9") == Span(3, 9)
    assert span.parse("7") == Span(7, 7)
