"""Goal: what a fork costs grows with the derived rows it touches, not with those it leaves (I10).

Method: Postgres counts the rows that are written and read in the tables of the app side while a
fork is undone and its blocks are computed anew, once on a short chain and once on one that is ten
times as long and ends in the very same blocks. Rows, unlike seconds, do not depend on what else the
machine does.
"""

from __future__ import annotations

import asyncio

from tests import toy
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker, committed, partitions
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.jobs.finished import Finished
from unfork.jobs.state import Kind

LAST = 1000
UNWOUND = 8
#: All but the one that is computed as a whole: it is as long as the chain.
DATASETS = tuple(dataset for dataset in toy.EVERY if dataset.mode is not Mode.FULL)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def touched(place: Place) -> int:
    """Rows written and read in the app side so far, once everybody has told."""
    await place.close()
    text = (
        "SELECT count(*) AS others FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    async with asyncio.timeout(60):
        while (await place.app_rows(text))[0]["others"]:
            await asyncio.sleep(0.01)
    (row,) = await place.app_rows(
        "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del + coalesce(seq_tup_read, 0)"
        " + coalesce(idx_tup_fetch, 0)) AS count FROM pg_stat_all_tables"
        f" WHERE schemaname = '{place.app}'"
    )
    return int(row["count"])


async def planned(worker: Worker, journal: Journal) -> list[Finished]:
    """What has to be computed after the fork, read and not committed."""
    runs = []
    for dataset in DATASETS:
        build = await worker.build(dataset)
        parts = [p for p in partitions(dataset, journal.chain) if p.span.last > LAST - UNWOUND]
        first = parts[0].span.first if dataset.mode is Mode.PARTITION else build.next
        span = Span(first, LAST)
        kind = Kind.LIVE if dataset.mode is Mode.CURSOR else Kind.RECOMPUTE
        lease = await worker.claim(build, span, kind=kind)
        assert lease is not None
        runs.append(
            await worker.compute(
                build,
                lease,
                journal.blocks(span),
                parent=journal.at(first - 1),
                partitions=tuple(parts) if dataset.mode is Mode.PARTITION else (),
                seen=await worker.open_ids(build, span),
            )
        )
    return runs


async def work(place: Place, first: int) -> dict[str, int]:
    """Rows touched by undoing a fork, and by computing anew, on a chain that begins at a block."""
    await place.wipe()
    journal = Journal(first=first).commit(drawing("a", first, LAST))
    worker = Worker(place, journal)
    await worker.register(*DATASETS, first=first)
    await worker.follow()
    for dataset in DATASETS:
        if dataset.mode is Mode.CURSOR:
            committed(await worker.run(dataset, journal.chain))
        else:
            committed(await worker.run_partitions(dataset, journal.chain))
    await place.app_rows("ANALYZE")
    start = await touched(place)
    journal.unwind(LAST - UNWOUND).commit(drawing("b", LAST - UNWOUND + 1, LAST))
    assert await Worker(place, journal).refs.step() is not None
    undone = await touched(place)
    runs = await planned(Worker(place, journal), journal)
    ready = await touched(place)
    worker = Worker(place, journal)
    for run in runs:
        committed(await worker.commits.commit(run))
    return {"undo": undone - start, "write": await touched(place) - ready}


async def test_ten_times_the_blocks_held_touch_no_more_rows(fresh_place: Place) -> None:
    few = await work(fresh_place, LAST - 99)
    many = await work(fresh_place, 1)
    assert min(few.values()) > 50, "hardly anything was undone"
    for what, count in many.items():
        assert count < 1.3 * few[what], (what, few, many)
