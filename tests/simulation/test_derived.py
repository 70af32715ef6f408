"""Proves that derived datasets equal a full computation after every movement (I1, I2, I3, I6, I8).

Method: seeded worlds (derived_world.py) with random forks, late and parallel workers, backfills
that race live runs, corrections, staged rows that vanish, an operator who goes below the floor, and
deaths at any statement; raw and app in one server, and in two. SEED repeats one run; RUNS and FIRST
choose how many (one in 80 of the raw ones) and from where, MOVES how long each is (16 to one).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable

import pytest

from tests import toy
from tests.places import Place, Server
from tests.simulation.derived_world import DerivedWorld
from unfork.app.derived import DerivedDataset

RUNS = int(os.environ.get("RUNS", "500")) // 80
FIRST = int(os.environ.get("FIRST", "1"))
MOVES = 16 * int(os.environ.get("MOVES", "6"))
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else list(range(FIRST, FIRST + RUNS))

#: Seeds that once found a bug, with as many moves as it took; rerun for ever.
KEPT = ((2027, 160),)


@pytest.mark.parametrize("seed", SEEDS)
async def test_derived_datasets_equal_a_full_computation_after_every_movement(
    seed: int, place: Place
) -> None:
    world = await _live(seed, place)
    assert world.committed + world.discarded > 5, "hardly anything was committed"


@pytest.mark.parametrize("seed", [*(seed + 200_000 for seed in SEEDS[:2]), 200_007])
async def test_what_looks_up_earlier_blocks_equals_a_full_computation_too(
    seed: int, place: Place
) -> None:
    world = await _live(seed, place, datasets=(toy.MOVES, toy.SEEN))
    assert "seen" in world.checks.seen.watermarks, "nothing was looked up"


@pytest.mark.parametrize(("seed", "moves"), KEPT)
async def test_seeds_that_found_bugs_stay_fixed(seed: int, moves: int, place: Place) -> None:
    await _live(seed, place, moves)


async def _live(
    seed: int, place: Place, moves: int = MOVES, datasets: tuple[DerivedDataset, ...] = ()
) -> DerivedWorld:
    world = DerivedWorld(seed, place, *datasets)
    try:
        await world.run(moves)
    except BaseException as error:
        again = f"SEED={seed} MOVES={moves // 16} pytest tests/simulation/test_derived.py"
        error.add_note(f"reproduce: {again}")
        error.add_note("\n".join(world.told[-40:]))
        raise
    return world


@pytest.fixture
async def split_place(servers: Callable[[str], Server]) -> AsyncIterator[Place]:
    """A chain whose raw side is in one server and whose app side is in another."""
    raw, app = servers("embedded"), servers("machine")
    number = next(raw.numbers)
    place = Place(raw.dsn, f"split{number}", raw.folder / f"split{number}", app_dsn=app.dsn)
    await place.migrate()
    yield place
    await place.wipe()
    await place.rows("DROP SCHEMA {raw} CASCADE")
    await place.app_rows("DROP SCHEMA {app} CASCADE")


@pytest.mark.parametrize("seed", [seed + 100_000 for seed in SEEDS[:2]])
async def test_the_same_holds_with_raw_and_app_in_different_servers(
    seed: int, split_place: Place
) -> None:
    world = await _live(seed, split_place)
    schemas = await split_place.rows(
        f"SELECT nspname FROM pg_namespace WHERE nspname = '{split_place.app}'"
    )
    assert schemas == [], "the raw server knows nothing of the app side"
    assert world.committed
