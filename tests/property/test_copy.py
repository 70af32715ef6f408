"""Goal: whatever an Arrow table holds, Postgres reads back from our COPY data, value for value.

Method: hypothesis makes tables of every type with NULLs, empty values, chunks and offsets; both
encoders (by column, by value) send them to a real server, which is asked what it understood.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.places import Server
from unfork.database import copy
from unfork.datasets.dataset import ARROW, Kind

U256_MAX = 2**256 - 1
KINDS = tuple(Kind)
TYPES = [kind.value for kind in KINDS]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: What each kind may hold, as Postgres hands it back.
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.INT: st.integers(-(2**63), 2**63 - 1),
    Kind.U256: st.one_of(
        st.sampled_from([0, 1, 9999, 10**4, 10**8 - 1, 10**8, 10**76, 2**64, U256_MAX]),
        st.integers(0, U256_MAX),
        st.integers(0, 256).map(lambda bits: 2**bits - 1),
    ),
    Kind.SIGNED: st.one_of(
        st.sampled_from([0, -1, 1, -9999, 10**4, -(2**64), U256_MAX, -U256_MAX, 2**300]),
        st.integers(-(2**600), 2**600),
        st.integers(0, 511).map(lambda bits: -(2**bits)),
        st.integers(0, 511).map(lambda bits: 2**bits - 1),
    ),
    Kind.BYTES: st.binary(max_size=40),
    Kind.TEXT: st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"])),
    Kind.TIME: st.integers(0, 4_000_000_000_000_000).map(
        lambda us: EPOCH + timedelta(microseconds=us)
    ),
    Kind.DATE: st.dates(),
    Kind.BOOL: st.booleans(),
    Kind.BYTES_LIST: st.lists(st.binary(max_size=5), max_size=3),
    Kind.JSON: st.recursive(
        st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(st.characters(
            exclude_characters="\x00", exclude_categories=["Cs"]), max_size=5),
        lambda inner: st.lists(inner, max_size=3), max_leaves=5,
    ),
}  # fmt: skip

ROW = st.tuples(*(VALUES[kind] | st.none() for kind in KINDS))
FULL_ROW = st.tuples(*(VALUES[kind] for kind in KINDS))
Row = tuple[Any, ...]


@pytest.fixture(scope="module", params=["embedded", "machine"])
def server(
    request: pytest.FixtureRequest, servers: Callable[[str], Server]
) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(servers(request.param).dsn, autocommit=True) as connection:
        columns = ", ".join(f"c{index} {kind}" for index, kind in enumerate(TYPES))
        connection.execute(f"CREATE TEMP TABLE probe (place bigint, {columns})")
        connection.execute("SET timezone = 'UTC'")
        yield connection


def arrow(rows: list[Row]) -> pa.Table:
    """The rows as a batch has them."""
    columns = [
        pa.array([_arrow(kind, row[index]) for row in rows], ARROW[kind])
        for index, kind in enumerate(KINDS)
    ]
    return pa.table([pa.array(range(len(rows)), pa.int64()), *columns], names=_names())


def _names() -> list[str]:
    return ["place", *(f"c{index}" for index in range(len(KINDS)))]


def _arrow(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.U256:
        return int(value).to_bytes(32, "big")
    if kind is Kind.SIGNED:
        return signed(value)
    return json.dumps(value) if kind is Kind.JSON else value


def signed(value: int, *, width: int | None = None) -> bytes:
    """A number in two's complement, in as few bytes as it needs unless told."""
    return value.to_bytes(width or value.bit_length() // 8 + 1, "big", signed=True)


def read_back(server: psycopg.Connection[Any], table: pa.Table) -> list[Row]:
    """What Postgres understood of the table."""
    with server.transaction(force_rollback=True):
        with server.cursor().copy("COPY probe FROM STDIN (FORMAT binary)") as sent:
            for piece in copy.encode(table, ["bigint", *TYPES]):
                sent.write(piece)
        rows = server.execute("SELECT * FROM probe ORDER BY place").fetchall()
    return [tuple(row[1:]) for row in rows]


few_or_many = pytest.mark.parametrize("few", [0, 10**6], ids=["by column", "by value"])
relaxed = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@few_or_many
@relaxed
@given(rows=st.lists(ROW, max_size=12))
@example(rows=[(None,) * len(KINDS)])
@example(rows=[])
def test_every_value_and_every_null_reads_back(
    server: psycopg.Connection[Any], few: int, rows: list[Row]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "ROWS_FEW", few)
        assert read_back(server, arrow(rows)) == rows


@few_or_many
@relaxed
@given(rows=st.lists(FULL_ROW, min_size=1, max_size=12), data=st.data())
def test_slices_and_chunks_of_a_table_read_back_as_what_they_show(
    server: psycopg.Connection[Any], few: int, rows: list[Row], data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    cut = data.draw(st.integers(first, last))
    whole = arrow(rows)
    table = pa.concat_tables([whole.slice(first, cut - first), whole.slice(cut, last - cut)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "ROWS_FEW", few)
        patch.setattr(copy, "ROWS_AT_ONCE", 5)
        assert read_back(server, table) == rows[first:last]


@relaxed
@given(numbers=st.lists(VALUES[Kind.U256] | st.none(), min_size=1, max_size=60))
def test_256_bit_numbers_are_exact_beside_any_others(
    server: psycopg.Connection[Any], numbers: list[int | None]
) -> None:
    rows = [(None, number, *(None,) * (len(KINDS) - 2)) for number in numbers]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "ROWS_FEW", 0)
        assert read_back(server, arrow(rows)) == rows


@pytest.mark.parametrize("width", [1, 2, 31, 32, 33, 40, 63, 64, 65])
@relaxed
@given(data=st.data())
def test_signed_numbers_of_one_width_are_exact(
    server: psycopg.Connection[Any], width: int, data: st.DataObject
) -> None:
    most = 2 ** (8 * width - 1)
    edges = st.sampled_from([0, -1, most - 1, -most, -most + 1, max(-most, -(2**16))])
    numbers = data.draw(st.lists(edges | st.integers(-most, most - 1), min_size=1, max_size=50))
    column = pa.array([signed(number, width=width) for number in numbers], pa.binary())
    position = 1 + KINDS.index(Kind.SIGNED)
    table = arrow([(None,) * len(KINDS)] * len(numbers))
    table = table.set_column(position, f"c{position - 1}", column)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy, "ROWS_FEW", 0)
        found = [row[KINDS.index(Kind.SIGNED)] for row in read_back(server, table)]
    assert found == numbers


def test_bytes_that_arrow_keeps_under_a_null_are_not_sent(
    server: psycopg.Connection[Any],
) -> None:
    hidden = pa.Array.from_buffers(
        pa.binary(),
        3,
        [
            pa.py_buffer(b"\x05"),  # The middle one of the three is NULL.
            pa.array([0, 2, 4, 6], pa.int32()).buffers()[1],
            pa.py_buffer(b"aaXXbb"),
        ],
    )
    table = arrow([(None,) * len(KINDS)] * 3)
    position = table.schema.get_field_index(f"c{KINDS.index(Kind.BYTES)}")
    table = table.set_column(position, f"c{KINDS.index(Kind.BYTES)}", hidden)
    for few in (0, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(copy, "ROWS_FEW", few)
            found = [row[KINDS.index(Kind.BYTES)] for row in read_back(server, table)]
        assert found == [b"aa", None, b"bb"]
