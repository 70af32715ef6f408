"""Owns what a chain's raw schema holds, read back as plain values, and the invariants over it.

It reads Postgres directly, with no code of the store but its schema's name, so that a mistake of
the store cannot hide itself.
"""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from unfork.datasets import evm
from unfork.datasets.dataset import Dataset

Row = dict[str, Any]


class RawReader:
    """One chain's raw schema through a connection of its own."""

    def __init__(self, connection: psycopg.Connection[Row], schema: str, payloads: Path) -> None:
        self._connection = connection
        self._schema = schema
        self._payloads = payloads

    @classmethod
    def connect(cls, dsn: str, schema: str, payloads: Path) -> RawReader:
        """Opens a reader of a chain's schema and its folder of payloads."""
        connection = psycopg.Connection.connect(dsn, autocommit=True, row_factory=dict_row)
        connection.execute("SET timezone = 'UTC'")
        return cls(connection, schema, payloads)

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def snapshot(self, datasets: tuple[str, ...]) -> dict[str, list[Row]]:
        """Every table at one moment: datasets, lookups, journal, orphaned blocks, chain row."""
        names = [*datasets, "tx_lookup", "block_lookup", "journal", "orphaned_blocks", "chain"]
        with self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            with self._connection.pipeline():
                cursors = [self._select(name) for name in names]
                found = {
                    name: cursor.fetchall() for name, cursor in zip(names, cursors, strict=True)
                }
        found["brought"] = [*found["blocks"], *found["orphaned_blocks"]]
        for name in datasets:
            found[name] = [_plain(row, evm.BY_NAME[name], self._payloads) for row in found[name]]
        return found

    def terminate_others(self) -> None:
        """Ends every connection of unfork to this database, as a restart of the server does."""
        self._connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE 'unfork%' AND datname = current_database()"
        )

    def _select(self, table: str) -> psycopg.Cursor[Row]:
        query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(self._schema, table))
        return self._connection.execute(query, binary=True)


def _plain(row: Row, dataset: Dataset, payloads: Path) -> Row:
    """The declared columns as the oracle has them; payloads put back in their place."""
    plain: Row = {}
    for column in dataset.columns:
        value = row[column.name]
        plain[column.name] = int(value) if isinstance(value, Decimal) else value
    for payload in dataset.payloads:
        if row[payload.ref_column] is not None:
            assert row[payload.column] is None, "a value is either in the row or elsewhere"
            value = (payloads / row[payload.ref_column]).read_bytes()
            assert hashlib.sha256(value).digest() == row[payload.hash_column]
            plain[payload.column] = value
    return plain


def check_journal(found: dict[str, list[Row]]) -> None:
    """The journal, replayed, leads to the position, and the blocks of every entry are there."""
    journal = sorted(found["journal"], key=lambda row: row["seq"])
    chain = found["chain"][0]
    assert [row["seq"] for row in journal] == list(range(1, chain["seq"] + 1)), "journal has gaps"
    held = sorted(found["blocks"], key=lambda row: row["number"])
    brought: dict[int, list[int]] = {}
    for row in found["brought"]:
        brought.setdefault(row["journal_seq"], []).append(row["number"])
    path: list[tuple[int, bytes]] = []
    for entry in journal:
        if entry["kind"] == "commit":
            assert not path or path[-1] == (entry["first"] - 1, entry["parent_hash"]), entry
            span = list(range(entry["first"], entry["last"] + 1))
            assert sorted(brought.pop(entry["seq"])) == span, "blocks of an entry are lost"
            # Only the last hash of a commit is in the journal; the others are not needed here.
            path += [(number, b"") for number in range(entry["first"], entry["last"])]
            path.append((entry["ref_number"], entry["ref_hash"]))
        else:
            assert path and path[-1][0] == entry["last"], entry
            path = [ref for ref in path if ref[0] < entry["first"]]
            if entry["ref_number"] is not None:
                assert path[-1][0] == entry["ref_number"], entry
                assert path[-1][1] in (b"", entry["ref_hash"]), entry
                path[-1] = (entry["ref_number"], entry["ref_hash"])
    assert not brought, "blocks that no entry brought"
    assert [number for number, _ in path] == [row["number"] for row in held]
    if path:
        assert path[-1] == (chain["position_number"], chain["position_hash"])
        assert path[-1] == (held[-1]["number"], held[-1]["hash"])


def check_lookups(found: dict[str, list[Row]]) -> None:
    """Both lookups hold exactly the blocks and transactions that the tables hold."""
    blocks = {(row["hash"], row["number"], row["timestamp"]) for row in found["blocks"]}
    seen = [(row["id"], row["block_number"], row["timestamp"]) for row in found["block_lookup"]]
    assert len(seen) == len(blocks) and set(seen) == blocks, "block_lookup differs from blocks"
    transactions = {
        (row["hash"], row["block_number"], row["transaction_index"], row["block_timestamp"])
        for row in found.get("transactions", [])
    }
    listed = [
        (row["id"], row["block_number"], row["transaction_index"], row["timestamp"])
        for row in found["tx_lookup"]
    ]
    assert len(listed) == len(transactions) and set(listed) == transactions, (
        "tx_lookup differs from transactions"
    )
