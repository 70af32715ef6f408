"""Goal: a Spark that does not start is tried again, then told; nobody who stops waits for it.

Method: the part of the commands that works for chains, with a Spark that a test makes fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from unfork import wiring, wiring_jobs
from unfork.cli import working
from unfork.cli.working import WorkTally
from unfork.config import tree
from unfork.config.load import Loaded
from unfork.errors import SparkUnavailable

LOADED = Loaded(config=tree.Config(chains=(tree.Chain(name="one"),)), file=None)
NOWHERE = wiring.Urls(raw="postgresql://nowhere", app="postgresql://nowhere")


async def worked(tally: WorkTally, stopping: asyncio.Event) -> None:
    await working.work(LOADED, NOWHERE, LOADED.config.chains, [tally], stopping)


async def test_a_spark_that_never_starts_is_told_after_some_tries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    @asynccontextmanager
    async def failing(loaded: Loaded) -> AsyncIterator[None]:
        tried.append(loaded)
        raise SparkUnavailable("no port is free")
        yield

    monkeypatch.setattr(wiring_jobs, "computing", failing)
    monkeypatch.setattr(working, "SPARK_AGAIN_S", 0.001)
    tally = WorkTally(chain="one")
    with pytest.raises(SparkUnavailable):
        await worked(tally, asyncio.Event())
    assert len(tried) == working.STARTS_MAX
    assert tally.line() == "one: jobs: no port is free"


async def test_whoever_is_told_to_stop_does_not_wait_for_spark_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, stopping = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow(loaded: Loaded) -> AsyncIterator[None]:
        begun.set()
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(wiring_jobs, "computing", slow)
    tally = WorkTally(chain="one")
    working_ = asyncio.create_task(worked(tally, stopping))
    await begun.wait()
    assert tally.line() == "one: jobs: starting Spark"
    stopping.set()
    async with asyncio.timeout(60):
        await working_
    assert tally.document() == []
