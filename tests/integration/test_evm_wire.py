"""The EVM source over real sockets: HTTP, compression, announcements, and endpoints that break.

Method: a devnet served on the loopback, and small servers that misbehave as fronts of nodes do.
Events are awaited, never slept for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from random import Random
from typing import Any

import pytest
from aiohttp import web

from tests.nodes import chain_config, grown
from unfork.clock import Clock
from unfork.config.tree import Chain
from unfork.config.tree import Source as Settings
from unfork.datasets.batch import Batch
from unfork.devnet import faults
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import Server, serve
from unfork.devnet.tree import Tree
from unfork.errors import ConfigInvalid, SourceUnavailable
from unfork.sources import wire
from unfork.sources.evm import EvmSource
from unfork.sources.wire import HttpWire
from unfork.testing import compare, oracle

Served = tuple[Tree, Server]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    tree = grown(40, density=5)
    server = await serve(Rpc(tree))
    yield tree, server
    await server.close()


def source_of(*urls: str, clock: Clock | None = None, **settings: Any) -> EvmSource:
    chain = Chain(name="test", source=Settings(urls=urls, **settings))
    return EvmSource(chain, clock=clock or Clock(), random=Random(1))


class StoppedClock(Clock):
    """Time that does not pass: whoever waits for it waits for ever."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


async def test_a_chain_is_followed_over_http(served: Served) -> None:
    tree, server = served
    source = source_of(server.url_http)
    batches: list[Batch] = []
    async with aclosing(source.stream(None)) as stream:
        async for said in stream:
            assert isinstance(said, Batch)
            batches.append(said)
            if said.last == tree.head.ref:
                break
    await source.close()
    names = batches[0].tables
    found = {n: [row for b in batches for row in b.tables[n].to_pylist()] for n in names}
    assert compare.differences(oracle.canonical_rows(tree, 0, 40), found) == ""


