"""A devnet that lives in the test's own process, and the comparison of a store with it.

The chain goes on while a follower works, and stands still while the two are compared.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg

from tests.integration import stored
from tests.integration.unfork_process import Process, until
from unfork.devnet.faults import Faults
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import Server, serve
from unfork.devnet.tree import Movement, Tree
from unfork.testing import compare, oracle


class LiveChain:
    """One seeded chain behind a real endpoint."""

    def __init__(self, tree: Tree, server: Server) -> None:
        self.tree = tree
        self.server = server
        #: Blocks that forks replaced so far.
        self.replaced = 0
        self._moving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return self.server.url_http

    @property
    def faults(self) -> Faults:
        return self.server.rpc.faults

    def advance(self) -> None:
        """One step as the chain's seed has it, mostly one block more, sometimes a fork."""
        self._announce(self.tree.advance())

    def extend(self, blocks: int) -> None:
        """Makes the chain longer, at once."""
        self._announce(self.tree.extend(blocks))

    def fork(self, *, depth: int, length: int, style: Style = Style.REPLACED) -> None:
        """Replaces the last blocks, at once."""
        self._announce(self.tree.fork(depth=depth, length=length, style=style))

    def go(self, *, block_time_s: float) -> None:
        """Lets the chain move by itself, forks included."""
        assert self._moving is None or self._moving.done()
        self._moving = asyncio.create_task(self._move(block_time_s))

    async def stand_still(self) -> None:
        """Stops moving; safe to repeat."""
        if self._moving is not None:
            self._moving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._moving
            self._moving = None

    @contextlib.asynccontextmanager
    async def going(self, *, block_time_s: float) -> AsyncIterator[None]:
        """Moves by itself while the context is open."""
        self.go(block_time_s=block_time_s)
        try:
            yield
        finally:
            await self.stand_still()

    def difference(self, held: stored.Stored, *, traces: bool = False) -> str:
        """How the rows held up to our head differ from the canonical ones; empty if they don't."""
        held.check()
        assert held.position is not None, "nothing is held"
        last = min(held.position[0], self.tree.head.number)
        expected = oracle.canonical_rows(self.tree, held.chain["first_number"], last)
        actual = held.rows(until=last)
        if not traces:
            assert not actual.pop("traces")
        return compare.differences(expected, actual)

    async def _move(self, block_time_s: float) -> None:
        while True:
            await asyncio.sleep(block_time_s)
            self._announce(self.tree.advance())

    def _announce(self, movement: Movement) -> None:
        self.replaced += len(movement.removed)
        self.server.announce(movement)


@contextlib.asynccontextmanager
async def live(
    knobs: Knobs, *, blocks: int = 0, faults: Faults | None = None
) -> AsyncIterator[LiveChain]:
    """A chain of so many blocks, served while the context is open."""
    tree = Tree(knobs)
    tree.extend(blocks)
    server = await serve(Rpc(tree, faults))
    chain = LiveChain(tree, server)
    try:
        yield chain
    finally:
        await chain.stand_still()
        await server.close()


class Follow:
    """What a test knows of the store that follows a live chain."""

    def __init__(
        self, chain: LiveChain, dsn: str, name: str, payloads: Path, *, traces: bool = False
    ) -> None:
        self.chain = chain
        self.dsn = dsn
        self.name = name
        self.payloads = payloads
        self._traces = traces

    async def position(self) -> int | None:
        """The number of the last block stored, None before the first or while nothing answers."""
        try:
            connection = await psycopg.AsyncConnection.connect(self.dsn, connect_timeout=2)
        except psycopg.OperationalError:
            return None
        try:
            query = f"SELECT position_number FROM {self.name}_raw.chain"
            row = await (await connection.execute(query.encode())).fetchone()
            return None if row is None else row[0]
        except psycopg.Error:
            return None
        finally:
            await connection.close()

    async def has_block(self, number: int, hash: bytes) -> bool:
        """Whether the store holds this very block."""
        query = f"SELECT true FROM {self.name}_raw.blocks WHERE number = %s AND hash = %s"
        try:
            return bool(await stored.one(self.dsn, query, number, hash))
        except psycopg.Error:
            return False

    async def passes(self, number: int, process: Process, *, timeout_s: float = 60.0) -> None:
        """Waits until the position has reached a block."""

        async def reached() -> bool:
            position = await self.position()
            return position is not None and position >= number

        await process.until(reached, timeout_s=timeout_s)

    async def caught_up(self, process: Process | None = None, *, timeout_s: float = 60.0) -> None:
        """Waits until the chain's head is held; the chain must stand still."""
        head = self.chain.tree.head

        async def reached() -> bool:
            return await self.has_block(head.number, head.hash)

        if process is None:
            await until(reached, timeout_s=timeout_s)
        else:
            await process.until(reached, timeout_s=timeout_s)

    async def read(self) -> stored.Stored:
        """Everything that is stored."""
        return await stored.read(self.dsn, self.name, payloads=self.payloads)

    async def is_exact(self) -> None:
        """Fails unless the store agrees with itself and with the canonical chain."""
        difference = self.chain.difference(await self.read(), traces=self._traces)
        assert not difference, difference
