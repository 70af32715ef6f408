"""Goal: what is scheduled runs once a moment, by one worker of many, and survives one that dies.

Method: tasks that count, time that the test moves, a real Postgres, several workers at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.batches import batch
from tests.places import Place
from tests.workers import TestTime
from unfork import errors, wiring
from unfork.app.indexing_errors import IndexingErrors
from unfork.config import tree
from unfork.config.jobs import Schedule
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.jobs.lease import Policy
from unfork.jobs.tasks import Tasks

HOURLY = Schedule(task="verify", cron="0 * * * *")
DAILY = Schedule(task="maintenance", cron="30 2 * * *")
NOON = datetime(2024, 6, 1, 12, 10, tzinfo=UTC)


@dataclass
class Counting:
    """A task that counts, and fails or waits when it is told to."""

    times: int = 0
    fails: list[Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self) -> Mapping[str, Any]:
        self.times += 1
        self.begun.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise self.fails.pop(0)
        return {"times": self.times}


def scheduled(
    place: Place, time: TestTime, task: Counting, *schedules: Schedule, worker: str = "worker-1"
) -> Tasks:
    return Tasks(
        place.name,
        place.app_database(),
        schedules or (HOURLY,),
        {"verify": task, "maintenance": task},
        worker=worker,
        policy=Policy(lease_s=60, backoff_s=10),
        now=time,
    )


async def test_a_task_counts_from_when_it_is_first_seen_and_runs_once_a_moment(
    any_place: Place,
) -> None:
    time, task = TestTime(NOON), Counting()
    tasks = scheduled(any_place, time, task)
    assert await tasks.step() is None
    time.pass_s(49 * 60)
    assert await tasks.step() is None
    time.pass_s(2 * 60)
    done = await tasks.step()
    assert done is not None
    assert (done.task, done.moment) == ("verify", datetime(2024, 6, 1, 13, tzinfo=UTC))
    assert done.result == {"times": 1}
    assert await tasks.step() is None
    last = (await tasks.last())[0]
    assert (last["status"], last["result"]) == ("COMPLETED", {"times": 1})


async def test_moments_that_were_missed_are_made_up_for_once(place: Place) -> None:
    time, task = TestTime(NOON), Counting()
    tasks = scheduled(place, time, task)
    await tasks.step()
    time.pass_s(7 * 3600)
    done = await tasks.step()
    assert done is not None and done.moment == datetime(2024, 6, 1, 19, tzinfo=UTC)
    assert await tasks.step() is None
    assert task.times == 1


async def test_of_many_workers_one_runs_a_moment(place: Place) -> None:
    time, task = TestTime(NOON), Counting()
    team = [scheduled(place, time, task, worker=f"worker-{n}") for n in range(4)]
    await asyncio.gather(*(one.step() for one in team))
    time.pass_s(3600)
    done = await asyncio.gather(*(one.step() for one in team))
    assert task.times == 1
    assert [one is not None for one in done].count(True) == 1


async def test_a_task_that_fails_is_tried_again_after_a_pause_and_told(place: Place) -> None:
    time, task = TestTime(NOON), Counting(fails=[ValueError("broken"), ValueError("broken")])
    tasks = scheduled(place, time, task)
    book = IndexingErrors(place.name, place.app_database(), place.payloads())
    await tasks.step()
    time.pass_s(3600)
    failed = await tasks.step()
    assert failed is not None and failed.error == "broken"
    assert await tasks.step() is None, "its pause is not over"
    time.pass_s(11)
    assert await tasks.step() is not None
    told = await book.unresolved()
    assert [(row["worker_name"], row["occurrences"]) for row in told] == [("schedule:verify", 2)]
    time.pass_s(21)
    done = await tasks.step()
    assert done is not None and done.result == {"times": 3}
    assert await book.unresolved() == []


async def test_a_database_that_is_away_does_not_count_and_a_broken_task_rests_until_the_next_moment(
    place: Place,
) -> None:
    time = TestTime(NOON)
    away: list[Exception] = [errors.DatabaseUnavailable() for _ in range(6)]
    task = Counting(fails=[*away, *(ValueError("broken") for _ in range(5))])
    tasks = scheduled(place, time, task)
    await tasks.step()
    time.pass_s(3600)
    for _ in range(11):
        assert await tasks.step() is not None
        time.pass_s(200)
    assert (await tasks.last())[0]["attempt"] == 5
    assert await tasks.step() is None
    time.pass_s(3600)
    done = await tasks.step()
    assert done is not None and done.error == ""


async def test_a_worker_that_is_gone_loses_its_task_and_cannot_end_it_any_more(
    place: Place,
) -> None:
    time = TestTime(NOON)
    stuck = Counting(gate=asyncio.Event())
    late = scheduled(place, time, stuck, worker="late")
    task = Counting()
    other = scheduled(place, time, task, worker="other")
    await late.step()
    time.pass_s(3600)
    running = asyncio.create_task(late.step())
    await stuck.begun.wait()
    assert await other.step() is None, "somebody has it"
    time.pass_s(61)
    assert await other.step() is None, "what expired has a pause too"
    time.pass_s(11)
    done = await other.step()
    assert done is not None and done.result == {"times": 1}
    assert stuck.gate is not None
    stuck.gate.set()
    lost = await running
    assert lost is not None and (lost.result, lost.error) == (None, "lease lost")
    last = (await other.last())[0]
    assert (last["leased_by"], last["status"]) == ("other", "COMPLETED")


async def test_tasks_of_several_schedules_do_not_wait_for_each_other(place: Place) -> None:
    time, task = TestTime(NOON), Counting()
    tasks = scheduled(place, time, task, HOURLY, DAILY)
    await tasks.step()
    time.pass_s(24 * 3600)
    ran = [await tasks.step() for _ in range(3)]
    assert [one and one.task for one in ran] == ["maintenance", "verify", None]


async def test_what_schedules_may_name_does_what_its_command_does(
    place: Place, tmp_path: Path
) -> None:
    tree_ = Tree(Knobs(seed=1, density=3, proven=True))
    tree_.extend(8)
    blocks = [block for number in range(9) if (block := tree_.at(number)) is not None]
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*blocks))
    config = tree.Config(data_dir=str(tmp_path), chains=(place.chain(),))
    where = wiring.Urls(raw=place.dsn, app=place.dsn)
    doing = wiring.scheduled(config, where, config.chains[0])
    time = TestTime(NOON)
    schedules = [Schedule(task=task, cron="0 * * * *") for task in doing]
    tasks = Tasks(place.name, place.app_database(), schedules, doing, worker="one", now=time)
    await tasks.step()
    time.pass_s(3600)
    done = {one.task: one for _ in range(3) if (one := await tasks.step()) is not None}
    assert done["verify"].result == {"blocks": 9, "proven": True}
    assert done["repair"].result == {"mended": 0, "left": 0}
    assert done["maintenance"].result is not None and done["maintenance"].result["builds"] == 0
    # A block that is no longer what it was is told, loudly.
    await place.rows("UPDATE {raw}.blocks SET gas_used = gas_used + 1 WHERE number = 4")
    await place.rows("DELETE FROM {raw}.tx_lookup")
    time.pass_s(3600)
    done = {one.task: one for _ in range(3) if (one := await tasks.step()) is not None}
    assert "1 of 9 blocks" in done["verify"].error
    assert done["repair"].result is not None and done["repair"].result["mended"] > 0


async def test_a_loop_of_tasks_ends_when_it_is_told_to(place: Place) -> None:
    tasks = Tasks(place.name, place.app_database(), (HOURLY,), {}, worker="worker-1")
    stopping = asyncio.Event()
    working = asyncio.create_task(tasks.work(stopping))
    async with asyncio.timeout(20):
        while not await tasks.last():
            await asyncio.sleep(0)
        stopping.set()
        await working
