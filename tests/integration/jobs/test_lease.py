"""Goal: blocks are computed by one worker at a time, and nobody writes with a lease he has lost.

Method: two workers with connections of their own, a real Postgres, time that the test moves.
"""

from __future__ import annotations

import asyncio

import pytest

from tests import toy
from tests.journals import Journal
from tests.places import Place
from tests.workers import CONFIG, Worker, committed, with_token
from unfork import errors
from unfork.chain.span import Span
from unfork.jobs.finished import Discarded
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Why


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def ready(place: Place, *, blocks: int = 40) -> Worker:
    worker = Worker(place, Journal().commit(drawing("a", 1, blocks)))
    await worker.register(toy.MOVES, toy.BALANCES)
    await worker.follow()
    return worker


async def test_leases_of_one_build_never_overlap_and_builds_do_not_disturb_each_other(
    any_place: Place,
) -> None:
    worker = await ready(any_place)
    moves, balances = await worker.build(toy.MOVES), await worker.build(toy.BALANCES)
    assert await worker.claim(moves, Span(11, 20), kind=Kind.BACKFILL) is not None
    for overlapping in (Span(11, 20), Span(20, 25), Span(5, 11), Span(13, 14), Span(1, 40)):
        assert await worker.claim(moves, overlapping, kind=Kind.BACKFILL) is None
        assert await worker.claim(moves, overlapping, kind=Kind.RECOMPUTE) is None
    assert await worker.claim(moves, Span(21, 30), kind=Kind.BACKFILL) is not None
    assert await worker.claim(balances, Span(1, 20), kind=Kind.BACKFILL) is not None


async def test_of_many_workers_that_claim_at_once_one_gets_the_blocks(place: Place) -> None:
    worker = await ready(place)
    moves = await worker.build(toy.MOVES)
    got = await asyncio.gather(
        *(worker.claim(moves, Span(1, 10), kind=Kind.BACKFILL) for _ in range(8))
    )
    assert [lease is not None for lease in got].count(True) == 1


async def test_live_and_serial_leases_begin_right_after_the_watermark(place: Place) -> None:
    worker = await ready(place)
    moves, balances = await worker.build(toy.MOVES), await worker.build(toy.BALANCES)
    assert await worker.claim(moves, Span(2, 5), kind=Kind.LIVE) is None
    assert await worker.claim(balances, Span(11, 20), kind=Kind.BACKFILL) is None
    committed(await worker.run(toy.MOVES, worker.upstream.chain, last=10))
    assert await worker.claim(moves, Span(1, 5), kind=Kind.BACKFILL) is None
    assert await worker.claim(moves, Span(11, 15), kind=Kind.LIVE) is not None
    assert await worker.claim(moves, Span(16, 20), kind=Kind.LIVE) is None


async def test_a_paused_job_claims_nothing_and_keeps_its_checkpoint(place: Place) -> None:
    worker = await ready(place)
    journal = worker.upstream
    committed(await worker.run(toy.MOVES, journal.chain, last=10))
    assert await worker.generations.pause("find_moves") == ["find_moves"]
    moves = await worker.build(toy.MOVES)
    assert await worker.claim(moves, Span(11, 15)) is None
    rows = await place.app_rows("SELECT * FROM {app}.indexing_checkpoints")
    checkpoints = {row["worker_name"]: row["block_number"] for row in rows}
    assert checkpoints == {"find_moves": 10, "sum_balances": None}
    assert [job.name for job in await worker.generations.jobs() if job.is_paused] == ["find_moves"]
    assert len(await worker.generations.pause(None, is_paused=False)) == 2
    assert await worker.claim(moves, Span(11, 15)) is not None
    assert await worker.generations.pause("nobody") == []


