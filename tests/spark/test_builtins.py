"""Goal: every built-in dataset is what a full recompute says after every move of its chain (I1).

Method: a devnet with everything that chains should not have grows, forks in every style and goes
back; a real worker computes the built-in jobs on a real Spark into real Postgres; after each move
what people read is compared, to the last row, with plain Python over the whole chain. The one job
that asks contracts needs a node and is tested with it.
"""

from __future__ import annotations

import random
from typing import Any

from tests.engines import Engine, engine
from tests.sparks import Chain
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.jobs.builtin import BUILTINS
from unfork.jobs.run import Cause
from unfork.testing import derived

JOBS = {name: declared for name, declared in BUILTINS.items() if not declared.reads}
ALL: dict[str, Any] = {"jobs": [{"name": name} for name in JOBS]}
#: What is final is computed by tasks, in ranges; the rest at the head, by the driver.
RANGES = {"range_size": 20, "live_blocks_max": 6}


async def require_all(made: Engine) -> None:
    """Every built-in dataset is complete, and what the chain says."""
    await made.settle()
    assert set(made.computing.declarations.datasets) == set(JOBS)
    head = made.tree.head.number
    assert await made.watermarks() == dict.fromkeys(JOBS, head)
    await made.check()


async def test_all_built_in_datasets_follow_forks_of_every_style(chain: Chain) -> None:
    dice = random.Random(11)
    async with engine(chain, config={**ALL, "planning": RANGES}) as made:
        await made.grow(28)
        await require_all(made)
        assert {one.kind.value for one in made.happened} == {"live", "backfill"}
        for style in Style:
            depth = dice.randint(1, 5)
            await made.fork(depth=depth, length=dice.randint(1, depth + 2), style=style)
            await require_all(made)
        await made.fork(depth=3, length=0, style=Style.DROPPED)
        await require_all(made)
        everything = derived.everything(made.blocks)
        assert all(everything.values()), "there is something in each"
        assert {one.outcome for one in made.happened} == {"committed"}
        await require_tables(made)


async def require_tables(made: Engine) -> None:
    """The tables have the keys, indexes and pieces that were declared."""
    schema = made.chain.place.app
    found = await made.chain.place.app_rows(
        f"SELECT tablename AS name, indexdef AS text FROM pg_indexes WHERE schemaname = '{schema}'"
    )
    indexes: dict[str, list[str]] = {}
    for row in found:
        indexes.setdefault(row["name"], []).append(row["text"].partition(" USING btree ")[2])
    for job, declared in JOBS.items():
        table = f"{declared.output or job}_g1"
        held = indexes[table]
        wanted = [declared.unique_key, *declared.indexes]
        assert {f"({', '.join(columns)})" for columns in wanted} <= set(held), table
    pieces = await made.chain.place.app_rows(
        "SELECT relname AS name FROM pg_class WHERE relkind = 'p'"
        f" AND relnamespace = '{schema}'::regnamespace"
    )
    assert {row["name"] for row in pieces} == {
        f"{one.output or job}_g1" for job, one in JOBS.items() if one.table_blocks is not None
    }


async def test_a_contract_that_a_fork_redeploys_as_something_else(chain: Chain) -> None:
    names = ("token_transfers", "approvals", "token_balances")
    config = {"jobs": [{"name": name} for name in names]}
    async with engine(chain, Knobs(seed=3, density=12, hostile=True), config=config) as made:
        await made.grow(10)
        created = [
            executed.contract_address
            for block in made.blocks[:4]
            for executed in block.transactions
            if executed.contract_address is not None
        ]
        assert created, "the first blocks create contracts"
        before = await spoken(made)
        await made.fork(depth=made.tree.head.number - 1, length=12, style=Style.REDEPLOYED)
        after = await spoken(made)
        changed = {one for one in created if before.get(one, set()) != after.get(one, set())}
        assert any(before.get(one) and after.get(one) for one in changed), (
            "a contract had transfers of one standard, and now has some of another"
        )


async def spoken(made: Engine) -> dict[bytes, set[str]]:
    """The standards by which each contract has transfers now."""
    await made.settle()
    await made.check()
    found: dict[bytes, set[str]] = {}
    for row in await made.rows("token_transfers", "1"):
        found.setdefault(row["token_address"], set()).add(row["standard"])
    return found


async def test_what_needs_traces_is_unavailable_without_them_and_stops_nobody(
    chain: Chain,
) -> None:
    async with engine(chain, config=ALL, traces=False) as made:
        await made.grow(6)
        await made.settle()
        assert made.worker.seen is not None
        idle = {one.job: (one.cause, one.why) for one in made.worker.seen[1].idle}
        assert idle["internal_transactions"] == (
            Cause.UNAVAILABLE,
            "this chain's scope does not fetch `traces`",
        )
        head = made.tree.head.number
        others = [name for name in JOBS if name != "internal_transactions"]
        assert await made.watermarks() == dict.fromkeys(others, head)
        assert {one.outcome for one in made.happened} == {"committed"}
        await made.check()
