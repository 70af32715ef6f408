"""Goal: a dataset is built anew beside the one that is read, follows forks meanwhile, and takes its
place at once. Method: toy datasets and drawn chains in a real Postgres."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import toy
from tests.drawn import ref
from tests.journals import Journal
from tests.places import Place
from tests.workers import CONFIG, Worker, committed
from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation, NotReady
from unfork.chain.span import Span
from unfork.datasets.dataset import Column
from unfork.datasets.dataset import Kind as ColumnKind
from unfork.jobs.finished import Discarded
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Why


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def following(place: Place, journal: Journal, *datasets: DerivedDataset) -> Worker:
    worker = Worker(place, journal)
    await worker.register(*datasets)
    await worker.follow()
    return worker


async def run_building(worker: Worker, dataset: DerivedDataset, journal: Journal) -> None:
    build = await worker.build(dataset, "building")
    span = Span(build.next, journal.chain[-1].number)
    lease = await worker.claim(build, span, kind=Kind.BACKFILL, config_hash=build.config_hash)
    assert lease is not None
    parent = None if span.first == journal.first else journal.at(span.first - 1)
    run = await worker.compute(
        build, lease, journal.blocks(span), parent=parent, config_hash=build.config_hash
    )
    committed(await worker.commits.commit(run))


async def test_registering_twice_changes_nothing_and_reads_back_what_was_declared(
    any_place: Place,
) -> None:
    worker = await following(any_place, Journal().commit("a1"), *toy.EVERY)
    first = await worker.generations.all()
    await worker.register(*toy.EVERY)
    assert await worker.generations.all() == first
    assert [one.dataset for one in first] == list(toy.EVERY)
    assert {one.schema_hash for one in first} == {one.schema_hash for one in toy.EVERY}


async def test_a_new_build_follows_forks_beside_the_old_one_and_takes_its_place_at_once(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 20))
    worker = await following(place, journal, toy.BALANCES)
    committed(await worker.run(toy.BALANCES, journal.chain))
    new = await worker.generations.build(toy.BALANCES, config_hash="config-2", first=1)
    again = await worker.generations.build(toy.BALANCES, config_hash="config-2", first=1)
    assert (new.id, new.table) == (again.id, "balances_g2")
    outcome = await worker.generations.swap("balances")
    assert outcome == NotReady(building=None, served=ref("a20"))
    await run_building(worker, toy.BALANCES, journal)
    journal.unwind(14).commit(drawing("b", 15, 22))
    await worker.follow()
    assert await worker.held(toy.BALANCES) == toy.expected(toy.BALANCES, journal.chain[:14])
    committed(await worker.run(toy.BALANCES, journal.chain))
    await run_building(worker, toy.BALANCES, journal)
    served = await worker.generations.swap("balances")
    assert isinstance(served, Generation) and served.id == new.id
    assert await worker.held(toy.BALANCES) == toy.expected(toy.BALANCES, journal.chain)
    states = {one.table: one.state for one in await worker.generations.all()}
    assert states == {"balances_g1": "retired", "balances_g2": "served"}
    journal.unwind(18).commit(drawing("c", 19, 23))
    await worker.follow()
    assert await worker.held(toy.BALANCES) == toy.expected(toy.BALANCES, journal.chain[:18])


async def test_another_schema_is_never_mixed_with_the_old_one(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = await following(place, journal, toy.MOVES)
    committed(await worker.run(toy.MOVES, journal.chain))
    wider = replace(
        toy.MOVES, columns=(*toy.MOVES.columns, Column("fee", ColumnKind.INT, nullable=True))
    )
    known = await worker.generations.register(wider, config_hash=CONFIG, first=1)
    assert known.schema_hash == toy.MOVES.schema_hash != wider.schema_hash
    build = await worker.generations.build(wider, config_hash="config-2", first=1)
    lease = await worker.claim(build, Span(1, 9), config_hash="config-2")
    assert lease is not None
    rows = [{**row, "fee": 1} for row in toy.computed(toy.MOVES, journal.chain)]
    run = await worker.compute(
        build, lease, journal.chain, parent=None, rows=rows, config_hash="config-2"
    )
    committed(await worker.commits.commit(run))
    assert all("fee" not in row for row in await worker.held(toy.MOVES))
    await worker.generations.swap("moves")
    assert await worker.held(toy.MOVES) == toy.ordered(rows)


async def test_a_swap_invalidates_what_reads_the_dataset(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = await following(place, journal, toy.MOVES, toy.BALANCES, toy.TOTALS)
    for dataset in (toy.MOVES, toy.BALANCES):
        committed(await worker.run(dataset, journal.chain))
    committed(await worker.run_partitions(toy.TOTALS, journal.chain))
    await worker.generations.build(toy.MOVES, config_hash="config-2", first=1)
    await run_building(worker, toy.MOVES, journal)
    await worker.generations.swap("moves")
    outdated = {(one.job, one.span, one.reason) for one in await worker.unprocessed()}
    assert outdated == {
        ("sum_balances", Span(1, 9), "correction"),
        ("sum_all", Span(1, 9), "correction"),
    }


async def test_a_retired_build_takes_no_more_rows_and_its_leases_end(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    worker = await following(place, journal, toy.MOVES)
    build = await worker.generations.build(toy.MOVES, config_hash="config-2", first=1)
    lease = await worker.claim(build, Span(1, 9), config_hash="config-2")
    assert lease is not None
    run = await worker.compute(build, lease, journal.chain, parent=None, config_hash="config-2")
    assert await worker.generations.abandon("moves")
    assert not await worker.generations.abandon("moves")
    outcome = await worker.commits.commit(run)
    assert isinstance(outcome, Discarded) and outcome.why is Why.RETIRED
    assert await worker.leases.all() == []
    assert await worker.claim(build, Span(1, 9), config_hash="config-2") is None
    assert await worker.generations.drop_retired(keep_s=3600) == []
    assert await worker.generations.drop_retired(keep_s=0) == ["moves_g2"]
    assert await worker.generations.drop_retired(keep_s=0) == []
    outcome = await worker.commits.commit(run)
    assert isinstance(outcome, Discarded) and outcome.why is Why.RETIRED


async def test_a_build_for_something_else_takes_the_place_of_an_unfinished_one(
    place: Place,
) -> None:
    worker = await following(place, Journal().commit("a1"), toy.MOVES)
    first = await worker.generations.build(toy.MOVES, config_hash="config-2", first=1)
    second = await worker.generations.build(toy.MOVES, config_hash="config-3", first=1)
    states = {one.id: one.state for one in await worker.generations.all()}
    assert states[first.id] == "retired" and states[second.id] == "building"


async def test_a_build_that_cannot_be_mended_is_begun_again_once(place: Place) -> None:
    worker = await following(place, Journal().commit(drawing("a", 1, 20)), toy.BALANCES)
    wanted = {"config_hash": "config-2", "first": 1}
    broken = await worker.generations.build(toy.BALANCES, **wanted)
    new = await worker.generations.build(toy.BALANCES, **wanted, broken=broken.id)
    assert new.id != broken.id
    # Another worker has planned the same.
    assert await worker.generations.build(toy.BALANCES, **wanted, broken=broken.id) == new


@pytest.mark.parametrize("name", ["refs", "history", "jobs", "dataset_cursors", "follower"])
async def test_a_dataset_cannot_take_the_name_of_something_else(place: Place, name: str) -> None:
    worker = Worker(place, Journal())
    with pytest.raises(errors.ConfigInvalid, match="choose another name"):
        await worker.register(replace(toy.MOVES, name=name, job="stranger"))
    assert await worker.generations.all() == []


async def test_one_job_writes_a_dataset(place: Place) -> None:
    worker = await following(place, Journal(), toy.MOVES)
    with pytest.raises(errors.ConfigInvalid, match="written by job `find_moves`"):
        await worker.register(replace(toy.MOVES, job="another"))


async def test_a_table_in_pieces_grows_and_is_undone_like_any_other(any_place: Place) -> None:
    pieces = replace(toy.MOVES, table_blocks=10)
    journal = Journal().commit(drawing("a", 1, 35))
    worker = await following(any_place, journal, pieces)
    committed(await worker.run(pieces, journal.chain, last=8))
    committed(await worker.run(pieces, journal.chain))
    journal.unwind(17).commit(drawing("b", 18, 44))
    await worker.follow()
    committed(await worker.run(pieces, journal.chain))
    assert await worker.held(pieces) == toy.expected(pieces, journal.chain)
    names = await any_place.app_rows(
        "SELECT relname FROM pg_class WHERE relname LIKE 'moves_g1_p%' AND relkind = 'r'"
        f" AND relnamespace = '{any_place.app}'::regnamespace ORDER BY 1"
    )
    assert len(names) == 6, "pieces of ten blocks, one ahead"
