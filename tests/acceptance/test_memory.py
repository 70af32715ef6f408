"""Goal: a follower's memory does not grow with the blocks it has followed (I11).

Method: the benchmark's own run, a real follower in a process of its own that catches up and then
meets forks at the head, over a few thousand blocks instead of a hundred thousand. What it holds in
the first third, where everything is warm after some batches, is compared with the last third.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

BLOCKS = 6_000
#: Megabytes that the allocator may move by. A leak of 5 kB a block, half of what one takes, shows.
GROWTH_MB_MAX = 20.0
PEAK_MB_MAX = 300.0


@pytest.mark.timeout(900)
@pytest.mark.postgres
def test_the_memory_of_a_follower_does_not_grow_with_the_blocks_it_followed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", "--blocks", str(BLOCKS), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    measures = {one["name"]: one["value"] for one in json.loads(done.stdout)["measures"]}
    assert measures["growth, first to last third"] < GROWTH_MB_MAX, done.stderr
    assert measures[f"peak memory over {BLOCKS:,} blocks"] < PEAK_MB_MAX, done.stderr
