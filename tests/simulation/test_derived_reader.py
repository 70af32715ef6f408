"""Proves that a reader who polls constantly sees only states that the chain held, while jobs and
forks really race each other (I1, I2, I3, I6).

Method: the chain of a simulated world (derived_world.py) moves, rows are corrected, and three real
workers with toy jobs follow, plan, run, commit, throw and die (derived_crew.py), all at once, in
whatever order the machine gives. A thread takes snapshots as fast as it can and compares every
dataset with a plain computation over the chain that the snapshot is of. In the end everything comes
to rest by itself and must be exact. RUNS, FIRST and MOVES choose how many worlds, and how long.
"""

from __future__ import annotations

import asyncio
import os
import threading
from functools import partial

import pytest

from tests import toy
from tests.places import Place
from tests.simulation.derived_crew import Crew, correct, until
from tests.simulation.derived_world import DerivedWorld

RUNS = int(os.environ.get("RUNS", "500")) // 250
FIRST = int(os.environ.get("FIRST", "1"))
MOVEMENTS = 3 * int(os.environ.get("MOVES", "6"))
#: Movements after which a reader that hardly saw anything never will.
MOVEMENTS_MAX = 20 * MOVEMENTS
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else list(range(FIRST, FIRST + RUNS))


class Watcher(threading.Thread):
    """A reader with a connection of its own."""

    def __init__(self, world: DerivedWorld) -> None:
        super().__init__(daemon=True)
        self.checks = world.reader(by_build=True)
        self.stopping = threading.Event()
        self.wrong: AssertionError | None = None

    @property
    def has_seen_much(self) -> bool:
        """Whether it saw enough to tell a right state from a wrong one."""
        marks = {name: len(found) for name, found in self.checks.seen.watermarks.items()}
        return marks.get("moves", 0) >= 3 and sum(marks.values()) >= 15

    def run(self) -> None:
        while not self.stopping.is_set() and self.wrong is None:
            try:
                self.checks.compare()
            except AssertionError as error:
                self.wrong = error
        self.checks.close()


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_reader_that_polls_constantly_while_jobs_and_forks_race(
    seed: int, place: Place
) -> None:
    world = DerivedWorld(seed, place)
    crew = Crew(world)
    try:
        await world.begin()
        await watched(world, crew)
        world.checks.exact(world.contents)
    except BaseException as error:
        error.add_note("\n".join(world.told[-60:]))
        raise
    finally:
        world.close()


async def watched(world: DerivedWorld, crew: Crew) -> None:
    """Lets everything race while somebody reads."""
    watcher = Watcher(world)
    watcher.start()
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                tasks.create_task(crew.live(f"worker-{number}"))
            try:
                await moved(world, crew, watcher)
            finally:
                crew.stopping.set()
    finally:
        watcher.stopping.set()
        watcher.join()
    if watcher.wrong is not None:
        raise watcher.wrong


async def moved(world: DerivedWorld, crew: Crew, watcher: Watcher) -> None:
    """Moves the chain and corrects rows, then waits until everything has come to rest.

    How much there is to see of that is up to the machine: a slow one takes more movements.
    """
    hands = world.workers[0]
    for count in range(MOVEMENTS_MAX):
        has_raced = watcher.has_seen_much and world.forks + crew.deaths > 1
        if watcher.wrong is not None or (count >= MOVEMENTS and has_raced):
            break
        wanted = sum(crew.outcomes.values()) + 3
        move = world.dice.choices([world.grow, world.fork, None], [5, 3, 2])[0]
        await (correct(world, hands) if move is None else move())
        # Something is to be there that the next movement can take away.
        await until(partial(crew.has_ended, wanted), 1.0)
    else:
        raise AssertionError(f"hardly anything raced: {watcher.checks.seen}, {crew.deaths} deaths")
    await world.calm()
    crew.let_live()
    for dataset in toy.EVERY:
        await hands.leases.release(dataset.job)
    head = await world.raw_chain()
    is_there = await until(lambda: world.checks.position() == head[-1] and crew.rests(), 120.0)
    plans = [worker.seen[1] for worker in crew.workers.values() if worker.seen]
    assert is_there, f"it never comes to rest: {plans}"
