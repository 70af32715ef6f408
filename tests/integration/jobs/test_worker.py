"""Goal: workers bring every dataset up to the chain, whatever other workers, jobs and forks do.

Method: real workers over real Postgres and a raw journal in memory, with toy jobs in plain Python
in the place of Spark; a test decides when a job waits, throws or never ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests import lone_worker, toy
from tests.batches import batch, ref
from tests.crews import PATIENCE_S, Crew, Plain, crew, drawing
from tests.journals import Journal
from tests.places import Place
from unfork import errors
from unfork.app.generations import Generation
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.jobs.commit import Commits
from unfork.jobs.execute import Claimed, InThread
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.lease import Leases, Policy
from unfork.jobs.run import Step
from unfork.jobs.spark import snapshot
from unfork.jobs.state import Status
from unfork.jobs.steps import Steps
from unfork.jobs.worker import Pace

pytestmark = pytest.mark.postgres

#: A job that does not read what `find_moves` writes.
BESIDE = replace(toy.FIRSTS, inputs=("blocks",))


async def test_a_worker_brings_every_dataset_to_the_head_and_follows_it(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 30)).finalize(12)
    async with crew(place, journal) as made:
        await made.until()
        await made.require_exact()
        journal.commit(drawing("a", 31, 33))
        await made.until()
        await made.require_exact()


async def test_a_worker_that_is_told_of_blocks_does_not_wait_for_its_next_look(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 3)).finalize(1)
    # By itself it would look again long after this test has given up.
    blind = Pace(follow_s=10 * PATIENCE_S, dispatch_s=10 * PATIENCE_S)
    async with crew(place, journal, toy.MOVES, BESIDE, pace=blind) as made:
        await made.until()
        journal.commit(drawing("a", 4, 6))
        made.workers[0].nudge()
        await made.until()
        journal.unwind(4).commit(drawing("b", 5, 7))
        made.workers[0].nudge()
        await made.until()
        await made.require_exact()


async def test_three_workers_share_the_work_and_no_block_is_written_twice(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 80)).finalize(70)
    took_part: set[str] = set()
    several = threading.Event()

    def wait(claimed: Claimed) -> None:
        """Until another worker has something too: one alone may be faster than all others."""
        took_part.add(claimed.lease.worker)
        if len(took_part) > 1:
            several.set()
        assert several.wait(PATIENCE_S / 2), "nobody else takes part"

    async with crew(place, journal, workers=3, work=wait) as made:
        await made.until()
        await made.require_exact()
    runs = await place.app_rows(
        "SELECT generation_id, first_number, last_number, mode, worker_name FROM {app}.runs"
        " WHERE outcome = 'committed' AND mode = 'cursor' ORDER BY generation_id, first_number"
    )
    assert len({run["worker_name"] for run in runs}) > 1, "several took part"
    following: dict[int, int] = {}
    for run in runs:
        assert run["first_number"] == following.get(run["generation_id"], 1)
        following[run["generation_id"]] = run["last_number"] + 1
    assert set(following.values()) == {81}


async def test_forks_while_three_workers_run_leave_every_dataset_exact(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 40)).finalize(20)
    async with crew(place, journal, workers=3) as made:
        await made.until(lambda: any(one.outcome == "committed" for one in made.happened))
        for letter, to in (("b", 33), ("c", 29), ("d", 38), ("e", 31)):
            journal.unwind(to).commit(drawing(letter, to + 1, 41))
            await asyncio.sleep(0.1)
        await made.until()
        await made.require_exact()


async def test_a_step_that_cannot_be_taken_yet_stops_no_other_job(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal().commit(drawing("a", 1, 20)).finalize(1)
    take = Steps.take

    async def waiting(self: Steps, step: Step, builds: Mapping[int, Generation]) -> None:
        if step.job == toy.MOVES.job:
            raise errors.DatabaseUnavailable("a reader has it for long")
        await take(self, step, builds)

    monkeypatch.setattr(Steps, "take", waiting)
    async with crew(place, journal, toy.MOVES, BESIDE) as made:
        await made.until(lambda: any(one.watermark == journal.chain[-1] for one in made.happened))
    assert {one.job for one in made.happened} == {BESIDE.job}
    assert await made.hands.held(BESIDE) == toy.expected(BESIDE, journal.chain)


async def test_a_job_that_throws_stops_at_its_blocks_while_all_others_go_on(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 20)).finalize(1)

    def fail(claimed: Claimed) -> None:
        if claimed.run.job == toy.MOVES.job and 9 in claimed.run.span:
            raise errors.JobFailed("block 9 is too much")

    quick = Policy(backoff_s=0.01, backoff_s_max=0.02)
    async with crew(place, journal, toy.MOVES, BESIDE, policy=quick, work=fail) as made:
        failed = lambda: sum(one.outcome == "failed" for one in made.happened)  # noqa: E731
        await made.until(lambda: failed() == 5)
        await made.until()
        marks = await place.app_rows("SELECT * FROM {app}.indexing_checkpoints")
        assert {row["worker_name"]: row["block_number"] for row in marks} == {
            toy.MOVES.job: 8,
            BESIDE.job: 20,
        }
        (lease,) = await made.hands.leases.all()
        assert (lease.status, lease.attempt) == (Status.FAILED, 5)
        assert "too much" in (lease.error or "")
        told = await place.app_rows("SELECT * FROM {app}.indexing_errors WHERE severity = 'FATAL'")
        assert len(told) == 1 and "given up after 5 failures" in told[0]["message"]
        assert failed() == 5, "it is left alone"
    async with crew(place, journal, toy.MOVES, BESIDE, config="config-2") as made:
        assert await made.is_current() is False
        await made.until(lambda: bool(made.workers[0].seen and made.workers[0].seen[1].stale))


async def test_a_job_that_hangs_keeps_nobody_from_working_and_is_ended_in_time(
    place: Place,
) -> None:
    journal = Journal().commit(drawing("a", 1, 12)).finalize(1)
    never = threading.Event()

    def hang(claimed: Claimed) -> None:
        if claimed.run.job == toy.MOVES.job:
            never.wait(PATIENCE_S)

    def is_committed(made: Crew, number: int) -> bool:
        outcomes = (one for one in made.happened if one.outcome == "committed")
        return any(one.job == BESIDE.job and number in one.span for one in outcomes)

    async with crew(place, journal, toy.MOVES, BESIDE, work=hang) as made:
        await made.until(lambda: is_committed(made, 12))
        assert not any(one.job == toy.MOVES.job for one in made.happened), "it hangs still"
    # With a limit that a busy machine may let any run exceed, the others too.
    pace = Pace(follow_s=0.01, dispatch_s=0.05, run_s_max=0.4)
    slow = Policy(backoff_s=30)
    async with crew(place, journal, toy.MOVES, pace=pace, policy=slow, work=hang) as made:
        await made.until(lambda: bool(made.happened))
        (failed,) = made.happened
        assert (failed.job, failed.outcome) == (toy.MOVES.job, "failed")
        assert "took longer" in failed.detail
        assert made.executor.interrupted, "Spark was asked to stop"
    async with crew(place, journal, toy.MOVES, BESIDE, work=hang) as made:
        journal.commit(drawing("a", 13, 14))
        await made.until(lambda: is_committed(made, 14))
    never.set()


class Watchful(Policy):
    """Sees soon that a lease is lost, and loses none because a busy machine kept it waiting."""

    @property
    def renew_s(self) -> float:
        return 0.1


async def test_a_run_whose_lease_went_to_another_commits_nothing(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 3)).finalize(1)
    begun, going_on = threading.Event(), threading.Event()

    def wait(claimed: Claimed) -> None:
        if not begun.is_set():
            begun.set()
            going_on.wait(PATIENCE_S)

    policy = Watchful(lease_s=PATIENCE_S, backoff_s=0.01)
    async with crew(place, journal, toy.MOVES, policy=policy, work=wait) as made:
        await made.until(begun.is_set)
        (lease,) = await made.hands.leases.all()
        await place.app_rows(
            "UPDATE {app}.worker_leases SET token = nextval('{app}.lease_tokens'),"
            " leased_by = 'another', lease_expires_at = now() + interval '0.3 s'"
        )
        await made.until(lambda: any(one.outcome == "lost" for one in made.happened))
        assert made.executor.interrupted == [lease]
        going_on.set()
        await made.until(lambda: any(one.outcome == "committed" for one in made.happened))
        await made.require_exact()
    tokens = await place.app_rows("SELECT token FROM {app}.runs WHERE outcome = 'committed'")
    assert lease.token not in {row["token"] for row in tokens}


async def test_a_worker_whose_spark_is_gone_ends_and_counts_no_failure(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal().commit(drawing("a", 1, 3)).finalize(1)
    fail = Leases.fail

    async def fail_slowly(self: Leases, *given: Any, **named: Any) -> None:
        # The worker ends meanwhile, and must not leave the lease behind.
        await asyncio.sleep(0.2)
        await fail(self, *given, **named)

    monkeypatch.setattr(Leases, "fail", fail_slowly)

    def gone(claimed: Claimed) -> None:
        raise errors.SparkUnavailable("it went away")

    quick = Policy(backoff_s=0.01, backoff_s_max=0.02)
    with pytest.raises(errors.SparkUnavailable):
        async with crew(place, journal, toy.MOVES, policy=quick, work=gone) as made:
            await made.until(lambda: False)
    (lease,) = await made.hands.leases.all()
    assert (lease.status, lease.attempt) == (Status.FAILED, 0)
    async with crew(place, journal, toy.MOVES) as made:
        await made.until(lambda: any(one.outcome == "committed" for one in made.happened))
        await made.require_exact()


async def test_a_worker_that_stops_gives_back_what_it_has(place: Place) -> None:
    journal = Journal().commit(drawing("a", 1, 3)).finalize(1)
    begun, never = threading.Event(), threading.Event()

    def hang(claimed: Claimed) -> None:
        begun.set()
        never.wait(PATIENCE_S)

    async with crew(place, journal, toy.MOVES, work=hang) as made:
        await made.until(begun.is_set)
    never.set()
    assert [one.outcome for one in made.happened] == ["given_back"]
    async with crew(place, journal, toy.MOVES) as made:
        assert await made.hands.leases.all() == []
        await made.until()
        await made.require_exact()


async def test_a_commit_whose_answer_was_lost_is_in_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal().commit(drawing("a", 1, 3)).finalize(1)
    real, lost = Commits.commit, []

    async def deaf(self: Commits, run: Finished) -> Committed | Discarded:
        outcome = await real(self, run)
        if not lost:
            lost.append(outcome)
            raise errors.DatabaseUnavailable("the answer never came")
        return outcome

    monkeypatch.setattr(Commits, "commit", deaf)
    async with crew(place, journal, toy.BALANCES, toy.MOVES) as made:
        await made.until()
        await made.require_exact()
    assert isinstance(lost[0], Committed)
    assert "discarded" in {one.outcome for one in made.happened}, "the second one told"


async def test_a_worker_frozen_beyond_its_lease_writes_nothing_when_it_wakes(place: Place) -> None:
    chain = drawing("a", 1, 3)
    arguments = [place.dsn, place.name, str(place.folder), chain]
    frozen = subprocess.Popen(
        [sys.executable, "-m", "tests.lone_worker", *arguments],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert frozen.stdin is not None and frozen.stdout is not None
    try:
        said = (await asyncio.to_thread(frozen.stdout.readline)).split()
        assert said[0] == "computing"
        frozen.send_signal(signal.SIGSTOP)
        journal = Journal().commit(chain)
        policy = Policy(lease_s=lone_worker.LEASE_S, backoff_s=0.01)
        async with crew(place, journal, toy.MOVES, policy=policy) as made:
            await made.until(lambda: any(one.outcome == "committed" for one in made.happened))
            await made.require_exact()
            frozen.stdin.write("go on\n")
            frozen.stdin.flush()
            frozen.send_signal(signal.SIGCONT)
            ended = (await asyncio.to_thread(frozen.stdout.readline)).strip()
            assert ended in ("lost", "discarded")
            await made.require_exact()
    finally:
        frozen.kill()
        frozen.communicate()
    rows = await place.app_rows("SELECT token FROM {app}.runs WHERE outcome = 'committed'")
    assert int(said[1]) not in {row["token"] for row in rows}


class Crash(BaseException):
    """The end of whatever was being done, in the middle of it."""


class Crashes:
    """Ends a statement now and then, before it or after it, a bounded number of times."""

    def __init__(self, seed: int, count: int) -> None:
        self.dice = random.Random(seed)
        self.left = count
        self.in_s = self.dice.randint(5, 40)

    def __call__(self, point: str) -> None:
        self.in_s -= 1
        if self.in_s <= 0 and self.left:
            self.left -= 1
            self.in_s = self.dice.randint(5, 60)
            raise Crash(point)


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_workers_that_die_at_any_statement_leave_nothing_that_is_not_mended(
    place: Place, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    journal = Journal().commit(drawing("a", 1, 24)).finalize(8)
    crashes = Crashes(seed, 14)
    policy = Policy(lease_s=0.4, backoff_s=0.01, backoff_s_max=0.02)
    forks = iter((("b", 19), ("c", 15), ("d", 20)))
    deaths = 0
    while crashes.left:
        with contextlib.suppress(Crash):
            async with crew(place, journal, policy=policy, probe=crashes) as made:
                for dataset in toy.EVERY:
                    await made.hands.leases.release(dataset.job)
                letter, to = next(forks, ("", 0))
                if letter:
                    journal.unwind(to).commit(drawing(letter, to + 1, 25))
                await made.until(lambda: False)
        deaths += 1
        await place.close()
    assert deaths > 3
    async with crew(place, journal) as made:
        await made.until()
        await made.require_exact()


class Holding(Plain):
    """Holds a snapshot of the raw store while it computes."""

    async def execute(self, claimed: Claimed, in_thread: InThread) -> Finished:
        place = self.hands.place
        async with snapshot.hold(
            place.database(), place.name, holder="test", first=claimed.run.span.first
        ):
            return await super().execute(claimed, in_thread)


@pytest.mark.parametrize("fault", ["hangs", "throws"])
async def test_raw_ingestion_never_waits_for_a_job(place: Place, fault: str) -> None:
    """I7: blocks and forks are stored while a job hangs in the middle of reading, or throws."""
    tree = Tree(Knobs(density=2, finality_lag=6))
    tree.extend(5)
    store = place.store(chain=place.chain(finality_depth_min=6))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*(tree.at(number) for number in range(6)), head=tree.head))
    journal = Journal().commit(drawing("a", 1, 5)).finalize(1)
    begun, never = threading.Event(), threading.Event()

    def misbehave(claimed: Claimed) -> None:
        begun.set()
        if fault == "throws":
            raise errors.JobFailed("no")
        never.wait(PATIENCE_S)

    async with crew(place, journal, toy.MOVES, work=misbehave, executor=Holding) as made:
        await made.until(begun.is_set)
        for number in range(20):
            if number % 5 == 4:
                movement = tree.fork(depth=3, length=4, style=Style.REPLACED)
                ancestor = tree.at(movement.removed[-1].number - 1)
                assert ancestor is not None
                await store.unwind(ref(ancestor), tip=ref(movement.head))
            else:
                movement = tree.extend(1)
            # Half as long as the job hangs at most.
            async with asyncio.timeout(PATIENCE_S / 2):
                await store.commit(batch(*movement.added, head=tree.head, finalized=tree.finalized))
        assert (await store.state()).position == ref(tree.head)
        if fault == "hangs":
            assert made.happened == [], "the job is still at it"
        never.set()
