"""Goal: maintenance removes what nobody needs any more, and nothing else. Method: toy datasets, one
rebuilt, in a real Postgres; kept for no time at all, and for long."""

from __future__ import annotations

from tests import toy
from tests.dispatching import Dispatcher
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker
from unfork.app import maintenance
from unfork.chain.span import Span
from unfork.jobs.backfill import propose

LONG_S = 1e6


async def rebuilt(place: Place) -> Dispatcher:
    """A dataset that was built anew, corrected and forked."""
    journal = Journal().commit("a1-a2-a3-a4-a5-a6").finalize(3).commit("a7")
    found = Dispatcher(Worker(place, journal), journal, toy.MOVES, toy.BALANCES)
    await found.settle()
    for wanted in ([Span(1, 1)], [Span(6, 6)]):
        surveyed = await found.survey.take()
        spec = found.lineage.jobs["sum_balances"]
        await found.requests.put(spec, propose(spec, surveyed.state, wanted), surveyed)
        await found.settle()
    journal.unwind(5).commit("b6-b7-b8")
    await found.settle()
    return found


async def test_what_is_not_old_enough_stays(place: Place) -> None:
    await rebuilt(place)
    removed = await maintenance.prune(
        place.name, place.app_database(), retired_keep_s=LONG_S, record_keep_s=LONG_S
    )
    assert not any(removed.values())


async def test_retired_builds_and_old_records_go_and_the_datasets_stay_exact(
    any_place: Place,
) -> None:
    place = any_place
    found = await rebuilt(place)
    before = await place.app_rows("SELECT count(*) AS count FROM {app}.runs")
    removed = await maintenance.prune(
        place.name, place.app_database(), retired_keep_s=0, record_keep_s=0
    )
    assert removed["builds"] == 1
    # The last run of each job is kept: people ask for it.
    assert removed["runs"] == before[0]["count"] - 2
    assert removed["data_invalidations"] >= 2
    assert [one.state for one in await found.worker.generations.all()] == ["served", "served"]
    await found.require_exact()
    again = await maintenance.prune(
        place.name, place.app_database(), retired_keep_s=0, record_keep_s=0
    )
    assert not any(again.values())
    found.journal.unwind(6).commit("c7-c8-c9")
    await found.settle()
    await found.require_exact()


async def test_what_is_still_to_be_done_is_kept_however_old(place: Place) -> None:
    found = await rebuilt(place)
    surveyed = await found.survey.take()
    spec = found.lineage.jobs["find_moves"]
    await found.requests.put(spec, propose(spec, surveyed.state, None), surveyed)
    await maintenance.prune(place.name, place.app_database(), retired_keep_s=0, record_keep_s=0)
    assert [row.job for row in await found.worker.unprocessed()] == ["find_moves"]
    assert await found.settle()
    assert await found.worker.unprocessed() == []
