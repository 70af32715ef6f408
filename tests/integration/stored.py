"""Reads everything a chain's raw schema holds, with plain SQL, and checks it against itself.

What is checked here needs no knowledge of the chain: numbers without gaps, links by hash, lookups
that name exactly the rows there are, a journal without gaps whose replay ends at the position.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from unfork.datasets import evm

Row = dict[str, Any]

#: Everything an unwind or commit may touch; a dump of these is a dump of the chain.
TABLES = (
    "chain",
    "journal",
    "spans",
    *(dataset.name for dataset in evm.DATASETS),
    *(f"orphaned_{dataset.name}" for dataset in evm.DATASETS),
    "tx_lookup",
    "block_lookup",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One consistent look at all tables of a chain."""

    tables: dict[str, list[Row]]

    @property
    def chain(self) -> Row:
        (row,) = self.tables["chain"]
        return row

    @property
    def position(self) -> tuple[int, bytes] | None:
        if self.chain["position_number"] is None:
            return None
        return self.chain["position_number"], bytes(self.chain["position_hash"])

    def rows(self, *, until: int | None = None) -> dict[str, list[Row]]:
        """The rows of every dataset, up to a block where one is named."""
        return {
            dataset.name: [
                row
                for row in self.tables[dataset.name]
                if until is None or row[_number(dataset.name)] <= until
            ]
            for dataset in evm.DATASETS
        }

    def check(self) -> None:
        """Fails where the tables contradict each other."""
        blocks = sorted(self.tables["blocks"], key=lambda row: row["number"])
        first = self.chain["first_number"]
        numbers = [row["number"] for row in blocks]
        if self.position is None:
            assert not numbers, "blocks without a position"
        else:
            assert numbers == list(range(first, self.position[0] + 1)), "a gap or a double"
            assert blocks[-1]["hash"] == self.position[1], "the position is not the last block"
        for parent, child in itertools.pairwise(blocks):
            assert child["parent_hash"] == parent["hash"], f"{child['number']} does not link"
        self._check_rows(blocks)
        self._check_lookups(blocks)
        self._check_journal()

    def _check_rows(self, blocks: list[Row]) -> None:
        hashes = {row["number"]: (row["hash"], row["timestamp"]) for row in blocks}
        for dataset in evm.DATASETS[1:]:
            keys: Counter[tuple[int, int]] = Counter()
            for row in self.tables[dataset.name]:
                place = (row["block_hash"], row["block_timestamp"])
                assert hashes.get(row["block_number"]) == place, f"{dataset.name}: of another fork"
                keys[row["block_number"], row[dataset.key[1]]] += 1
            assert not [key for key, times in keys.items() if times > 1], dataset.name
        if self.chain["floor_number"] is not None:
            floor = (self.chain["floor_number"], self.chain["floor_hash"])
            assert floor[0] < blocks[0]["number"] or hashes[floor[0]][0] == floor[1], "the floor"

    def _check_lookups(self, blocks: list[Row]) -> None:
        wanted = sorted(
            (row["hash"], row["block_number"], row["transaction_index"], row["block_timestamp"])
            for row in self.tables["transactions"]
        )
        found = sorted(
            (row["id"], row["block_number"], row["transaction_index"], row["timestamp"])
            for row in self.tables["tx_lookup"]
        )
        assert found == wanted, "tx_lookup does not name the transactions"
        wanted_blocks = sorted((row["hash"], row["number"], row["timestamp"]) for row in blocks)
        found_blocks = sorted(
            (row["id"], row["block_number"], row["timestamp"])
            for row in self.tables["block_lookup"]
        )
        assert found_blocks == wanted_blocks, "block_lookup does not name the blocks"

    def _check_journal(self) -> None:
        """Replays the journal: it must end at the position, whatever happened on the way."""
        journal = sorted(self.tables["journal"], key=lambda row: row["seq"])
        assert [row["seq"] for row in journal] == list(range(1, self.chain["seq"] + 1)), "a gap"
        position: tuple[int, bytes] | None = None
        for row in journal:
            ref = None if row["ref_number"] is None else (row["ref_number"], row["ref_hash"])
            if row["kind"] == "commit":
                if position is not None:
                    assert (row["first"] - 1, row["parent_hash"]) == position, f"{row['seq']}"
                assert ref is not None and ref[0] == row["last"]
            else:
                assert position is not None and row["last"] == position[0], f"{row['seq']}"
                assert ref is None or ref[0] == row["first"] - 1, f"{row['seq']}"
            position = ref
        assert position == self.position, "the journal does not lead to the position"
        # A block names the commit that brought it.
        commits = {row["seq"]: row for row in journal if row["kind"] == "commit"}
        for block in self.tables["blocks"]:
            commit = commits[block["journal_seq"]]
            assert commit["first"] <= block["number"] <= commit["last"], "brought by another commit"


async def read(dsn: str, chain: str, *, payloads: Path | None = None) -> Stored:
    """Everything, in one snapshot; large values are read from their folder."""
    async with await psycopg.AsyncConnection.connect(dsn, row_factory=dict_row) as connection:
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.set_read_only(True)
        tables = {}
        for table in TABLES:
            name = sql.Identifier(f"{chain}_raw", table)
            cursor = await connection.execute(sql.SQL("SELECT * FROM {}").format(name))
            tables[table] = await cursor.fetchall()
    for dataset in evm.DATASETS:
        for payload in dataset.payloads:
            for row in tables[dataset.name]:
                if row[payload.hash_column] is not None:
                    assert payloads is not None, "large values need their folder"
                    value = (payloads / row[payload.ref_column]).read_bytes()
                    assert hashlib.sha256(value).digest() == row[payload.hash_column]
                    row[payload.column] = value
    return Stored(tables=tables)


async def one(dsn: str, query: str, *parameters: Any) -> Any:
    """The first value of the first row, None where there is none; for conditions to wait for."""
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        row = await (await connection.execute(query, parameters)).fetchone()
        return None if row is None else row[0]


def _number(dataset: str) -> str:
    return "number" if dataset == "blocks" else "block_number"
