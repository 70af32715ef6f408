"""Proves that a crash at any await and any SQL statement of a commit or an unwind leaves the chain
before or after it, never between, and that doing it again ends where it should (I5, I8).

Method: each act is run again and again from the same start, dying at its first statement or await,
at its second, and so on until it gets through alive. Death at an await is death of the coroutine at
that very suspension; death at a statement is an exception right before or after it. In both cases
the connection is gone without a word, as with a killed process.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest

from tests import batches
from tests.places import Place
from unfork.database import session
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot.store import HotStore
from unfork.testing import compare, oracle, raw

Act = Callable[[HotStore], Awaitable[object]]

DATASETS = ("blocks", "transactions", "logs", "withdrawals", "traces")


class Crash(BaseException):
    """The process died."""


class DyingAt:
    """An awaitable that dies at the n-th suspension of what it awaits; counts them otherwise."""

    def __init__(self, awaited: Awaitable[object], dies_at: int | None) -> None:
        self.awaited = awaited
        self.dies_at = dies_at
        self.count = 0

    def __await__(self) -> Generator[Any, Any, object]:
        inner = self.awaited.__await__()
        try:
            waited = next(inner)
            while True:
                self.count += 1
                if self.count == self.dies_at:
                    inner.throw(Crash(f"at await {self.count}"))
                    raise AssertionError("the crash was swallowed")
                sent = yield waited
                waited = inner.send(sent)
        except StopIteration as end:
            return end.value


class Statements:
    """A probe that dies at the n-th word of the connection; counts them otherwise."""

    def __init__(self) -> None:
        self.count = 0
        self.dies_at: int | None = None

    def arm(self, dies_at: int | None) -> None:
        self.count, self.dies_at = 0, dies_at

    def __call__(self, word: str) -> None:
        self.count += 1
        if self.count == self.dies_at:
            raise Crash(word)


class Scene:
    """A chain and its fork, and what the store holds before and after an act."""

    def __init__(self, place: Place, start: list[Block], act: Act, after: list[Block]) -> None:
        self.place = place
        self.start = start
        self.act = act
        self.after = after
        self.words = Statements()
        self.reader = raw.RawReader.connect(place.dsn, place.raw, place.folder / "payloads")

    async def opened(self) -> HotStore:
        store = self.place.store(probe=self.words)
        await store.open()
        await store.claim(chain_id=1, start=0)
        return store

    async def prepared(self) -> HotStore:
        await self.place.wipe()
        self.words.arm(None)
        store = await self.opened()
        if self.start:
            await store.commit(batches.batch(*self.start))
        return store

    def held(self) -> list[Block]:
        """What the tables hold, which must be all of before or all of after."""
        found = self.reader.snapshot(DATASETS)
        raw.check_journal(found)
        raw.check_lookups(found)
        position = found["chain"][0]["position_hash"]
        for blocks in (self.start, self.after):
            if position == (blocks[-1].hash if blocks else None):
                told = compare.differences(
                    oracle.rows_of(blocks), {name: found[name] for name in DATASETS}
                )
                assert not told, told
                return blocks
        raise AssertionError("the position is neither before nor after")

    async def dies(self, arm: Callable[[HotStore], Awaitable[object]]) -> bool:
        """Runs the act to its death, starts again, looks, and does it again where it was lost.

        False where the act came through alive.
        """
        store = await self.prepared()
        try:
            await arm(store)
        except Crash:
            self.words.arm(None)
            again = await self.opened()
            if self.held() is self.start:
                await self.act(again)
            assert self.held() is self.after
            return True
        return False


def _acts() -> dict[str, tuple[list[Block], Act, list[Block]]]:
    """Each act with the chain before and after it."""
    tree = Tree(Knobs(seed=7, density=2, hostile=True))
    tree.extend(9)
    ours = [_at(tree, number) for number in range(10)]
    tree.fork(depth=4, length=5, style=Style.MOVED)
    theirs = [_at(tree, number) for number in range(11)]
    one, many = batches.batch(ours[9]), batches.batch(*theirs[6:])
    to = batches.ref(ours[5])
    return {
        "the first commit": ([], lambda store: store.commit(batches.batch(*ours)), ours),
        "a commit of one block": (ours[:9], lambda store: store.commit(one), ours),
        "a commit of several": (theirs[:6], lambda store: store.commit(many), theirs),
        "an unwind": (ours, lambda store: store.unwind(to), ours[:6]),
        "an unwind of everything": (ours, lambda store: store.unwind(None), []),
    }


def _at(tree: Tree, number: int) -> Block:
    block = tree.at(number)
    assert block is not None
    return block


ACTS = _acts()


@pytest.fixture(params=list(ACTS))
def scene(request: pytest.FixtureRequest, place: Place) -> Generator[Scene, None, None]:
    made = Scene(place, *ACTS[request.param])
    yield made
    made.reader.close()


async def test_a_crash_at_every_statement_leaves_before_or_after(scene: Scene) -> None:
    for number in itertools.count(1):

        async def armed(store: HotStore, number: int = number) -> None:
            scene.words.arm(number)
            await scene.act(store)

        if not await scene.dies(armed):
            break

    assert number > 10, "hardly any statement was reached"


class NeverReady:
    """A poll that finds nothing ready, so that every wait for the server is one of the loop's."""

    def register(self, file: int, events: int) -> None: ...

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        return []


async def test_a_crash_at_every_await_leaves_before_or_after(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise it depends on how fast the server answers whether an await waits at all.
    monkeypatch.setattr(session, "select", SimpleNamespace(poll=NeverReady))
    for number in itertools.count(1):

        async def armed(store: HotStore, number: int = number) -> None:
            await DyingAt(scene.act(store), number)

        if not await scene.dies(armed):
            break

    assert number > 5, "hardly any await was reached"
