"""Proves that a running devnet keeps its beat, announces what it does and ends when told.

Method: a seeded tree behind a real server, moved on a virtual clock; a WebSocket client hears it.
"""

from __future__ import annotations

import asyncio

import aiohttp
import orjson
import pytest

from tests.unit.devnet.asking import body
from unfork.clock import Clock
from unfork.devnet import run
from unfork.devnet.knobs import Knobs
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import serve
from unfork.devnet.tree import Movement, Tree

#: Far above anything that is not stuck.
PATIENCE_S = 10.0


class Beats(Clock):
    """A clock on which sleeping takes no time and is written down."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)


async def test_it_runs_to_a_block_and_announces_every_block_that_was_added() -> None:
    tree = Tree(Knobs(seed=2, fork_rate=0.3, finality_lag=20))
    server = await serve(Rpc(tree))
    movements: list[Movement] = []
    clock = Beats()
    async with aiohttp.ClientSession() as client, client.ws_connect(server.url_ws) as socket:
        await socket.send_bytes(body("eth_subscribe", "newHeads"))
        await asyncio.wait_for(socket.receive_str(), PATIENCE_S)

        await run.run(
            tree, server, block_time_ms=250, until_block=40, clock=clock, moved=movements.append
        )

        added = [data(block.hash) for movement in movements for block in movement.added]
        heard = []
        while len(heard) < len(added):
            note = orjson.loads(await asyncio.wait_for(socket.receive_str(), PATIENCE_S))
            heard.append(note["params"]["result"]["hash"])
    await server.close()
    assert tree.head.number >= 40 and heard == added
    assert any(movement.removed for movement in movements), "forks were among it"
    assert set(clock.sleeps) == {0.25} and len(clock.sleeps) == len(movements)


async def test_it_runs_until_it_is_cancelled() -> None:
    tree = Tree(Knobs(seed=2))
    server = await serve(Rpc(tree))
    reached = asyncio.Event()

    def moved(movement: Movement) -> None:
        if movement.head.number >= 5:
            reached.set()

    running = asyncio.create_task(run.run(tree, server, block_time_ms=0, moved=moved))
    await asyncio.wait_for(reached.wait(), PATIENCE_S)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    await server.close()


async def test_a_beat_that_was_missed_is_not_made_up_for() -> None:
    tree = Tree(Knobs(seed=2, fork_rate=0))
    server = await serve(Rpc(tree))
    clock = Beats()

    def moved(movement: Movement) -> None:
        if movement.head.number == 2:
            clock.seconds += 1.0

    await run.run(tree, server, block_time_ms=100, until_block=5, clock=clock, moved=moved)

    await server.close()
    assert clock.sleeps == pytest.approx([0.1, 0.1, 0.0, 0.1, 0.1])
