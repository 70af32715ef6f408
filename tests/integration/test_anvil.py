"""Goal: what is stored of a real node equals what the node itself says, through all it takes back.

Method: anvil mines only when told to. A seeded player sends transactions and replaces blocks in
every way anvil knows, while the real `unfork ingest` follows. After every move the node is asked
for all its blocks, transactions, receipts, logs and calls, by number and in plain Python, and every
field is compared with the tables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration import anvil_node, stored
from tests.integration.anvil_play import Player
from tests.integration.node_rows import NodeRows
from tests.integration.unfork_process import Process, Workplace
from tests.places import Server
from unfork.proof.columns import UNCOMMITTED
from unfork.proof.finding import Check
from unfork.testing import compare

PROGRAM = anvil_node.binary()

pytestmark = pytest.mark.skipif(
    PROGRAM is None,
    reason="anvil is not installed: npm install --prefix .tools @foundry-rs/anvil",
)

MOVES = 50

#: The tables of a whole chain, and of one that is filtered.
WHOLE = ("blocks", "transactions", "logs", "withdrawals", "traces")
UNTRACED = WHOLE[:-1]
FILTERED = ("blocks", "logs")


class Followed:
    """A node, the process that follows it, and the comparison of the two."""

    def __init__(
        self,
        node: anvil_node.Node,
        workplace: Workplace,
        process: Process,
        *,
        tables: tuple[str, ...] = WHOLE,
    ) -> None:
        self.node = node
        self.workplace = workplace
        self.process = process
        self.rows = NodeRows(node, traces="traces" in tables)
        self._tables = tables
        #: Comparisons in which the store held blocks above a head that had only fallen.
        self.times_above = 0

    async def is_equal(self) -> None:
        """Waits until the store has seen the node's head, then compares everything below it."""
        number, hash = await self.rows.head()
        async with await psycopg.AsyncConnection.connect(
            self.workplace.dsn, autocommit=True
        ) as watching:
            query = f"SELECT hash FROM {self.workplace.chain}_raw.blocks WHERE number = %s"

            async def seen() -> bool:
                try:
                    cursor = await watching.execute(query.encode(), (number,))
                except psycopg.errors.UndefinedTable:
                    return False
                return await cursor.fetchone() == (hash,)

            await self.process.until(seen, timeout_s=60.0)
        held = await stored.read(
            self.workplace.dsn, self.workplace.chain, payloads=self.workplace.payloads
        )
        held.check()
        actual = held.rows(until=number)
        for table in actual.keys() - set(self._tables):
            assert not actual.pop(table), f"{table} is not in scope"
        difference = compare.differences(await self.rows.all(), actual)
        assert not difference, difference
        # Blocks above a merely lower head stay until another block takes their place; that they
        # continue the node's head is part of the check above.
        assert held.position is not None
        self.times_above += held.position[0] > number


@asynccontextmanager
async def followed(
    dsn: str,
    folder: Path,
    name: str,
    *,
    websocket: bool = False,
    source: Mapping[str, Any] | None = None,
    scope: Mapping[str, Any] | None = None,
) -> AsyncIterator[Followed]:
    """A fresh node and `unfork ingest` on it."""
    assert PROGRAM is not None
    async with anvil_node.running(PROGRAM) as node:
        urls = (node.url, node.url_ws) if websocket else (node.url,)
        settings: dict[str, Any] = {"traces": True} if scope is None else {"scope": scope}
        workplace = Workplace(folder, name, dsn, urls, settings=settings, source=source or {})
        process = await workplace.start()
        try:
            tables = WHOLE if scope is None else FILTERED
            yield Followed(node, workplace, process, tables=tables)
        finally:
            await process.kill()


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_every_table_equals_the_node_after_every_move(
    seed: int, postgres: Server, tmp_path: Path
) -> None:
    async with followed(postgres.dsn, tmp_path, f"anvil{seed}", websocket=seed == 2) as chain:
        player = Player(chain.node, seed)
        player.pause = chain.is_equal
        await player.begin()
        for move in range(MOVES):
            name = await player.act()
            try:
                await chain.is_equal()
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, move {move} ({name}): {error}") from error
        for met in (
            "transactions moved",
            "addresses used again",
            "failing transactions",
            "impersonated transactions",
            "reorganized with transactions",
            "reverted",
            "roll_back",
        ):
            assert player.counts[met], f"this seed never met {met!r}: {player.counts}"
        assert chain.times_above, "the head never fell while we held more"


