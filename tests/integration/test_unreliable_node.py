"""Goal: the source holds its own against an endpoint that is as poor as public ones come.

Method: a chain whose finalized block is always its latest, whose hashes and roots are made up, that
gives receipts by number only, forgets replaced blocks, doubles logs, caps ranges and results and
serves no method beyond a short list. On top of it come outages, chaos, a head that goes back and a
subscription that falls silent, each while the real `unfork ingest` follows.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.live_chain import Follow, LiveChain
from tests.integration.unfork_process import Process, Workplace
from tests.places import Server
from unfork.devnet import faults, methods
from unfork.devnet.block import Block
from unfork.devnet.faults import Fault
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import serve
from unfork.devnet.tree import Tree
from unfork.testing import compare, oracle

START = 100
#: What such an endpoint serves at all.
SERVED = {
    "eth_chainId",
    "net_version",
    "web3_clientVersion",
    "eth_syncing",
    "eth_blockNumber",
    "eth_gasPrice",
    "eth_maxPriorityFeePerGas",
    "eth_getBalance",
    "eth_getCode",
    "eth_getBlockByNumber",
    "eth_getBlockByHash",
    "eth_getLogs",
    "eth_getBlockReceipts",
    "eth_getTransactionReceipt",
    "eth_call",
    "eth_subscribe",
    "eth_unsubscribe",
}


class Unsteady(Tree):
    """A chain that calls its latest block final, whatever it does next."""

    @property
    def finalized(self) -> Block | None:
        return self.head

    @property
    def safe(self) -> Block | None:
        return self.head


#: What is wrong with the endpoint at all times.
QUIRKS: tuple[Fault, ...] = (
    faults.HashRefused(answer="null"),
    faults.DuplicateLogs(),
    faults.RangeCap(blocks_max=6),
    faults.ResultCap(logs_max=4),
    faults.MethodMissing(methods=frozenset(methods.METHODS.keys() - SERVED)),
)


@asynccontextmanager
async def followed(
    folder: Path, dsn: str, name: str, *, blocks: int = 200, websocket: bool = False, **chain: Any
) -> AsyncIterator[tuple[LiveChain, Process, Follow, Workplace]]:
    """Such an endpoint, being followed."""
    tree = Unsteady(Knobs(seed=21, density=2, proven=False))
    tree.extend(START + blocks)
    endpoint = faults.Faults(seed=1000)
    for quirk in QUIRKS:
        endpoint.switch_on(quirk)
    server = await serve(Rpc(tree, endpoint, keeps_replaced=False))
    live = LiveChain(tree, server)
    urls = (server.url_http, server.url_ws) if websocket else (server.url_http,)
    source = {"backoff_ms_max": 500, "request_timeout_s": 2}
    settings = {"start": START, **chain}
    workplace = Workplace(folder, name, dsn, urls, settings=settings, source=source)
    process = await workplace.start()
    try:
        yield live, process, Follow(live, dsn, name, workplace.payloads), workplace
    finally:
        await process.kill()
        await live.stand_still()
        await server.close()


def met(chain: LiveChain, fault: str, *, times: int) -> Callable[[], Awaitable[bool]]:
    """Whether a fault has struck so often since now."""
    before = chain.faults.counts[fault]

    async def is_met() -> bool:
        return chain.faults.counts[fault] >= before + times

    return is_met


async def matches(process: Process, follow: Follow, *, timeout_s: float = 60.0) -> None:
    """Expects the store to become equal to the chain."""
    await follow.chain.stand_still()
    await follow.caught_up(process, timeout_s=timeout_s)
    await follow.is_exact()


async def test_every_kind_of_fork_is_followed_although_all_was_called_final(
    postgres: Server, tmp_path: Path
) -> None:
    async with followed(tmp_path, postgres.dsn, "forks") as (chain, process, follow, workplace):
        await matches(process, follow)
        # The head is replaced.
        chain.fork(depth=1, length=1)
        await matches(process, follow)
        # What was in the last blocks is gone.
        chain.fork(depth=3, length=3, style=Style.DROPPED)
        await matches(process, follow)
        # The head falls, then other blocks come.
        chain.fork(depth=6, length=3)
        await matches(process, follow)
        chain.extend(3)
        await matches(process, follow)
        # One fork after another, faster than they can be followed.
        for depth, style in ((3, Style.REPLACED), (4, Style.DROPPED), (2, Style.MOVED)):
            chain.fork(depth=depth, length=depth, style=style)
            await asyncio.sleep(0.05)
        await matches(process, follow)
        # The fork lies far below the new head.
        chain.fork(depth=4, length=60)
        await matches(process, follow)
        # It happened while nobody looked.
        process.signal(signal.SIGTERM)
        assert await process.wait(60.0) == 0
        chain.fork(depth=5, length=5)
        again = await workplace.start()
        try:
            await matches(again, follow)
            # Deep, but not deeper than MAX_REORG_DEPTH.
            chain.fork(depth=80, length=83)
            await matches(again, follow)
        finally:
            await again.kill()
        counts = chain.faults.counts
        assert counts["HashRefused"], "receipts were never asked by hash"
        assert not counts["MethodMissing"], "a method was called that many nodes do not serve"


async def test_a_filtered_scope_is_exact_under_caps_and_doubled_logs(
    postgres: Server, tmp_path: Path
) -> None:
    tree = Unsteady(Knobs(seed=21, density=2, proven=False))
    tree.extend(START + 600)
    wanted = most_logged(tree)
    scope = {"kind": "logs", "addresses": ["0x" + wanted.hex()]}
    # Ranges are asked for only where no fork reaches: there must be enough blocks below that.
    settings = {"scope": scope, "reorg_depth_max": 100}
    async with followed(tmp_path, postgres.dsn, "scoped", blocks=600, **settings) as (
        chain,
        process,
        follow,
        _,
    ):
        await follow.caught_up(process)
        await same_logs(follow, wanted)
        for depth, length in ((3, 4), (6, 3), (20, 25)):
            chain.fork(depth=depth, length=length)
            await follow.caught_up(process)
            await same_logs(follow, wanted)
        counts = chain.faults.counts
        assert all(counts[met] for met in ("DuplicateLogs", "RangeCap", "ResultCap")), counts


async def same_logs(follow: Follow, address: bytes) -> None:
    """Compares headers and the logs of one contract with the chain's."""
    held = await follow.read()
    tree = follow.chain.tree
    expected = oracle.canonical_rows(tree, START, tree.head.number)
    rows = held.rows(until=tree.head.number)
    logs = [row for row in expected["logs"] if row["address"] == address]
    assert logs, "the scope holds nothing to compare"
    difference = compare.differences({"logs": logs}, {"logs": rows["logs"]})
    assert not difference, difference
    hashes = {row["number"]: row["hash"] for row in expected["blocks"]}
    assert {row["number"]: bytes(row["hash"]) for row in rows["blocks"]} == hashes


