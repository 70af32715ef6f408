"""Goal: the graph knows its order, its neighbours, and how far a change travels.

Method: tables of small graphs; cascades are compared with a walk block by block.
"""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unfork.chain import span as spans
from unfork.chain.advance import Day
from unfork.chain.span import Span
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Strategy
from unfork.jobs.lineage import Cycle, Lineage
from unfork.jobs.partition import Grid, Partition, nests, span_of
from unfork.jobs.spec import JobSpec

DAYS = (Day(date(2024, 1, 1), 0, 9), Day(date(2024, 1, 2), 10, 17), Day(date(2024, 1, 4), 18, 30))


def job(
    name: str,
    *inputs: str,
    mode: Mode = Mode.CURSOR,
    strategy: Strategy = Strategy.REPLACE,
    partitioning: ByBlocks | ByDay | None = None,
) -> JobSpec:
    """A job that writes a dataset of its own name."""
    return JobSpec(
        name=name,
        inputs=inputs,
        input_names=inputs,
        output=name,
        mode=mode,
        strategy=strategy,
        unique_key=("key",) if strategy is not Strategy.REPLACE else (),
        partitioning=partitioning,
        transform="m:f",
    )


GRAPH = (
    job("balances", "transfers", strategy=Strategy.MERGE),
    job("daily", "blocks", "transfers", mode=Mode.PARTITION, partitioning=ByDay()),
    job("transfers", "logs"),
    job("tens", "transfers", mode=Mode.PARTITION, partitioning=ByBlocks(10)),
    job("all", "balances", "tens", mode=Mode.FULL),
    job("fees", "transactions"),
)


def test_no_job_stands_before_one_whose_output_it_reads() -> None:
    lineage = Lineage(GRAPH)
    assert [spec.name for spec in lineage.order] == [
        "transfers", "balances", "daily", "tens", "all", "fees",
    ]  # fmt: skip
    assert lineage.writer("logs") is None
    assert [spec.name for spec in lineage.readers("transfers")] == ["balances", "daily", "tens"]
    assert [spec.name for spec in lineage.downstream("logs")] == [
        "transfers", "balances", "daily", "tens", "all",
    ]  # fmt: skip
    assert [spec.name for spec in lineage.upstream("all")] == ["transfers", "balances", "tens"]


@pytest.mark.parametrize(
    ("graph", "path"),
    [
        ((job("a", "a"),), ("a", "a")),
        ((job("a", "logs"), job("b", "c"), job("c", "a", "b")), ("b", "c", "b")),
        ((job("a", "d"), job("b", "a"), job("c", "b"), job("d", "c")), ("a", "d", "c", "b", "a")),
    ],
)
def test_a_cycle_is_named_by_its_path(graph: tuple[JobSpec, ...], path: tuple[str, ...]) -> None:
    with pytest.raises(Cycle) as caught:
        Lineage(graph)
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("dataset", "changed", "expected"),
    [
        (
            "logs",
            [Span(12, 13)],
            {
                "transfers": (Span(12, 13),),
                "balances": (Span(12, 30),),
                "daily": (Span(10, 17),),
                "tens": (Span(10, 19),),
                "all": (Span(0, 30),),
            },
        ),
        (
            "logs",
            [Span(28, 99), Span(2, 2)],
            {
                "transfers": (Span(2, 2), Span(28, 30)),
                "balances": (Span(2, 30),),
                "daily": (Span(0, 9), Span(18, 30)),
                "tens": (Span(0, 9), Span(20, 30)),
                "all": (Span(0, 30),),
            },
        ),
        ("blocks", [Span(9, 10)], {"daily": (Span(0, 17),)}),
        ("transactions", [Span(3, 4)], {"fees": (Span(3, 4),)}),
        ("logs", [Span(31, 40)], {}),
        ("traces", [Span(1, 2)], {}),
    ],
)
def test_a_change_travels_as_far_as_each_job_carries_it(
    dataset: str, changed: list[Span], expected: dict[str, tuple[Span, ...]]
) -> None:
    found = Lineage(GRAPH).cascade(dataset, changed, first=0, last=30, days=DAYS)
    assert {touched.job: touched.spans for touched in found} == expected


def test_a_change_says_through_which_datasets_it_came() -> None:
    found = Lineage(GRAPH).cascade("logs", [Span(1, 1)], first=0, last=30, days=DAYS)
    assert {touched.job: touched.through for touched in found}["all"] == ("balances", "tens")


@given(st.integers(1, 7), st.integers(0, 20), st.integers(0, 40), st.integers(0, 40))
def test_partitions_by_blocks_cover_the_chain_once_and_widen_to_what_they_touch(
    size: int, first: int, length: int, low: int
) -> None:
    last = first + length
    grid = Grid(ByBlocks(size), first=first, last=last)
    found = list(grid)
    assert [n for one in found for n in range(one.first, one.last + 1)] == list(
        range(first, last + 1)
    )
    assert all(span_of(one.key) == spans.aligned(one.first, size) for one in found)
    assert [one.is_open for one in found] == [(last + 1) % size != 0 and one is found[-1]
                                              for one in found]  # fmt: skip
    touched = [one for one in found if one.span.overlaps(Span(low, low + 3))]
    wide = grid.widen(Span(low, low + 3))
    assert wide == (Span(touched[0].first, touched[-1].last) if touched else None)


def test_partitions_by_day_follow_the_days_and_the_last_one_is_open() -> None:
    grid = Grid(ByDay(), first=4, last=25, days=DAYS)
    assert list(grid) == [
        Partition("2024-01-01", 4, 9, is_open=False),
        Partition("2024-01-02", 10, 17, is_open=False),
        Partition("2024-01-04", 18, 25, is_open=True),
    ]
    assert list(Grid(ByDay(), first=0, last=17, days=DAYS))[-1].is_open is False
    assert [one.is_open for one in Grid(ByDay(), first=0, last=30, days=DAYS)][-1]
    assert list(Grid(ByDay(), first=0, last=99, days=DAYS))[-1].last == 30, "its day is not known"
    assert list(Grid(ByDay(), first=0, last=99)) == []
    assert span_of("2024-01-02", DAYS) == Span(10, 17)
    assert span_of("2024-01-03", DAYS) is None


def test_partitions_nest_where_none_is_cut() -> None:
    assert nests(ByBlocks(10), ByBlocks(10))
    assert nests(ByBlocks(10), ByBlocks(30))
    assert not nests(ByBlocks(30), ByBlocks(10))
    assert nests(ByDay(), ByDay())
    assert not nests(ByDay(), ByBlocks(10))
