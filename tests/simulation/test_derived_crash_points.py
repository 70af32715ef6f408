"""Proves that a crash at any statement of a commit or of a fork leaves the app side before or after
it, never between, and that doing it again ends where it should (I5, I8).

Method: an act dies at its first statement, at its second, and so on until it gets through alive.
After each death every table is compared, row by row, with what it was before the act.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable

import psycopg
import pytest

from tests import toy
from tests.journals import Journal
from tests.places import Place
from tests.simulation.test_crash_points import Crash, Statements
from tests.workers import Worker, committed, partitions
from unfork.app.derived import DerivedDataset
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.jobs.finished import Committed, Finished
from unfork.jobs.state import Kind

IN_BLOCKS = (toy.MOVES, toy.ALERTS, toy.FIRSTS, toy.BALANCES)
IN_PARTS = (toy.DAILY, toy.PAGES, toy.TOTALS)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


def everything(place: Place) -> dict[str, list[str]]:
    """Every row of every table of the app side."""
    with psycopg.connect(place.app_dsn or place.dsn, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace",
            [place.app],
        ).fetchall()
        return {
            name: sorted(
                row[0]
                for row in connection.execute(
                    f'SELECT held::text FROM "{place.app}"."{name}" AS held'
                )
            )
            for (name,) in tables
        }


class Scene:
    """The app side of a drawn chain, and a probe in all its connections."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.words = Statements()
        self.journal = Journal().finalize(4).commit(drawing("a", 1, 18))
        self.worker = Worker(place, self.journal, probe=self.words)

    async def ready(self, *, last: int) -> None:
        await self.worker.register(*toy.EVERY)
        await self.worker.follow()
        chain = self.journal.chain[:last]
        for dataset in IN_BLOCKS:
            committed(await self.worker.run(dataset, chain))
        for dataset in IN_PARTS:
            committed(await self.worker.run_partitions(dataset, chain))

    async def survives(self, act: Callable[[], Awaitable[object]]) -> int:
        """Lets the act die at every statement; returns how many there are."""
        before = everything(self.place)
        for number in itertools.count(1):
            self.words.arm(number)
            try:
                await act()
            except Crash:
                self.words.arm(None)
                if everything(self.place) != before:
                    # It died after its last statement: it is done, and must be done as a whole.
                    return number
            else:
                self.words.arm(None)
                return number
        raise AssertionError


async def finished(worker: Worker, dataset: DerivedDataset, journal: Journal) -> Finished:
    """A run over all that is left, not committed yet."""
    build = await worker.build(dataset)
    parts = [p for p in partitions(dataset, journal.chain) if p.span.last > 12]
    if dataset.mode is Mode.CURSOR:
        span, kind = Span(13, 18), Kind.LIVE
    else:
        span, kind = Span(parts[0].span.first, parts[-1].span.last), Kind.RECOMPUTE
    lease = await worker.claim(build, span, kind=kind)
    assert lease is not None
    return await worker.compute(
        build,
        lease,
        journal.blocks(span),
        parent=journal.at(span.first - 1) if span.first > 1 else None,
        partitions=tuple(parts) if dataset.mode is Mode.PARTITION else (),
    )


@pytest.mark.parametrize("dataset", toy.EVERY, ids=lambda dataset: dataset.name)
async def test_a_crash_at_every_statement_of_a_commit_leaves_before_or_after(
    place: Place, dataset: DerivedDataset
) -> None:
    scene = Scene(place)
    await scene.ready(last=12)
    run = await finished(scene.worker, dataset, scene.journal)
    count = await scene.survives(lambda: scene.worker.commits.commit(run))
    assert count > 12, "hardly any statement was reached"
    assert await scene.worker.held(dataset) == toy.expected(dataset, scene.journal.chain)
    assert await scene.worker.leases.all() == []
    after = everything(place)
    assert not isinstance(await scene.worker.commits.commit(run), Committed)
    after["runs"] = everything(place)["runs"]
    assert everything(place) == after, "a second commit changed something"


async def test_a_crash_at_every_statement_of_a_fork_leaves_before_or_after(place: Place) -> None:
    scene = Scene(place)
    await scene.ready(last=18)
    scene.journal.unwind(9).commit(drawing("b", 10, 16))
    count = await scene.survives(scene.worker.refs.step)
    assert count > 20, "hardly any statement was reached"
    assert await scene.worker.refs.step() is None
    chain = scene.journal.chain
    for dataset in IN_BLOCKS:
        assert await scene.worker.held(dataset) == toy.expected(dataset, chain[:9])
        committed(await scene.worker.run(dataset, chain))
    for dataset in IN_PARTS:
        committed(await scene.worker.run_partitions(dataset, chain))
    for dataset in toy.EVERY:
        assert await scene.worker.held(dataset) == toy.expected(dataset, chain)


async def test_a_crash_at_every_statement_of_a_swap_leaves_the_old_or_the_new(
    place: Place,
) -> None:
    scene = Scene(place)
    await scene.ready(last=18)
    worker, journal = scene.worker, scene.journal
    build = await worker.generations.build(toy.BALANCES, config_hash="config-2", first=1)
    lease = await worker.claim(build, Span(1, 18), config_hash="config-2")
    assert lease is not None
    run = await worker.compute(build, lease, journal.chain, parent=None, config_hash="config-2")
    committed(await worker.commits.commit(run))
    await scene.survives(lambda: worker.generations.swap("balances"))
    assert (await worker.build(toy.BALANCES)).table == "balances_g2"
    assert await worker.held(toy.BALANCES) == toy.expected(toy.BALANCES, journal.chain)
