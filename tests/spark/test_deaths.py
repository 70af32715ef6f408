"""Goal: wherever in a run on Spark a worker dies, the next one goes on, and rows are exact (I1).

Method: the real engine computes on a real Spark; a worker is killed at every step of a run and of
its commit, run after run, whether the driver reads or tasks read and stage, for rows of blocks, for
partitions and for merges, with forks between; what Spark was asked for by the dead goes on. At the
end every dataset is what plain Python makes of the chain. `make deaths` goes on at random moments.
"""

from __future__ import annotations

import logging
import os
import random

import pytest

from tests.engines import Engine, engine
from tests.mortals import OF_DRIVER, OF_TASKS, READ, Mortals
from tests.sparks import Chain
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style

DEATHS = int(os.environ.get("DEATHS", "0"))
FIRST = int(os.environ.get("FIRST", "1"))

JOBS = ("token_transfers", "token_balances", "daily_summary")
#: Few blocks are many, so that tasks read and stage them.
SMALL = {"planning": {"range_size": 16, "live_blocks_max": 4}}
KNOBS = Knobs(density=3, hostile=True, finality_lag=4, block_time_s=7200)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """A death is not worth a word here."""
    caplog.set_level(logging.CRITICAL)


async def require_clean(made: Engine) -> None:
    """Nothing of the dead is left, and every dataset is exact."""
    await made.check()
    assert await made.watermarks() == dict.fromkeys(JOBS, made.tree.head.number)
    left = await made.chain.place.app_rows(
        "SELECT relname FROM pg_class WHERE relname LIKE 'staging%' AND relkind = 'r'"
        " AND relnamespace = '{app}'::regnamespace".replace("{app}", made.chain.place.app)
    )
    assert [row["relname"] for row in left if row["relname"] != "staging"] == []
    assert await made.chain.place.app_rows("SELECT FROM {app}.worker_leases") == []


async def test_a_worker_that_dies_at_any_step_of_a_run_is_made_up_for_by_the_next(
    chain: Chain,
) -> None:
    async with engine(chain, KNOBS, workers=0, config=SMALL, finality_depth_min=4) as made:
        mortals = Mortals(made)
        await made.grow(16)
        for job in JOBS:
            await mortals.die(job, at=OF_TASKS)
            assert not await mortals.live(job)
        await made.check()
        for job in JOBS[:2]:
            await made.fork(depth=2, length=3, style=Style.MOVED)
            await mortals.die(job, at=(READ,))
            await made.fork(depth=1, length=1, style=Style.DROPPED)
            await mortals.die(job, at=OF_DRIVER)
        assert not await mortals.live(*JOBS)
        await mortals.ended()
        assert not await mortals.live(*JOBS)
        await require_clean(made)


@pytest.mark.skipif(not DEATHS, reason="make deaths runs it")
@pytest.mark.parametrize("seed", range(FIRST, FIRST + max(DEATHS, 1)))
async def test_workers_that_die_at_random_steps_while_the_chain_moves(
    chain: Chain, seed: int
) -> None:
    dice = random.Random(seed)
    async with engine(chain, KNOBS, workers=0, config=SMALL, finality_depth_min=4) as made:
        mortals = Mortals(made)
        await made.grow(12)
        for _ in range(30):
            floor = (await made.store.state()).floor
            loose = made.tree.head.number - (floor.number if floor is not None else 0)
            if dice.random() < 0.3 or not loose:
                await made.grow(dice.randint(1, 6))
            elif dice.random() < 0.5:
                depth = dice.randint(1, loose)
                length = dice.randint(0, depth + 2)
                await made.fork(depth=depth, length=length, style=dice.choice(list(Style)))
            # A moment that does not come is a worker that lives.
            jobs = dice.sample(JOBS, dice.randint(1, 3))
            await mortals.live(*jobs, death=dice.choice(OF_TASKS))
        assert not await mortals.live(*JOBS)
        await mortals.ended()
        assert not await mortals.live(*JOBS)
        await require_clean(made)
