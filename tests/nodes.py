"""Nodes for tests of sources: a devnet behind a wire without sockets, and one that is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from unfork.clock import Clock
from unfork.config.tree import Chain, Scope
from unfork.config.tree import Source as Settings
from unfork.devnet import protocol
from unfork.devnet.faults import Faults
from unfork.devnet.knobs import Knobs
from unfork.devnet.rpc import Rpc
from unfork.devnet.tree import Tree
from unfork.errors import SourceUnavailable
from unfork.sources.evm import EvmSource
from unfork.sources.wire import Reply, Wire


class SteppedClock(Clock):
    """Time that passes only by sleeping, and then at once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        #: Every pause that was slept through to its end.
        self.slept: list[float] = []

    def now(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        # Work that answers at once is given the time to do so before a timeout can fire.
        for _ in range(20):
            await asyncio.sleep(0)
        self.seconds += seconds
        self.slept.append(seconds)


class DevnetWire:
    """One endpoint over a devnet tree."""

    def __init__(self, tree: Tree, faults: Faults | None = None, *, name: str = "one") -> None:
        self.rpc = Rpc(tree, faults)
        self.url = f"http://{name}.test/v2/secret-key"
        self.requests: list[Any] = []
        self.announcing = False
        self.is_closed = False
        self._bells: list[asyncio.Queue[None]] = []
        #: Called before each answer, to let the chain move while a source works.
        self.before: Callable[[Any], None] = lambda request: None

    @property
    def faults(self) -> Faults:
        return self.rpc.faults

    @property
    def methods(self) -> list[str]:
        """Every method asked for so far."""
        return [call["method"] for call in self.calls]

    @property
    def calls(self) -> list[Any]:
        """Every call so far."""
        return [
            call
            for request in self.requests
            for call in (request if isinstance(request, list) else [request])
        ]

    async def post(self, body: bytes) -> Reply:
        request = json.loads(body)
        self.requests.append(request)
        self.before(request)
        answer = self.rpc.answer(body)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, protocol.Cut):
            raise SourceUnavailable("the connection was cut")
        assert isinstance(answer, protocol.Reply)
        return Reply(status=answer.status, headers=answer.headers, body=answer.body)

    def heads(self) -> AsyncIterator[None] | None:
        return self._announced() if self.announcing else None

    def announce(self) -> None:
        for bell in self._bells:
            bell.put_nowait(None)

    async def close(self) -> None:
        self.is_closed = True

    async def _announced(self) -> AsyncIterator[None]:
        bell: asyncio.Queue[None] = asyncio.Queue()
        self._bells.append(bell)
        try:
            while True:
                yield await bell.get()
        finally:
            self._bells.remove(bell)


@dataclass
class ScriptedWire:
    """One endpoint that answers with what a function says."""

    answer: Callable[[Any], Any]
    url: str = "http://scripted.test/v2/secret-key"
    requests: list[Any] = field(default_factory=list)

    async def post(self, body: bytes) -> Reply:
        request = json.loads(body)
        self.requests.append(request)
        said = self.answer(request)
        if isinstance(said, Reply):
            return said
        if isinstance(said, Exception):
            raise said
        return Reply(status=200, headers={}, body=json.dumps(said).encode())

    def heads(self) -> AsyncIterator[None] | None:
        return None

    async def close(self) -> None:
        return None


def result(request: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """A JSON-RPC answer to one call."""
    return {"jsonrpc": "2.0", "id": request["id"], "result": value}


def failure(request: Mapping[str, Any], code: int, message: str) -> dict[str, Any]:
    """A JSON-RPC error for one call."""
    return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}


def chain_config(
    *,
    scope: Scope | None = None,
    traces: bool = False,
    limits: Mapping[str, int] | None = None,
    **settings: Any,
) -> Chain:
    """A chain's configuration with the given settings of its source."""
    return Chain(
        name="test",
        source=Settings(urls=("http://one.test",), **settings),
        scope=scope or Scope(),
        traces=traces,
        **(limits or {}),
    )


def evm_source(
    *wires: Wire,
    chain: Chain | None = None,
    clock: Clock | None = None,
    seed: int = 1,
) -> EvmSource:
    """An EVM source over wires."""
    return EvmSource(
        chain or chain_config(),
        clock=clock or SteppedClock(),
        random=Random(seed),
        wires=wires,
    )


def grown(blocks: int, **knobs: Any) -> Tree:
    """A tree with that many blocks on top of the first."""
    tree = Tree(Knobs(**{"fork_rate": 0.0, **knobs}))
    tree.extend(blocks)
    return tree
