"""Goal: a devnet that is started again goes on with the very same chain.

Method: a real one is stepped, closed and started anew over the same file; refs are compared.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from unfork.config.tree import Devnet
from unfork.devnet.live import Live
from unfork.errors import Misconfigured

FORKS = {"fork_styles": ("kept",)}
QUICK = Devnet(block_time_ms=0, fork_rate=0.3, density=1, proven=False, hostile=False)


async def stepped(place: Path, steps: int, config: Devnet = QUICK) -> Live:
    """A devnet that has taken some steps more than at its last end."""
    live = await Live.start(config, place=place)
    for _ in range(steps):
        live.step()
    await live.close()
    return live


async def test_a_devnet_started_again_continues_the_same_chain(tmp_path: Path) -> None:
    place = tmp_path / "data" / "devnet.json"
    whole = await stepped(tmp_path / "other.json", 90)
    await stepped(place, 60)
    again = await stepped(place, 30)
    assert again.steps == 90
    assert again.tree.head.ref == whole.tree.head.ref
    assert sum(whole.forks.values()) > 0, "the chain forked"


async def test_a_place_is_written_before_its_step_is_shown(tmp_path: Path) -> None:
    place = tmp_path / "devnet.json"
    live = await Live.start(QUICK, place=place)
    seen = []

    def announced(movement: object) -> None:
        seen.append(json.loads(place.read_text())["steps"])

    live.server.announce = announced  # type: ignore[method-assign]
    live.step()
    live.step()
    await live.close()
    assert seen == [1, 2]


async def test_the_place_of_another_chain_is_refused_and_kept(tmp_path: Path) -> None:
    place = tmp_path / "devnet.json"
    await stepped(place, 3)
    before = place.read_text()
    for other in ({"seed": 2}, {"fork_rate": 0.2}, {"finality_lag": 9}, {"density": 2}, FORKS):
        with pytest.raises(Misconfigured, match="unfork reset --chain devnet"):
            await Live.start(QUICK.model_copy(update=other), place=place)
    assert place.read_text() == before
    slower = await stepped(place, 0, QUICK.model_copy(update={"block_time_ms": 5}))
    assert slower.steps == 3


async def test_the_place_of_a_release_that_made_other_blocks_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "devnet.json"
    await stepped(place, 5)
    document = json.loads(place.read_text())
    place.write_text(json.dumps({**document, "from": "00" * 32}))
    with pytest.raises(Misconfigured, match="another release"):
        await Live.start(QUICK, place=place)


async def test_a_port_that_is_taken_is_told_with_a_way_out() -> None:
    first = await Live.start(QUICK)
    port = int(first.server.url_http.rpartition(":")[2])
    with pytest.raises(Misconfigured, match=r"devnet\.port"):
        await Live.start(QUICK.model_copy(update={"port": port}))
    await first.close()


async def test_a_damaged_place_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "devnet.json"
    place.write_text('{"chain": ')
    with pytest.raises(Misconfigured, match="damaged"):
        await Live.start(QUICK, place=place)


async def test_running_stops_at_a_block_and_keeps_its_place(tmp_path: Path) -> None:
    place = tmp_path / "devnet.json"
    live = await Live.start(QUICK, place=place)
    await asyncio.wait_for(live.run(until_block=20), 60)
    await live.close()
    assert live.tree.head.number >= 20
    again = await stepped(place, 0)
    assert again.tree.head.ref == live.tree.head.ref