async def test_a_renewed_lease_lasts_and_an_expired_one_is_lost(place: Place) -> None:
    worker = await ready(place)
    lease = await worker.claim(await worker.build(toy.MOVES), Span(1, 10))
    assert lease is not None and worker.leases.policy.renew_s == 20
    for _ in range(5):
        worker.time.pass_s(40)
        assert await worker.leases.renew(lease)
    worker.time.pass_s(61)
    assert not await worker.leases.renew(lease)
    assert not await worker.leases.fail(lease, ValueError("too late"))


async def test_a_worker_that_comes_back_after_its_lease_cannot_write_anything(
    any_place: Place,
) -> None:
    paused = await ready(any_place)
    chain = paused.upstream.chain
    build = await paused.build(toy.MOVES)
    lease = await paused.claim(build, Span(1, 10))
    assert lease is not None
    run = await paused.compute(build, lease, chain[:10], parent=None)
    paused.time.pass_s(61)
    # Nobody has noticed yet: the clock alone is enough.
    outcome = await paused.commits.commit(run)
    assert isinstance(outcome, Discarded) and outcome.why is Why.LEASE_LOST
    other = Worker(any_place, paused.upstream, name="worker-2", time=paused.time)
    assert [one.id for one in await other.leases.reap()] == [lease.id]
    paused.time.pass_s(10)
    taken = await other.leases.reclaim(build, worker=other.name, config_hash=CONFIG)
    assert taken is not None and taken.token != lease.token
    for _ in range(2):
        outcome = await paused.commits.commit(run)
        assert isinstance(outcome, Discarded) and outcome.why is Why.LEASE_LOST
    assert await paused.held(toy.MOVES) == []
    assert not await paused.leases.renew(lease)
    await paused.leases.give_back(lease)
    committed(
        await other.commits.commit(await other.compute(build, taken, chain[:10], parent=None))
    )
    outcome = await paused.commits.commit(run)
    assert isinstance(outcome, Discarded)
    assert await other.held(toy.MOVES) == toy.expected(toy.MOVES, chain[:10])


async def test_a_guessed_token_writes_nothing(place: Place) -> None:
    worker = await ready(place)
    chain = worker.upstream.chain
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(1, 10))
    assert lease is not None
    guess = with_token(lease, lease.token + 1)
    run = await worker.compute(build, guess, chain[:10], parent=None)
    outcome = await worker.commits.commit(run)
    assert isinstance(outcome, Discarded) and outcome.why is Why.LEASE_LOST
    assert not await worker.leases.renew(guess)
    assert await worker.leases.renew(lease)


async def test_what_failed_is_claimed_again_first_after_a_pause_that_doubles(
    place: Place,
) -> None:
    worker = await ready(place)
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(11, 20), kind=Kind.BACKFILL)
    for pause_s in (1, 2, 4):
        assert lease is not None
        assert await worker.leases.fail(lease, ValueError("no"))
        worker.time.pass_s(pause_s - 0.5)
        again = worker.leases.reclaim(build, worker="w", config_hash=CONFIG)
        assert await again is None
        assert await worker.claim(build, Span(11, 20), kind=Kind.BACKFILL) is None
        worker.time.pass_s(0.6)
        lease = await worker.leases.reclaim(build, worker="w", config_hash=CONFIG)
        assert lease is not None and lease.span == Span(11, 20)
    assert lease.attempt == 3


