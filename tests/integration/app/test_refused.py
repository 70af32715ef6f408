"""Goal: rows that a job refuses are told once each, bounded, and closed when they are gone.

Method: runs of a toy job that refuse rows are committed for real; the table is read after commits
that are repeated, corrected, forked away and swapped.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests import toy
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker, committed
from unfork.app import refused
from unfork.app.generations import Generation
from unfork.app.refused import Refused, Row
from unfork.chain.span import Span
from unfork.jobs.state import Kind


def rows(*told: tuple[int, str]) -> Refused:
    found = tuple(
        Row(block_number=n, transaction=b"\1" * 32, message=why, data=b"x") for n, why in told
    )
    return Refused(rows=found, count=len(found))


async def refusing(
    worker: Worker, build: Generation, journal: Journal, span: Span, what: Refused, kind: Kind
) -> None:
    """A run over a span that refuses something is committed."""
    lease = await worker.claim(build, span, kind=kind, config_hash=build.config_hash)
    assert lease is not None
    run = await worker.compute(
        build,
        lease,
        journal.blocks(span),
        parent=None if span.first == 1 else journal.at(span.first - 1),
        config_hash=build.config_hash,
    )
    committed(await worker.commits.commit(replace(run, refused=what, may_refuse=True)))


async def told(place: Place) -> list[tuple[Any, ...]]:
    """What is open: block, message, and how often it came."""
    found = await place.app_rows(
        "SELECT * FROM {app}.indexing_errors WHERE NOT resolved ORDER BY block_number, message"
    )
    assert all(row["severity"] == "WARN" and row["worker_name"] == "find_moves" for row in found)
    return [(row["block_number"], row["message"], row["occurrences"]) for row in found]


async def test_rows_are_told_with_their_run_and_closed_when_they_are_gone(place: Place) -> None:
    journal = Journal().commit("a1-a2-a3-a4-a5-a6-a7-a8")
    worker = Worker(place, journal)
    (build,) = await worker.register(toy.MOVES)
    await worker.follow()
    every, again = Span(1, 8), Kind.RECOMPUTE
    bad = rows((2, "two"), (5, "five"), (5, "nul\0"), (7, "seven"))
    await refusing(worker, build, journal, every, bad, Kind.LIVE)
    first = [(2, "two", 1), (5, "five", 1), (5, "nul\\0", 1), (7, "seven", 1)]
    assert await told(place) == first
    await refusing(worker, build, journal, every, bad, again)
    assert await told(place) == first, "the same run twice tells the same"
    await refusing(worker, build, journal, Span(5, 5), rows((5, "five")), again)
    assert await told(place) == [(2, "two", 1), (5, "five", 1), (7, "seven", 1)]
    journal.unwind(5).commit("b6-b7")
    await worker.follow()
    assert await told(place) == [(2, "two", 1), (5, "five", 1)], "a fork takes them along"
    await refusing(worker, build, journal, Span(6, 7), rows((7, "seven")), Kind.LIVE)
    assert await told(place) == [(2, "two", 1), (5, "five", 1), (7, "seven", 2)]
    await refusing(worker, build, journal, Span(1, 7), refused.NOTHING, again)
    assert await told(place) == []


async def test_what_another_build_refuses_replaces_it_when_that_is_served(place: Place) -> None:
    journal = Journal().commit("a1-a2-a3")
    worker = Worker(place, journal)
    (build,) = await worker.register(toy.MOVES)
    await worker.follow()
    await refusing(worker, build, journal, Span(1, 3), rows((1, "old"), (2, "both")), Kind.LIVE)
    beside = await worker.generations.build(toy.MOVES, config_hash="config-2", first=1)
    await refusing(
        worker, beside, journal, Span(1, 3), rows((2, "both"), (3, "new")), Kind.BACKFILL
    )
    await worker.generations.swap("moves")
    assert await told(place) == [(2, "both", 1), (3, "new", 1)]


async def test_of_many_rows_the_first_are_told_and_the_others_counted(place: Place) -> None:
    many = refused.TOLD_MAX + 7
    table = pa.table(
        {
            "block_number": pa.array([1 + n % 3 for n in range(many)], pa.int64()),
            refused.ERROR: [f"row {n:05}" for n in range(many)],
        }
    )
    kept, found = refused.split(table)
    assert kept.num_rows == 0 and found.count == many and found.untold == 7
    journal = Journal().commit("a1-a2-a3")
    worker = Worker(place, journal)
    (build,) = await worker.register(toy.MOVES)
    await worker.follow()
    await refusing(worker, build, journal, Span(1, 3), found, Kind.LIVE)
    entries = await told(place)
    assert len(entries) == refused.TOLD_MAX + 1
    assert "7 more rows of blocks 1..3 were refused, which are only counted" in entries[0][1]
    await refusing(worker, build, journal, Span(1, 3), found, Kind.RECOMPUTE)
    assert await told(place) == entries


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_what_is_told_does_not_depend_on_how_a_run_was_cut(parts: int) -> None:
    many = 2 * refused.TOLD_MAX
    table = pa.table(
        {
            "block_number": pa.array([n * 7919 % many for n in range(many)], pa.int64()),
            "transaction_hash": pa.array([bytes([n % 256]) for n in range(many)], pa.binary()),
            refused.ERROR: [None if n % 5 == 0 else f"row {n}" for n in range(many)],
            refused.DATA: pa.array([b"d" * 5000 for _ in range(many)], pa.binary()),
        }
    )
    kept, whole = refused.split(table)
    assert kept.column_names == ["block_number", "transaction_hash"]
    assert kept.num_rows == many // 5
    pieces = [refused.split(table.take(list(range(n, many, parts))))[1] for n in range(parts)]
    travelled = [refused.unpacked(refused.packed(one), one.count) for one in pieces]
    assert refused.joined(travelled) == whole
    assert all(len(row.data or b"") == 4096 for row in whole.rows)
