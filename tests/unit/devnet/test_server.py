"""Proves that an endpoint carries answers, heads and every fault over real sockets.

Method: a server on a free port of the loopback over a hand-made chain, asked with aiohttp's client.
A fault is asserted twice: by what the client sees, and by the count of its strikes.
"""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest

from tests.unit.devnet.asking import body
from tests.unit.devnet.handmade import HandmadeChain, block, executed, transaction
from unfork.devnet import faults, render
from unfork.devnet.block import Block
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import Server, serve
from unfork.devnet.tree import Movement
from unfork.devnet.websocket import FRAMES_MAX

#: Far above anything that is not stuck.
PATIENCE_S = 10.0

GENESIS = block(None)
ONE = block(GENESIS, executed(transaction(2)))


@pytest.fixture
def chain() -> HandmadeChain:
    return HandmadeChain(GENESIS, ONE)


@pytest.fixture
async def server(chain: HandmadeChain) -> AsyncIterator[Server]:
    server = await serve(Rpc(chain))
    yield server
    await server.close()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as client:
        yield client


def moved(chain: HandmadeChain, *added: Block) -> Movement:
    """Shows a path with new blocks at its end; the movement it was."""
    chain.show(*chain.path[: added[0].number], *added)
    return Movement(removed=(), added=added, head=added[-1])


async def heard(socket: aiohttp.ClientWebSocketResponse) -> Any:
    return orjson.loads(await asyncio.wait_for(socket.receive_str(), PATIENCE_S))


async def subscribed(socket: aiohttp.ClientWebSocketResponse) -> str:
    await socket.send_bytes(body("eth_subscribe", "newHeads"))
    name: str = (await heard(socket))["result"]
    return name


async def test_http_carries_calls_and_batches(
    server: Server, client: aiohttp.ClientSession
) -> None:
    async with client.post(server.url_http, data=body("eth_blockNumber")) as reply:
        assert reply.status == 200 and reply.content_type == "application/json"
        assert (await reply.json())["result"] == "0x1"
    batch = b"[" + body("eth_chainId") + b"," + body("eth_blockNumber", id=2) + b"]"
    async with client.post(server.url_http, data=batch) as reply:
        assert [answer["result"] for answer in await reply.json()] == ["0x539", "0x1"]
    async with client.get(server.url_http) as reply:
        assert reply.status == 405


async def test_a_429_says_when_to_come_back_in_seconds_or_as_a_date(
    server: Server, client: aiohttp.ClientSession
) -> None:
    server.rpc.faults.switch_on(faults.TooManyRequests(retry_after_s=7, strikes_max=1))
    server.rpc.faults.switch_on(faults.TooManyRequests(retry_after_s=60, is_date=True))
    async with client.post(server.url_http, data=body("eth_chainId")) as reply:
        assert (reply.status, reply.headers["Retry-After"]) == (429, "7")
        assert "jsonrpc" not in await reply.json()
    async with client.post(server.url_http, data=body("eth_chainId")) as reply:
        due = email.utils.parsedate_to_datetime(reply.headers["Retry-After"])
        assert reply.status == 429 and 50 < due.timestamp() - time.time() <= 60
    assert server.rpc.faults.counts == {"TooManyRequests": 2}


async def test_a_bad_gateway_is_a_status(server: Server, client: aiohttp.ClientSession) -> None:
    server.rpc.faults.switch_on(faults.BadGateway())
    async with client.post(server.url_http, data=body("eth_chainId")) as reply:
        assert reply.status == 502
    assert server.rpc.faults.counts == {"BadGateway": 1}


async def test_half_an_answer_is_no_json(server: Server, client: aiohttp.ClientSession) -> None:
    server.rpc.faults.switch_on(faults.CutBody())
    async with client.post(server.url_http, data=body("eth_chainId")) as reply:
        half = await reply.read()
    assert reply.status == 200 and half
    with pytest.raises(orjson.JSONDecodeError):
        orjson.loads(half)
    assert server.rpc.faults.counts == {"CutBody": 1}


