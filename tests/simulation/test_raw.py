"""Proves that raw tables equal the canonical chain after every movement of the head, on hundreds of
seeded worlds with forks of every style, failing nodes, dying processes and an unreliable database.

Method: see world.py. `SEED=… make simulate` (or the same variable for pytest) repeats one run;
RUNS and FIRST choose how many and from where. Seeds that found bugs are kept in KEPT.
"""

from __future__ import annotations

import os

import pytest

from tests.places import Place
from tests.simulation.world import World

RUNS = int(os.environ.get("RUNS", "500"))
FIRST = int(os.environ.get("FIRST", "1"))
MOVES = int(os.environ.get("MOVES", "6"))
#: Runs in one test, so that the report stays short.
CHUNK = 20

#: Seeds that once found a bug, rerun for ever.
KEPT = (77,)


def _chunks() -> list[range]:
    if "SEED" in os.environ:
        seed = int(os.environ["SEED"])
        return [range(seed, seed + 1)]
    last = FIRST + RUNS
    return [range(first, min(first + CHUNK, last)) for first in range(FIRST, last, CHUNK)]


@pytest.mark.parametrize("seeds", _chunks(), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}")
async def test_raw_tables_equal_the_canonical_chain_after_every_movement(
    seeds: range, place: Place
) -> None:
    for seed in seeds:
        await _live(seed, place)


@pytest.mark.parametrize("seed", KEPT)
async def test_seeds_that_found_bugs_stay_fixed(seed: int, place: Place) -> None:
    await _live(seed, place)


async def _live(seed: int, place: Place) -> None:
    world = World(seed, place)
    try:
        await world.run(MOVES)
    except BaseException as error:
        error.add_note(f"reproduce: SEED={seed} pytest tests/simulation/test_raw.py")
        error.add_note("\n".join(world.told[-60:]))
        raise
    await place.wipe()
