"""Proves that what is computed from contract reads equals a full computation (I1), through forks
that put other contracts at the same addresses, nodes that lag, fail and forget, and deaths.

Method: seeded worlds (reads_world.py). SEED repeats one run; RUNS and FIRST choose how many (one in
80 of the raw ones) and from where, MOVES how long each is (10 to one).
"""

from __future__ import annotations

import os

import pytest

from tests.places import Place
from tests.simulation.reads_world import ReadsWorld

RUNS = int(os.environ.get("RUNS", "500")) // 80
FIRST = int(os.environ.get("FIRST", "1"))
MOVES = 10 * int(os.environ.get("MOVES", "6"))
SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else list(range(FIRST, FIRST + RUNS))


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_contracts_were_asked_equals_a_full_computation_after_every_movement(
    seed: int, place: Place
) -> None:
    world = ReadsWorld(seed, place)
    try:
        await world.run(MOVES)
    except BaseException as error:
        again = f"SEED={seed} MOVES={MOVES // 10} pytest tests/simulation/test_reads.py"
        error.add_note(f"reproduce: {again}")
        error.add_note("\n".join(world.told[-40:]))
        raise
    assert world.committed and world.forks, "hardly anything happened"