@pytest.mark.parametrize("scheme", ["ws and http", "ws alone", "http alone"])
async def test_blocks_are_announced_over_websocket(served: Served, scheme: str) -> None:
    tree, server = served
    urls = {
        "ws and http": (server.url_http, server.url_ws),
        "ws alone": (server.url_ws,),
        "http alone": (server.url_http,),
    }[scheme]
    # Polling every hour: whatever comes, comes by announcement.
    source = source_of(*urls, poll_interval_ms=3_600_000)
    async with aclosing(source.stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        await _until(lambda: server.subscribers == 1)
        for _ in range(3):
            server.announce(tree.extend())
            async with asyncio.timeout(20):
                said = await coming
            assert isinstance(said, Batch) and said.last == tree.head.ref
            coming = asyncio.ensure_future(anext(stream))
        coming.cancel()
        await asyncio.wait({coming})
    await source.close()
    await _until(lambda: server.subscribers == 0)


async def test_a_quiet_subscription_costs_one_poll(served: Served) -> None:
    tree, server = served
    source = source_of(server.url_http, server.url_ws, poll_interval_ms=20)
    server.rpc.faults.switch_on(faults.Quiet())
    async with aclosing(source.stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        await _until(lambda: server.subscribers == 1)
        server.announce(tree.extend())
        async with asyncio.timeout(20):
            said = await coming
    await source.close()
    assert isinstance(said, Batch) and said.last == tree.head.ref


async def test_announcements_are_taken_up_again_after_the_socket_broke(served: Served) -> None:
    tree, server = served
    source = source_of(server.url_http, server.url_ws, poll_interval_ms=3_600_000)
    async with aclosing(source.stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        await _until(lambda: server.subscribers == 1)
        for session in list(server._sessions):
            session.drop()
        await _until(lambda: server.subscribers == 0)
        await _until(lambda: server.subscribers == 1)
        server.announce(tree.extend())
        async with asyncio.timeout(20):
            said = await coming
    await source.close()
    assert isinstance(said, Batch) and said.last == tree.head.ref


async def test_an_announced_block_is_handed_on_without_any_pause(served: Served) -> None:
    tree, server = served
    source = source_of(server.url_http, server.url_ws, clock=StoppedClock())
    async with aclosing(source.stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        await _until(lambda: server.subscribers == 1)
        for _ in range(15):
            server.announce(tree.extend())
            async with asyncio.timeout(20):
                said = await coming
            assert isinstance(said, Batch) and said.last == tree.head.ref
            coming = asyncio.ensure_future(anext(stream))
        coming.cancel()
        await asyncio.wait({coming})
    await source.close()


async def test_an_endpoint_that_is_not_there_is_unavailable_and_its_key_stays_hidden() -> None:
    one = HttpWire("http://127.0.0.1:1/v2/secret-key")
    with pytest.raises(SourceUnavailable) as caught:
        await one.post(b"{}")
    await one.close()
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret-key" not in str(caught.value) + str(caught.value.fields)
    assert caught.value.__cause__ is None, "the client's own errors quote the whole URL"


@pytest.mark.parametrize(
    "url",
    ["http://[nonsense/secret-key", "ftp://a/secret-key", "secret-key", "http://a:x/secret-key"],
)
def test_an_address_that_is_none_is_refused_and_stays_hidden(url: str) -> None:
    with pytest.raises(ConfigInvalid, match="address 2") as caught:
        wire.connect(["http://fine", url], connections=1)
    assert "secret-key" not in str(caught.value)


async def test_compressed_answers_are_read() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert "gzip" in request.headers["Accept-Encoding"]
        response = web.Response(body=b'{"jsonrpc":"2.0","id":0,"result":"0x2a"}')
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async with _listening(answer) as url:
        source = source_of(url)
        assert await source.chain_id() == 42
        await source.close()


async def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "ANSWER_BYTES_MAX", 100_000)

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"0" * 65_536)
        except ConnectionResetError:
            return response

    async with _listening(answer) as url:
        one = HttpWire(url)
        with pytest.raises(SourceUnavailable):
            await one.post(b"{}")
        await one.close()


async def test_a_redirect_is_not_followed_with_the_key() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        raise web.HTTPFound("/elsewhere")

    async with _listening(answer) as url:
        one = HttpWire(url + "/key")
        reply = await one.post(b"{}")
        await one.close()
    assert reply.status == 302
    assert asked == ["/key"]


async def test_a_node_that_refuses_to_announce_is_polled(served: Served) -> None:
    tree, server = served
    server.rpc.faults.switch_on(faults.MethodMissing(methods=frozenset({"eth_subscribe"})))
    source = source_of(server.url_http, server.url_ws, poll_interval_ms=20)
    async with aclosing(source.stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        tree.extend()
        async with asyncio.timeout(20):
            said = await coming
    await source.close()
    assert isinstance(said, Batch)


async def test_a_silent_endpoint_is_given_up_and_the_next_one_asked(served: Served) -> None:
    tree, server = served
    silent = await serve(Rpc(tree))
    silent.rpc.faults.switch_on(faults.Silence())
    source = source_of(silent.url_http, server.url_http, request_timeout_s=1.0)
    assert (await source.head()).latest == tree.head.ref
    await source.close()
    await silent.close()


async def test_a_source_can_be_closed_twice(served: Served) -> None:
    source = source_of(served[1].url_http)
    await source.head()
    await source.close()
    await source.close()
    with pytest.raises(SourceUnavailable, match="closed"):
        await source.head()


def test_a_source_without_endpoints_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match=r"source\.urls"):
        EvmSource(
            chain_config().model_copy(update={"source": Settings()}),
            clock=Clock(),
            random=Random(1),
        )


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (("http://a",), [("http://a", "ws://a")]),
        (("https://a/k", "wss://b/k"), [("https://a/k", "wss://b/k")]),
        (("wss://a/k",), [("https://a/k", "wss://a/k")]),
        (("http://a", "http://b", "ws://c"), [("http://a", "ws://c"), ("http://b", None)]),
    ],
)
def test_requests_and_announcements_are_paired(urls: tuple[str, ...], expected: Any) -> None:
    made = wire.connect(urls, connections=2)
    assert [(one.url, getattr(one, "heads_url", None)) for one in made] == expected


class _listening:
    """A small server around one handler."""

    def __init__(self, handler: Any) -> None:
        self._runner = web.ServerRunner(web.Server(handler))

    async def __aenter__(self) -> str:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()


async def _until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)
