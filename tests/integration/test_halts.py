"""Goal: a fork while down is found at once; one that must not be followed stops the process with
its own exit code and the data untouched, and an operator's word lets it go on.

Method: the real commands against a chain that forks deeper and deeper. Everything that is stored is
read before and after a halt.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from tests.integration import stored
from tests.integration.live_chain import Follow, LiveChain, live
from tests.integration.unfork_process import Workplace
from tests.places import Server
from unfork.devnet.knobs import Knobs

#: Columns of the chain row that a start may change: they hold no data of the chain.
BOOKKEEPING = ("token", "updated_at", "head_number", "head_hash", "finalized_seen")


async def until_caught_up(workplace: Workplace, follow: Follow) -> None:
    """Follows to the head and ends cleanly."""
    process = await workplace.start()
    try:
        await follow.caught_up(process)
        process.signal(signal.SIGTERM)
        assert await process.wait(60.0) == 0
    finally:
        await process.kill()
    await follow.is_exact()


def untouched(held: stored.Stored) -> dict[str, list[dict[str, Any]]]:
    """Everything that a halt must leave as it was, in a fixed order."""
    tables = dict(held.tables)
    kept = {key: value for key, value in held.chain.items() if key not in BOOKKEEPING}
    tables["chain"] = [kept]
    return {name: sorted(rows, key=repr) for name, rows in tables.items()}


async def halts(workplace: Workplace, follow: Follow, *, exit_code: int, code: str) -> str:
    """Expects a run to halt with the data untouched; what it said."""
    before = untouched(await follow.read())
    process = await workplace.run(timeout_s=60.0)
    assert process.exit_code == exit_code, process.said()
    said = process.said() + process.out.read_text()
    assert code in said
    assert untouched(await follow.read()) == before
    return said


def placed(folder: Path, dsn: str, name: str, chain: LiveChain) -> tuple[Workplace, Follow]:
    settings = {"reorg_depth_max": 20, "finality_depth_min": 8}
    workplace = Workplace(folder, name, dsn, (chain.url,), settings=settings)
    return workplace, Follow(chain, dsn, name, workplace.payloads)


async def test_a_fork_while_down_is_found_at_once(postgres: Server, tmp_path: Path) -> None:
    async with live(Knobs(seed=4, finality_lag=None), blocks=60) as chain:
        workplace, follow = placed(tmp_path, postgres.dsn, "down", chain)
        await until_caught_up(workplace, follow)
        before = (await follow.read()).chain["seq"]
        chain.fork(depth=7, length=40)
        await until_caught_up(workplace, follow)
        journal = sorted((await follow.read()).tables["journal"], key=lambda row: row["seq"])
        first = journal[before]
        assert (first["kind"], first["first"], first["last"]) == ("unwind", 54, 60)


async def test_a_fork_while_down_under_a_new_finalized_block_is_an_ordinary_fork(
    postgres: Server, tmp_path: Path
) -> None:
    async with live(Knobs(seed=5, finality_lag=10), blocks=60) as chain:
        workplace, follow = placed(tmp_path, postgres.dsn, "below", chain)
        await until_caught_up(workplace, follow)
        chain.fork(depth=6, length=100)
        assert chain.tree.finalized is not None and chain.tree.finalized.number > 60
        await until_caught_up(workplace, follow)


async def test_a_fork_deeper_than_allowed_halts_until_an_operator_unwinds(
    postgres: Server, tmp_path: Path
) -> None:
    async with live(Knobs(seed=6, finality_lag=50), blocks=100) as chain:
        workplace, follow = placed(tmp_path, postgres.dsn, "deep", chain)
        await until_caught_up(workplace, follow)
        chain.fork(depth=30, length=31)
        said = await halts(workplace, follow, exit_code=4, code="E302")
        assert "unfork unwind --to" in said
        done = await workplace.run("unwind", "--chain", "deep", "--to", "70", "--yes")
        assert done.exit_code == 0, done.said()
        assert await follow.position() == 70
        await until_caught_up(workplace, follow)


async def test_a_conflict_with_the_floor_halts_until_an_operator_unwinds(
    postgres: Server, tmp_path: Path
) -> None:
    async with live(Knobs(seed=8, finality_lag=10), blocks=100) as chain:
        workplace, follow = placed(tmp_path, postgres.dsn, "conflict", chain)
        await until_caught_up(workplace, follow)
        chain.fork(depth=15, length=20)
        said = await halts(workplace, follow, exit_code=3, code="E301")
        assert "unfork unwind --to" in said
        epoch = (await follow.read()).chain["epoch"]
        done = await workplace.run("unwind", "--chain", "conflict", "--to", "80", "--yes")
        assert done.exit_code == 0, done.said()
        after = (await follow.read()).chain
        assert (after["position_number"], after["floor_number"]) == (80, 80)
        assert after["epoch"] == epoch + 1
        await until_caught_up(workplace, follow)


async def test_an_unwind_changes_nothing_without_a_yes(postgres: Server, tmp_path: Path) -> None:
    async with live(Knobs(seed=10, finality_lag=50), blocks=30) as chain:
        workplace, follow = placed(tmp_path, postgres.dsn, "asked", chain)
        await until_caught_up(workplace, follow)
        before = untouched(await follow.read())
        asked = await workplace.run("unwind", "--chain", "asked", "--to", "20")
        assert asked.exit_code != 0
        assert untouched(await follow.read()) == before
