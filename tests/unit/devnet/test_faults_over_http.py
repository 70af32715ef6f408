"""Proves that every kind of fault can be seen by a client over real HTTP, and ends when healed.

Method: one table names a request for each kind; its healthy answer, its answer under the fault and
its answer after healing are compared over a socket. The table must cover every kind there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.unit.devnet.asking import body
from unfork.devnet import faults
from unfork.devnet.faults import Fault
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import Server, serve
from unfork.devnet.tree import Tree

HEAD = body("eth_blockNumber")
RECEIPTS = body("eth_getBlockReceipts", "latest")
LOGS = body("eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"})
BEYOND = body("eth_getLogs", {"fromBlock": "0x0", "toBlock": "0xffff"})
BLOCK = body("eth_getBlockByNumber", "latest", True)
CODE = body("eth_getCode", "0x" + "00" * 20, "0x1")
#: Stands for the receipts of the head by its hash, which is not known yet.
BY_HASH = b"receipts by hash"

CASES: list[tuple[Fault, bytes]] = [
    (faults.TooManyRequests(), HEAD),
    (faults.BadGateway(), HEAD),
    (faults.Silence(), HEAD),
    (faults.CutBody(), HEAD),
    (faults.CutSocket(), HEAD),
    (faults.BatchCap(calls_max=1), b"[" + HEAD + b"," + HEAD + b"]"),
    (faults.NodeError(), HEAD),
    (faults.MethodMissing(), RECEIPTS),
    (faults.HashRefused(), BY_HASH),
    (faults.Lag(blocks=2), HEAD),
    (faults.Stale(), BLOCK),
    (faults.NullBlock(), BLOCK),
    (faults.OtherReceipts(), RECEIPTS),
    (faults.LateReceipts(), RECEIPTS),
    (faults.Pruned(keeps_blocks=1), CODE),
    (faults.RangeCap(blocks_max=3), LOGS),
    (faults.ResultCap(logs_max=3), LOGS),
    (faults.BeyondHead(), BEYOND),
    (faults.DuplicateLogs(), LOGS),
]


def test_every_kind_that_http_can_carry_is_in_the_table() -> None:
    # By name, because a slotted dataclass leaves its first self behind as a subclass.
    kinds = {kind.__name__ for kind in Fault.__subclasses__()}

    assert {fault.name for fault, _ in CASES} == kinds - {faults.Quiet.__name__}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    tree = Tree(Knobs(seed=4, density=4))
    tree.extend(20)
    server = await serve(Rpc(tree))
    server.announce(tree.fork(depth=1, length=1, style=Style.REPLACED))
    assert tree.head.transactions
    yield server
    await server.close()


@pytest.mark.parametrize(
    ("fault", "request_body"), CASES, ids=lambda case: getattr(case, "name", "")
)
async def test_a_client_sees_the_fault_and_its_end(
    server: Server, fault: Fault, request_body: bytes
) -> None:
    if request_body == BY_HASH:
        request_body = body("eth_getBlockReceipts", data(server.rpc.tree.head.hash))
    async with aiohttp.ClientSession() as client:
        healthy = await seen(client, server, request_body)
        server.rpc.faults.switch_on(fault)
        ill = await seen(client, server, request_body)
        server.rpc.faults.clear()
        healed = await seen(client, server, request_body)

    assert healthy == healed != ill
    assert server.rpc.faults.counts == {fault.name: 1}


async def seen(
    client: aiohttp.ClientSession, server: Server, request_body: bytes
) -> tuple[int, bytes] | str:
    """What a client gets: status and body, or how it came to nothing."""
    struck = server.rpc.faults.counts["Silence"]
    asked = asyncio.create_task(_post(client, server.url_http, request_body))
    while not asked.done():
        if server.rpc.faults.counts["Silence"] > struck:
            # It will never be answered, so there is nothing to wait for.
            asked.cancel()
            await asyncio.wait({asked})
            return "silence"
        await asyncio.sleep(0)
    return await asked


async def _post(
    client: aiohttp.ClientSession, url: str, request_body: bytes
) -> tuple[int, bytes] | str:
    try:
        async with client.post(url, data=request_body) as reply:
            return reply.status, await reply.read()
    except aiohttp.ClientConnectionError:
        return "connection lost"
