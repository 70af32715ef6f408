"""Goal: what is pushed to the database filters as Spark would; everything else stays with Spark.

Method: filters as Spark hands them to a data source, against the span, SQL and rest they make.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.datasets.dataset import Dataset
from unfork.jobs.spark import raw_reading
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.push import ALL, NUMBER_MAX, VALUES_MAX, Pushed
from unfork.jobs.spark.raw_reading import Moment

NUMBER = ("block_number",)


def push(filters: list[Filter], dataset: Dataset) -> Pushed:
    """What a reading of a dataset makes of the filters."""
    reading = raw_reading.Reading(
        request=Request(dataset=dataset.name),
        chain="any",
        dataset=dataset,
        columns=dataset.columns,
        pieces=1,
        moment=Moment(span=None, at=None, floor=-1, epoch=1),
    )
    return reading.push(filters)


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([], ALL),
        ([EqualTo(NUMBER, 7)], Span(7, 7)),
        ([GreaterThan(NUMBER, 7)], Span(8, NUMBER_MAX)),
        ([GreaterThanOrEqual(NUMBER, 7)], Span(7, NUMBER_MAX)),
        ([LessThan(NUMBER, 7)], Span(0, 6)),
        ([LessThanOrEqual(NUMBER, 7)], Span(0, 7)),
        ([GreaterThan(NUMBER, 3), LessThan(NUMBER, 6)], Span(4, 5)),
        ([GreaterThan(NUMBER, 3), LessThan(NUMBER, 4)], None),
        ([EqualTo(NUMBER, 1), EqualTo(NUMBER, 2)], None),
        ([LessThan(NUMBER, 0)], None),
        ([GreaterThanOrEqual(NUMBER, -5)], ALL),
        ([GreaterThan(NUMBER, NUMBER_MAX)], None),
    ],
)
def test_comparisons_of_the_block_number_narrow_the_span(
    filters: list[Filter], span: Span | None
) -> None:
    pushed = push(filters, evm.LOGS)
    assert pushed.span == span
    assert pushed.conditions.text == ""
    assert pushed.left == ()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (EqualTo(("address",), b"\x01\xff"), r"""AND row."address" IN ('\x01ff'::bytea)"""),
        (EqualTo(("topic0",), b"'; DROP"), r"""AND row."topic0" IN ('\x273b2044524f50'::bytea)"""),
        (In(("log_index",), (1, -2)), 'AND row."log_index" IN ((1), (-2))'),
        (In(("log_index",), ()), 'AND row."log_index" IN (NULL)'),
        (In(NUMBER, (1, 9)), 'AND row."block_number" IN ((1), (9))'),
        (IsNull(("topic1",)), 'AND row."topic1" IS NULL'),
        (IsNotNull(("topic1",)), 'AND row."topic1" IS NOT NULL'),
    ],
)
def test_equality_of_numbers_and_bytes_becomes_sql(given: Filter, text: str) -> None:
    pushed = push([given], evm.LOGS)
    assert pushed.conditions.text == text
    assert pushed.span == ALL and pushed.left == ()


@pytest.mark.parametrize(
    "given",
    [
        EqualTo(("data",), b"a large value is not in the table"),
        IsNull(("data",)),
        EqualTo(("nothing",), 1),
        EqualTo(("address", "part"), b"1"),
        EqualTo(("address",), "text"),
        EqualTo(("log_index",), None),
        EqualTo(("log_index",), True),
        EqualNullSafe(("topic0",), b"1"),
        In(("address",), (b"1", None)),
        In(("log_index",), tuple(range(VALUES_MAX + 1))),
        EqualTo(("block_timestamp",), datetime(2026, 1, 1, tzinfo=UTC)),
        GreaterThan(("log_index",), 5),
        StringContains(("address",), "1"),
        Not(EqualTo(NUMBER, 1)),
    ],
    ids=repr,
)
def test_whatever_is_not_understood_stays_with_spark(given: Any) -> None:
    pushed = push([given], evm.LOGS)
    assert pushed.left == (given,)
    assert pushed.span == ALL and pushed.conditions.text == ""