@pytest.mark.parametrize("seed", [11, 12])
async def test_moves_in_quick_succession_end_in_the_same_tables(
    seed: int, postgres: Server, tmp_path: Path
) -> None:
    async with followed(postgres.dsn, tmp_path, f"hurried{seed}") as chain:
        player = Player(chain.node, seed)
        await player.begin()
        for _ in range(MOVES // 6):
            for _ in range(player.random.randint(2, 10)):
                await player.act()
            await chain.is_equal()


async def test_filtered_logs_equal_the_node_after_every_move(
    postgres: Server, tmp_path: Path
) -> None:
    async with followed(postgres.dsn, tmp_path, "logged", scope={"kind": "logs"}) as chain:
        player = Player(chain.node, 41)
        await player.begin()
        for _ in range(MOVES // 2):
            await player.act()
            await chain.is_equal()


async def test_roots_recomputed_at_ingest_accept_what_a_real_node_says(
    postgres: Server, tmp_path: Path
) -> None:
    roots = {"checks": "roots"}
    async with followed(postgres.dsn, tmp_path, "rooted", source=roots) as chain:
        # A transaction that nobody signed has no hash that could be proven.
        player = Player(chain.node, 42, impersonates=False)
        await player.begin()
        for _ in range(MOVES // 2):
            await player.act()
            await chain.is_equal()


async def test_a_node_that_starts_anew_with_another_genesis_is_followed_from_there(
    postgres: Server, tmp_path: Path
) -> None:
    assert PROGRAM is not None
    async with anvil_node.running(PROGRAM, "--timestamp", "1700000000") as node:
        workplace = Workplace(tmp_path, "anew", postgres.dsn, (node.url,))
        process = await workplace.start()
        try:
            player = Player(node, 31)
            await player.begin()
            await player.transact()
            first = Followed(node, workplace, process, tables=UNTRACED)
            await first.is_equal()
        except BaseException:
            await process.kill()
            raise
    try:
        # Nothing that we hold exists any more, and nothing of it was final.
        again = anvil_node.running(PROGRAM, "--timestamp", "1800000000", port=node.port)
        async with again as node:
            second = Followed(node, workplace, process, tables=UNTRACED)
            await second.is_equal()
            player = Player(node, 32)
            await player.begin()
            await second.is_equal()
            assert not second.times_above
    finally:
        await process.kill()


async def test_verify_proves_the_stored_blocks_of_a_real_node(
    postgres: Server, tmp_path: Path
) -> None:
    async with followed(postgres.dsn, tmp_path, "proven") as chain:
        # A transaction that nobody signed has no hash that could be proven.
        player = Player(chain.node, 21, impersonates=False)
        await player.begin()
        for _ in range(MOVES // 2):
            await player.act()
        await chain.is_equal()
        done = await chain.workplace.run("verify", "--chain", "proven", "--json")
        assert done.exit_code == 0, done.answer()
        (report,) = done.answer()["chains"]
        blocks = report["blocks"]
        assert blocks >= await chain.node.height() + 1
        for check, counted in report["checks"].items():
            # The node takes the size of a block without its withdrawals.
            if check not in {*UNCOMMITTED, Check.BLOCK_SIZE}:
                assert counted["proven"] == blocks, f"{check} is not proven throughout: {counted}"
        assert {"transactions.from_address", "blocks.size"} <= set(report["unproven_columns"])
        # One bit is enough to be noticed.
        async with await psycopg.AsyncConnection.connect(postgres.dsn) as connection:
            damage = """
                UPDATE proven_raw.logs SET data = set_bit(data, 0, 1 - get_bit(data, 0))
                WHERE (block_number, log_index) IN (
                    SELECT block_number, log_index FROM proven_raw.logs
                    WHERE length(data) > 0 LIMIT 1
                )
                """
            assert (await connection.execute(damage)).rowcount == 1
        done = await chain.workplace.run("verify", "--chain", "proven", "--json")
        assert done.exit_code == 1
        assert done.answer()["chains"][0]["damaged_count"] == 1
