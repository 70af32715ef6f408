"""Goal: what jobs ask contracts is exact, whoever asks and whatever the node does meanwhile (I1).

Method: a devnet that is full of awkward contracts and puts others at their addresses by forks,
served over HTTP; the built-in job `tokens` and a job of a user's with every kind of read; small
runs ask from the driver, large ones from tasks of Spark. What people read is compared with plain
Python over the whole chain.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engines import Engine, engine
from tests.sparks import Chain
from unfork.devnet import abi, contract_calls, faults
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import serve
from unfork.devnet.tree import Tree
from unfork.testing import derived, tokens

#: The jobs are those of the example.
EXAMPLE = Path(__file__).parents[2] / "examples" / "06_contract_read"


@asynccontextmanager
async def asking(chain: Chain, *, workers: int = 1, **planning: int) -> AsyncIterator[Any]:
    """An engine whose chain has a node over HTTP."""
    tree = Tree(Knobs(seed=9, density=4, hostile=True, finality_lag=20))
    server = await serve(Rpc(tree))
    shutil.copy(EXAMPLE / "holdings.sql", chain.file.parent)
    source = {"urls": [server.url_http], "backoff_ms_max": 50, "request_timeout_s": 2}
    config = {
        "jobs": yaml.safe_load((EXAMPLE / "unfork.yaml").read_text())["jobs"],
        "planning": planning,
        "chains": [{"name": chain.place.name, "source": source}],
    }
    try:
        async with engine(chain, tree=tree, workers=workers, config=config) as made:
            yield made, server
    finally:
        await server.close()


def holdings(made: Engine) -> list[dict[str, Any]]:
    rows = []
    for moved in derived.token_transfers(made.blocks):
        contract = made.tree.metadata(moved["token_address"], moved["block_hash"])
        assert contract is not None
        data = abi.CALL_BALANCE + abi.padded(moved["to_address"])
        balance = contract_calls.output(contract, data)
        decimals = contract_calls.output(contract, contract_calls.DECIMALS)
        exponent = int.from_bytes(decimals, "big")
        fits = bool(decimals) and exponent < 256
        rows.append(
            {
                name: moved[name]
                for name in (
                    "block_number",
                    "block_hash",
                    "log_index",
                    "token_address",
                    "to_address",
                )
            }
            | {
                "balance": int.from_bytes(balance, "big") if balance else None,
                "ok": True,
                "decimals": exponent if fits else None,
                "remark": None if fits else "undecodable" if decimals else "empty",
                "output_bytes": len(decimals),
            }
        )
    return rows


async def check(made: Engine) -> None:
    assert await made.rows("holdings", "block_number, log_index") == holdings(made)
    held = {row["address"]: row for row in await made.rows("tokens", "address")}
    assert held == tokens.tokens(made.blocks, made.tree.metadata)
    head = made.tree.head.number
    assert await made.watermarks() == {"token_transfers": head, "tokens": head, "holdings": head}


@pytest.mark.everywhere
async def test_tasks_ask_for_history_and_the_driver_at_the_head_through_every_fork(
    chain: Chain,
) -> None:
    async with asking(chain, range_size=20, live_blocks_max=6) as (made, server):
        server.rpc.faults.switch_on(faults.TooManyRequests(rate=0.05, retry_after_s=0))
        await made.grow(28)
        await made.settle()
        await check(made)
        remarks = {row["remarks"] for row in await made.rows("tokens", "address")}
        assert {"name reverted", "name nul", "name utf8", "symbol bytes32"} <= {
            part for remark in remarks if remark for part in remark.split("; ")
        }
        # What is known is not asked again: each token once, after the block that its row names.
        told = {(row["address"], row["block_hash"]) for row in await made.rows("tokens", "address")}
        asked = await made.chain.place.app_rows(
            "SELECT address, block_hash FROM {app}.contract_reads WHERE data = %(name)s",
            name=contract_calls.NAME,
        )
        assert {(row["address"], row["block_hash"]) for row in asked} == told
        assert len(asked) == len(told) < len(derived.token_transfers(made.blocks))
        assert {one.kind.value for one in made.happened} == {"live", "backfill"}
        assert all(one.outcome == "committed" for one in made.happened), made.happened
        for depth, length, style in (
            (3, 5, Style.REDEPLOYED),
            (9, 4, Style.REDEPLOYED),
            (2, 0, Style.REPLACED),
        ):
            await made.fork(depth=depth, length=length, style=style)
            await made.settle()
            await check(made)
        assert server.rpc.faults.counts["TooManyRequests"] > 0

        # A node that answers no call any more: who asks waits, everybody else goes on.
        overloaded = faults.NodeError(methods=frozenset({"eth_call"}), message="overloaded")
        server.rpc.faults.switch_on(overloaded)
        await made.grow(3)
        await made.settle()
        marks, head = await made.watermarks(), made.tree.head.number
        assert marks["token_transfers"] == head != marks["holdings"]
        (lease,) = (one for one in await made.leases() if one.job == "holdings")
        assert (lease.attempt, lease.status.value) == (0, "FAILED"), "it is nobody's fault"
        assert "overloaded" in (lease.error or "")
        server.rpc.faults.switch_off(overloaded)
        await made.release("holdings", "tokens")
        await made.settle()
        await check(made)