async def test_a_cut_socket_ends_the_connection_and_the_next_request_works(
    server: Server, client: aiohttp.ClientSession
) -> None:
    server.rpc.faults.switch_on(faults.CutSocket(strikes_max=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post(server.url_http, data=body("eth_chainId"))
    async with client.post(server.url_http, data=body("eth_chainId")) as reply:
        assert reply.status == 200
    assert server.rpc.faults.counts == {"CutSocket": 1}


async def test_silence_is_not_answered_even_after_healing_and_does_not_hold_up_closing(
    chain: HandmadeChain, client: aiohttp.ClientSession
) -> None:
    server = await serve(Rpc(chain))
    server.rpc.faults.switch_on(faults.Silence(methods=frozenset({"eth_chainId"})))
    asked = asyncio.create_task(client.post(server.url_http, data=body("eth_chainId")))
    await _until(lambda: server.rpc.faults.counts["Silence"] == 1)
    async with client.post(server.url_http, data=body("eth_blockNumber")) as reply:
        assert reply.status == 200, "other methods answer"
    server.rpc.faults.clear()
    async with client.post(server.url_http, data=body("eth_chainId")) as reply:
        assert reply.status == 200
    assert not asked.done()

    await asyncio.wait_for(server.close(), PATIENCE_S)

    with pytest.raises(aiohttp.ClientConnectionError):
        await asked
    assert server.rpc.faults.counts == {"Silence": 1}


async def test_new_heads_are_announced_in_order_branch_by_branch(
    server: Server, client: aiohttp.ClientSession, chain: HandmadeChain
) -> None:
    two = block(ONE)
    branch = [block(GENESIS, name="other")]
    branch += [block(branch[0])]
    branch += [block(branch[1])]
    async with client.ws_connect(server.url_ws) as socket:
        name = await subscribed(socket)
        server.announce(moved(chain, two))
        server.announce(moved(chain, *branch))
        for expected in (two, *branch):
            note = await heard(socket)
            assert note == {
                "jsonrpc": "2.0",
                "method": "eth_subscription",
                "params": {"subscription": name, "result": render.header(expected)},
            }


async def test_a_websocket_answers_calls_and_is_spared_the_faults_of_http(
    server: Server, client: aiohttp.ClientSession
) -> None:
    server.rpc.faults.switch_on(faults.BadGateway())
    async with client.ws_connect(server.url_ws) as socket:
        await socket.send_str(body("eth_blockNumber").decode())
        assert (await heard(socket))["result"] == "0x1"
        await socket.send_bytes(b"[" + body("eth_chainId") + b"]")
        assert [answer["result"] for answer in await heard(socket)] == ["0x539"]
        await socket.send_bytes(body("eth_subscribe", "logs", {}))
        assert (await heard(socket))["error"]["code"] == -32601


async def test_an_ended_subscription_hears_nothing_more(
    server: Server, client: aiohttp.ClientSession, chain: HandmadeChain
) -> None:
    async with client.ws_connect(server.url_ws) as socket:
        name = await subscribed(socket)
        await socket.send_bytes(body("eth_unsubscribe", name))
        assert (await heard(socket))["result"] is True
        assert server.subscribers == 0
        await socket.send_bytes(body("eth_unsubscribe", name))
        assert (await heard(socket))["error"]["message"] == "subscription not found"
        server.announce(moved(chain, block(ONE)))
        await socket.send_bytes(body("eth_blockNumber"))
        assert (await heard(socket))["result"] == "0x2"


async def test_a_quiet_websocket_answers_but_neither_announces_nor_makes_up_for_it(
    server: Server, client: aiohttp.ClientSession, chain: HandmadeChain
) -> None:
    two = block(ONE)
    three = block(two)
    async with client.ws_connect(server.url_ws) as socket:
        await subscribed(socket)
        server.rpc.faults.switch_on(faults.Quiet())
        server.announce(moved(chain, two))
        await socket.send_bytes(body("eth_blockNumber"))
        assert (await heard(socket))["result"] == "0x2"
        server.rpc.faults.clear()
        server.announce(moved(chain, three))
        assert (await heard(socket))["params"]["result"]["hash"] == data(three.hash)
    assert server.rpc.faults.counts == {"Quiet": 1}


async def test_a_client_that_never_reads_is_dropped_and_holds_up_nobody(
    server: Server, client: aiohttp.ClientSession, chain: HandmadeChain
) -> None:
    async with client.ws_connect(server.url_ws) as reading:
        host, port = server.url_http.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        await _subscribe_by_hand(writer)
        await subscribed(reading)
        await _until(lambda: server.subscribers == 2)
        # The reader takes each head before the next one, so only the other's queue fills up.
        movement = moved(chain, block(ONE))
        for _ in range(20 * FRAMES_MAX):
            server.announce(movement)
            await heard(reading)
            if server.subscribers == 1:
                break
        assert server.subscribers == 1
        writer.close()
        del reader


async def test_closing_ends_connections_and_can_be_repeated(
    chain: HandmadeChain, client: aiohttp.ClientSession
) -> None:
    server = await serve(Rpc(chain))
    socket = await client.ws_connect(server.url_ws)
    await subscribed(socket)

    await asyncio.wait_for(server.close(), PATIENCE_S)
    await server.close()

    ended = await asyncio.wait_for(socket.receive(), PATIENCE_S)
    assert ended.type in (aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR)
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post(server.url_http, data=body("eth_chainId"))


async def _subscribe_by_hand(writer: asyncio.StreamWriter) -> None:
    """Upgrades and subscribes, then never reads: aiohttp's own client would."""
    writer.write(
        b"GET / HTTP/1.1\r\nHost: devnet\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    frame = body("eth_subscribe", "newHeads")
    assert len(frame) < 126
    # A client's frames are masked; a mask of zeros leaves the bytes as they are.
    writer.write(bytes((0x81, 0x80 | len(frame))) + bytes(4) + frame)
    await writer.drain()


async def _until(is_so: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.001)