def most_logged(tree: Tree) -> bytes:
    """The contract that logs most."""
    rows = oracle.canonical_rows(tree, START, tree.head.number)["logs"]
    addresses = [row["address"] for row in rows]
    return max(set(addresses), key=addresses.count)


OUTAGES: tuple[Fault, ...] = (
    faults.NodeError(code=-32000, message="internal error"),
    faults.TooManyRequests(retry_after_s=None),
    faults.BadGateway(),
    faults.Silence(),
)


async def test_outages_of_the_node_are_outlived_without_hammering_it(
    postgres: Server, tmp_path: Path
) -> None:
    async with followed(tmp_path, postgres.dsn, "outage") as (chain, process, follow, _):
        await matches(process, follow)
        for outage in OUTAGES:
            asked, began = chain.faults.requests, time.monotonic()
            chain.faults.switch_on(outage)
            chain.extend(10)
            await asyncio.sleep(2.0)
            requests_s = (chain.faults.requests - asked) / (time.monotonic() - began)
            chain.faults.switch_off(outage)
            assert requests_s <= 20, f"{requests_s} requests a second during {outage.name}"
            await follow.caught_up(process, timeout_s=60.0)
        await matches(process, follow)


CHAOS: tuple[Fault, ...] = (
    faults.NodeError(rate=0.12, code=-32000, message="internal error"),
    faults.TooManyRequests(rate=0.12, retry_after_s=None),
    faults.BadGateway(rate=0.12),
    faults.CutBody(rate=0.12),
    faults.CutSocket(rate=0.12),
    faults.NullBlock(rate=0.12),
    faults.Silence(rate=0.12, methods=frozenset({"eth_getBlockReceipts"})),
    faults.OtherReceipts(rate=0.12),
    faults.Stale(rate=0.12, movements=2),
)


async def test_chaos_leaves_neither_gaps_nor_doubles(postgres: Server, tmp_path: Path) -> None:
    async with followed(tmp_path, postgres.dsn, "chaos", blocks=1_000) as (
        chain,
        process,
        follow,
        _,
    ):
        await follow.passes(START + 20, process)
        for fault in CHAOS:
            chain.faults.switch_on(fault)
            async with chain.going(block_time_s=0.05):
                await asyncio.sleep(0.5)
                await process.until(met(chain, fault.name, times=1))
            chain.faults.switch_off(fault)
        await matches(process, follow)


async def test_a_head_that_goes_back_takes_no_row_with_it(postgres: Server, tmp_path: Path) -> None:
    async with followed(tmp_path, postgres.dsn, "backwards") as (chain, process, follow, _):
        await matches(process, follow)
        lag = faults.Lag(blocks=30)
        chain.faults.switch_on(lag)
        is_met = met(chain, lag.name, times=30)

        async def looked_often() -> bool:
            assert await follow.position() == START + 200, "rows vanished"
            return await is_met()

        await process.until(looked_often)
        chain.faults.switch_off(lag)
        chain.extend(10)
        await matches(process, follow)


async def test_a_replica_that_shows_null_for_blocks_is_asked_again(
    postgres: Server, tmp_path: Path
) -> None:
    async with followed(tmp_path, postgres.dsn, "nulls") as (chain, process, follow, _):
        await matches(process, follow)
        null = faults.NullBlock(rate=0.5)
        chain.faults.switch_on(null)
        async with chain.going(block_time_s=0.05):
            await process.until(met(chain, null.name, times=20))
        chain.faults.switch_off(null)
        chain.extend(1)
        await matches(process, follow)


@pytest.mark.parametrize("kind", ["quiet", "announced"])
async def test_blocks_come_whether_a_subscription_announces_them_or_not(
    kind: str, postgres: Server, tmp_path: Path
) -> None:
    async with followed(tmp_path, postgres.dsn, f"ws_{kind}", websocket=True) as (
        chain,
        process,
        follow,
        _,
    ):
        await matches(process, follow)

        async def subscribed() -> bool:
            return chain.server.subscribers > 0

        await process.until(subscribed)
        if kind == "quiet":
            chain.faults.switch_on(faults.Quiet())
        async with chain.going(block_time_s=0.05):
            await follow.passes(chain.tree.head.number + 10, process)
        await matches(process, follow)
        chain.faults.switch_off(faults.Quiet())
        chain.extend(5)
        await matches(process, follow)
