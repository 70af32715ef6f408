"""Goal: a worker that stands still beyond its lease, in the middle of a run, writes nothing (I5).

Method: the real command works with a Spark of its own on a job that says when its tasks begin and
waits for a word; the command and its Java are frozen with SIGSTOP until the lease is over; another
worker does the blocks, and a fork comes. Then they wake, finish what they were at, and try.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.process import environment
from tests.engines import Engine, engine
from tests.sparks import Chain
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style

#: Seconds that anything may take here.
PATIENCE_S = 240.0

WAITING = """
import pathlib
import time

FOLDER = pathlib.Path({folder!r})


def held(blocks):
    rows = blocks.selectExpr("number AS block_number", "hash AS block_hash")
    return rows.mapInArrow(when_told, "block_number bigint, block_hash binary")


def when_told(batches):
    (FOLDER / "begun").touch()
    while not (FOLDER / "go").exists():
        time.sleep(0.02)
    yield from batches
"""


async def until(is_so: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            assert process is None or process.poll() is None, process.communicate()
            await asyncio.sleep(0.02)


async def taken_over(made: Engine) -> None:
    """The worker of the engine does what there is, as soon as nobody else has it."""
    async with asyncio.timeout(PATIENCE_S):
        while not any(one.outcome == "committed" for one in made.happened):
            await made.worker.reap()
            await made.settle()
            await asyncio.sleep(0.05)


async def rows(made: Engine) -> list[tuple[int, bytes]]:
    found = await made.rows("held", "block_number")
    return [(row["block_number"], row["block_hash"]) for row in found]


def expected(made: Engine) -> list[tuple[int, bytes]]:
    return [(block.number, block.hash) for block in made.blocks]


@pytest.mark.postgres
async def test_a_command_frozen_in_the_middle_of_a_run_writes_nothing_when_it_wakes(
    chain: Chain, tmp_path: Path
) -> None:
    folder = chain.file.parent
    (folder / "waiting.py").write_text(WAITING.format(folder=str(folder)))
    config = {
        "jobs": [{"name": "held", "input_datasets": ["blocks"], "transform": "waiting:held"}],
        "spark": {"master": "local[1]", "driver_memory": "512m"},
        "data_dir": str(tmp_path),
    }
    async with engine(chain, Knobs(density=1), config=config) as made:
        await made.grow(4)
        frozen = subprocess.Popen(
            [sys.executable, "-m", "unfork", "work", "--until-idle", "0.5", "--json"],
            cwd=folder,
            env=environment({"LEASE_S": "3"}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            await until((folder / "begun").exists, frozen)
            os.killpg(frozen.pid, signal.SIGSTOP)
            (lease,) = await chain.place.app_rows("SELECT * FROM {app}.worker_leases")
            (folder / "go").touch()
            await taken_over(made)
            await made.fork(depth=2, length=1, style=Style.REPLACED)
            await made.settle()
            assert await rows(made) == expected(made)
            os.killpg(frozen.pid, signal.SIGCONT)
            said, told = await asyncio.to_thread(frozen.communicate, timeout=PATIENCE_S)
        finally:
            if frozen.poll() is None:
                os.killpg(frozen.pid, signal.SIGKILL)
                frozen.communicate()
        assert frozen.returncode == 0, told
        (job,) = json.loads(said)["chains"][chain.place.name]
        assert (job["rows"], job["behind"]) == (0, 0)
        assert await rows(made) == expected(made)
    runs = await chain.place.app_rows(
        "SELECT token, worker_name FROM {app}.runs WHERE outcome = 'committed'"
    )
    assert runs and {run["worker_name"] for run in runs} == {"worker-0"}
    assert lease["token"] not in {run["token"] for run in runs}