async def test_a_span_that_always_throws_is_a_poison_pill_until_it_is_released(
    place: Place,
) -> None:
    worker = await ready(place)
    build = await worker.build(toy.MOVES)
    await worker.claim(build, Span(11, 20), kind=Kind.BACKFILL)
    for attempt in range(5):
        lease = next(one for one in await worker.leases.all())
        if attempt:
            worker.time.pass_s(400)
            found = await worker.leases.reclaim(build, worker="w", config_hash=CONFIG)
            assert found is not None
            lease = found
        if attempt % 2:
            worker.time.pass_s(61)
            assert len(await worker.leases.reap()) == 1
        else:
            assert await worker.leases.fail(lease, ValueError("always"))
    worker.time.pass_s(10_000)
    assert await worker.leases.reclaim(build, worker="w", config_hash=CONFIG) is None
    errors_open = await place.app_rows(
        "SELECT * FROM {app}.indexing_errors WHERE NOT resolved AND severity = 'FATAL'"
    )
    assert len(errors_open) == 1
    assert errors_open[0]["worker_name"] == "find_moves"
    assert "given up after 5 failures" in errors_open[0]["message"]
    # Other blocks and jobs go on meanwhile.
    assert await worker.claim(build, Span(1, 10), kind=Kind.BACKFILL) is not None
    (freed,) = await worker.leases.release("find_moves", Span(15, 15))
    assert freed.span == Span(11, 20) and freed.attempt == 0
    lease = await worker.leases.reclaim(build, worker="w", config_hash=CONFIG)
    assert lease is not None
    chain = worker.upstream.chain
    committed(
        await worker.commits.commit(
            await worker.compute(build, lease, chain[10:20], parent=chain[9])
        )
    )


async def test_new_code_frees_a_poison_pill_at_once(place: Place) -> None:
    worker = await ready(place)
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(1, 10))
    for _ in range(5):
        assert lease is not None
        await worker.leases.fail(lease, ValueError("always"))
        worker.time.pass_s(400)
        lease = await worker.leases.reclaim(build, worker="w", config_hash=CONFIG)
    assert lease is None
    fixed = await worker.leases.reclaim(build, worker="w", config_hash="config-2")
    assert fixed is not None and fixed.attempt == 0 and fixed.config_hash == "config-2"


async def test_waiting_for_a_database_does_not_count_as_a_failure(place: Place) -> None:
    worker = await ready(place)
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(1, 10))
    for _ in range(8):
        assert lease is not None
        await worker.leases.fail(lease, errors.DatabaseUnavailable("away"))
        worker.time.pass_s(400)
        lease = await worker.leases.reclaim(build, worker="w", config_hash=CONFIG)
    assert lease is not None and lease.attempt == 0
    assert await place.app_rows("SELECT * FROM {app}.indexing_errors") == []


async def test_a_success_resolves_what_was_recorded_of_the_span(place: Place) -> None:
    worker = await ready(place)
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(1, 10))
    assert lease is not None
    await worker.leases.fail(lease, ValueError("once"))
    worker.time.pass_s(5)
    lease = await worker.leases.reclaim(build, worker="w", config_hash=CONFIG)
    assert lease is not None
    chain = worker.upstream.chain
    committed(
        await worker.commits.commit(await worker.compute(build, lease, chain[:10], parent=None))
    )
    rows = await place.app_rows("SELECT resolved FROM {app}.indexing_errors")
    assert [row["resolved"] for row in rows] == [True]
    runs = await place.app_rows("SELECT outcome FROM {app}.runs ORDER BY id")
    assert [row["outcome"] for row in runs] == ["failed", "committed"]


async def test_one_reaper_at_a_time_takes_what_expired(place: Place) -> None:
    worker = await ready(place)
    build = await worker.build(toy.MOVES)
    for first in (1, 11, 21):
        assert await worker.claim(build, Span(first, first + 9), kind=Kind.BACKFILL)
    worker.time.pass_s(61)
    taken = await asyncio.gather(*(worker.leases.reap() for _ in range(4)))
    assert sum(map(len, taken)) == 3
    assert {lease.status for lease in await worker.leases.all()} == {"FAILED"}
    assert {lease.attempt for lease in await worker.leases.all()} == {1}


@pytest.mark.parametrize("kind", [Kind.LIVE, Kind.BACKFILL])
async def test_a_lease_given_back_is_as_if_it_had_never_been(place: Place, kind: Kind) -> None:
    worker = await ready(place)
    build = await worker.build(toy.MOVES)
    lease = await worker.claim(build, Span(1, 10), kind=kind)
    assert lease is not None
    await worker.leases.give_back(lease)
    assert await worker.leases.all() == []
    assert await worker.claim(build, Span(1, 12), kind=kind) is not None
