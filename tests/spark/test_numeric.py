"""Goal: large numbers leave Postgres as the bytes they are, whatever stands beside them.

Method: hypothesis makes columns; Postgres itself says how it sends them; Python's own arithmetic
says what they are.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from adbc_driver_postgresql import dbapi
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.places import Server
from unfork import errors
from unfork.jobs.spark import numeric

LARGEST = 2**256 - 1
NUMBERS = st.one_of(
    st.none(),
    st.integers(0, LARGEST),
    st.integers(0, 20_000),
    st.integers(0, 77).map(lambda power: 10**power),
    st.integers(0, 256).map(lambda power: 2**power - 1),
)


SIGNED = st.one_of(
    st.none(),
    st.integers(-(2**287), 2**287 - 1),
    st.integers(-20_000, 20_000),
    st.integers(0, 287).flatmap(lambda power: st.sampled_from([2**power - 1, -(2**power)])),
)


@pytest.fixture(scope="module")
def server(postgres: Server) -> object:
    with dbapi.connect(postgres.dsn, autocommit=True) as connection:
        yield connection


def sent(server: object, texts: list[str | None]) -> pa.Array:
    """The numbers as Postgres sends them."""
    values = ", ".join("(NULL)" if text is None else f"({text})" for text in texts)
    with server.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(f"SELECT numeric_send(n::numeric) FROM (VALUES {values}) AS v (n)")
        return cursor.fetch_arrow_table().column(0).combine_chunks()


@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(NUMBERS, min_size=1, max_size=30), skipped=st.integers(0, 3))
@example(numbers=[LARGEST, None, 0, 1], skipped=0)
@example(numbers=[None, None], skipped=1)
@example(numbers=[0, 10_000, 10**76, 99_999_999], skipped=0)
def test_every_number_becomes_its_32_bytes(
    server: object, numbers: list[int | None], skipped: int
) -> None:
    column = sent(server, [None if n is None else str(n) for n in numbers]).slice(skipped)
    expected = [None if n is None else n.to_bytes(32, "big") for n in numbers[skipped:]]
    assert numeric.unsigned(column).to_pylist() == expected


@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(SIGNED, min_size=1, max_size=30), skipped=st.integers(0, 3))
@example(numbers=[-(2**287), 2**287 - 1, None, 0, -1], skipped=0)
@example(numbers=[-10_000, -(2**16), -(2**32)], skipped=1)
def test_every_signed_number_becomes_36_bytes_in_twos_complement(
    server: object, numbers: list[int | None], skipped: int
) -> None:
    column = sent(server, [None if n is None else str(n) for n in numbers]).slice(skipped)
    expected = [None if n is None else n.to_bytes(36, "big", signed=True) for n in numbers]
    assert numeric.signed(column).to_pylist() == expected[skipped:]


@pytest.mark.parametrize("size", [2**287, 2**288, 10**88, 2**400 - 1, 10**200])
def test_a_signed_number_that_needs_more_bytes_gets_them(server: object, size: int) -> None:
    numbers = [size, -size, 0, None, 5]
    column = sent(server, [None if n is None else str(n) for n in numbers])
    found = numeric.signed(column).to_pylist()
    assert [n if n is None else int.from_bytes(n, "big", signed=True) for n in found] == numbers
    assert len(found[2]) == len(found[4]) == 36, "a number has one form, whatever is beside it"
    assert found[0] is not None and found[0][:1] <= b"\x7f" and len(found[0]) >= 36


def test_more_rows_than_are_converted_at_once_keep_their_order(server: object) -> None:
    count = 2 * numeric.ROWS_AT_ONCE + 5
    with server.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.execute(f"SELECT numeric_send(n::numeric * n) FROM generate_series(1, {count}) n")
        column = cursor.fetch_arrow_table().column(0).combine_chunks()
    found = [int.from_bytes(value, "big") for value in numeric.unsigned(column).to_pylist()]
    assert found == [n * n for n in range(1, count + 1)]


@pytest.mark.parametrize("text", ["-1", str(2**256), "1e80", "0.5", "12345.25", "'NaN'"])
def test_what_is_no_256_bit_number_is_refused(server: object, text: str) -> None:
    with pytest.raises(errors.RowRefused):
        numeric.unsigned(sent(server, ["1::numeric", text]))


@pytest.mark.parametrize("text", ["0.5", "-12345.25", "'NaN'", "'Infinity'", "'-Infinity'"])
def test_what_is_no_whole_number_is_refused(server: object, text: str) -> None:
    with pytest.raises(errors.RowRefused):
        numeric.signed(sent(server, ["1::numeric", text]))
