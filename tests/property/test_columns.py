"""Columns are converted exactly or refused, whatever stands in them.

Method: hypothesis draws columns of values with gaps, short and long ones, and the whole-column
conversion is compared with Python's own conversion of each value alone. Damaged columns must be
refused with the row that was damaged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unfork.sources import columns
from unfork.sources.columns import BadValue

#: Columns short enough to be converted value by value, and long enough to be converted whole.
SIZES = st.sampled_from([0, 1, 3, 60, 130])


#: Conversions are cheap, drawing a hundred values is not.
sparing = settings(max_examples=30, deadline=None)


def column(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Columns with and without gaps, some of them constant."""

    def fill(size: int) -> st.SearchStrategy[list[Any]]:
        exact = st.lists(values, min_size=size, max_size=size)
        gaps = st.lists(st.none() | values, min_size=size, max_size=size)
        return exact | gaps | values.map(lambda value: [value] * size)

    return SIZES.flatmap(fill)


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Numbers of every size, the largest among them."""
    bounds = [0, 1, 15, 16, 2**bits - 1, 2 ** (bits - 1)]
    by_size = st.integers(0, bits).flatmap(lambda some: st.integers(0, 2**some - 1))
    return st.sampled_from(bounds) | by_size


@sparing
@given(column(numbers(63)), column(numbers(63)))
def test_integers_are_the_numbers_that_were_written(left: list[Any], right: list[Any]) -> None:
    made = columns.integers({"a": _hex(left), "b": _hex(right)})
    assert made["a"].to_pylist() == left
    assert made["b"].to_pylist() == right


@sparing
@given(column(numbers(256)), column(numbers(64)))
def test_large_numbers_are_32_bytes_big_endian(left: list[Any], right: list[Any]) -> None:
    made = columns.u256({"a": _hex(left), "b": _hex(right)})
    for name, values in (("a", left), ("b", right)):
        expected = [None if value is None else value.to_bytes(32, "big") for value in values]
        assert made[name].to_pylist() == expected
        made[name].validate(full=True)


@sparing
@given(column(st.binary(max_size=90)), column(st.binary(min_size=20, max_size=20)))
def test_bytes_are_the_bytes_that_were_written(left: list[Any], right: list[Any]) -> None:
    made = columns.binary({"a": _data(left), "b": _data(right)})
    assert made["a"].to_pylist() == left
    assert made["b"].to_pylist() == right
    made["a"].validate(full=True)


@sparing
@given(column(st.binary(min_size=32, max_size=32)), column(st.binary(min_size=32, max_size=32)))
def test_bytes_of_one_size_are_the_bytes_that_were_written(
    left: list[Any], right: list[Any]
) -> None:
    made = columns.fixed({"a": _data(left), "b": _data(right)}, 32)
    assert made["a"].to_pylist() == left
    assert made["b"].to_pylist() == right
    made["a"].validate(full=True)


@sparing
@given(st.lists(st.lists(st.binary(min_size=32, max_size=32), max_size=4), max_size=70))
def test_topics_stand_in_the_column_of_their_position(lists: list[list[bytes]]) -> None:
    made = columns.nth([_data(entries) for entries in lists], 32, 4)
    for position, array in enumerate(made):
        expected = [row[position] if position < len(row) else None for row in lists]
        assert array.to_pylist() == expected


@sparing
@given(st.lists(st.none() | st.lists(st.binary(min_size=32, max_size=32), max_size=3), max_size=40))
def test_lists_of_hashes_keep_empty_and_absent_apart(lists: list[Any]) -> None:
    given_lists = [None if entries is None else _data(entries) for entries in lists]
    made = columns.binary_lists(given_lists, 32)
    assert made.to_pylist() == lists


@sparing
@given(
    size=st.sampled_from([1, 5, 60, 200]),
    damage=st.sampled_from(["", "12", "0x", "0xzz", "0x1 2", "0x1_2", " 0x12", "0X12", "0xé1"]),
    data=st.data(),
)
def test_a_malformed_quantity_is_refused_with_its_row(
    size: int, damage: str, data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, size - 1))
    values: list[str | None] = _hex(data.draw(st.lists(numbers(60), min_size=size, max_size=size)))
    values[row] = damage
    if damage == "":
        assert columns.integers({"a": values})["a"].null_count == 1
        return
    for convert in (columns.integers, columns.u256):
        with pytest.raises(BadValue) as caught:
            convert({"before": _hex([1, 2]), "a": values})
        assert (caught.value.column, caught.value.row) == ("a", row)
        assert caught.value.is_malformed


@sparing
@given(size=st.sampled_from([1, 5, 60, 200]), data=st.data())
def test_a_number_that_does_not_fit_is_refused_with_its_row(size: int, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, size - 1))
    cases: list[tuple[Callable[..., Any], int]] = [(columns.integers, 63), (columns.u256, 256)]
    for convert, bits in cases:
        values = [1] * size
        values[row] = data.draw(st.integers(2**bits, 2 ** (bits + 70)))
        with pytest.raises(BadValue) as caught:
            convert({"a": _hex(values)})
        assert caught.value.row == row
        assert not caught.value.is_malformed


@sparing
@given(
    size=st.sampled_from([1, 5, 60]),
    damage=st.sampled_from(["12", "0x123", "0xzz", "0x1 ", "0x12\x00", "zz" * 33, "0x0x"]),
    data=st.data(),
)
def test_malformed_bytes_are_refused_with_their_row(
    size: int, damage: str, data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, size - 1))
    some = data.draw(st.lists(st.binary(max_size=40), min_size=size, max_size=size))
    values = _data(some)
    values[row] = damage
    with pytest.raises(BadValue) as caught:
        columns.binary({"a": values})
    assert caught.value.row == row


def test_zeros_in_front_of_a_quantity_change_nothing() -> None:
    values = ["0x" + "0" * 30 + "ff"] * 3 + ["0x1"] * 60
    assert columns.integers({"a": values})["a"].to_pylist() == [255] * 3 + [1] * 60


def test_a_gap_is_counted_when_a_bad_row_is_named() -> None:
    values = ["0x1", None, None, "0x2", "nonsense"]
    with pytest.raises(BadValue) as caught:
        columns.integers({"a": values})
    assert caught.value.row == 4


def test_a_time_after_the_year_9999_is_refused() -> None:
    seconds = np.array([0, columns.SECONDS_MAX], np.int64)
    assert columns.times(seconds)[1].as_py().year == 9999
    with pytest.raises(BadValue, match="9999"):
        columns.times(seconds + 1)


def test_text_with_nul_is_refused() -> None:
    assert columns.texts(["a", None, ""]).to_pylist() == ["a", None, ""]
    with pytest.raises(BadValue, match="NUL") as caught:
        columns.texts(["a", None, "b\0"])
    assert caught.value.row == 2


def _hex(values: list[Any]) -> list[Any]:
    return [None if value is None else hex(value) for value in values]


def _data(values: list[Any]) -> list[Any]:
    return [None if value is None else "0x" + value.hex() for value in values]
