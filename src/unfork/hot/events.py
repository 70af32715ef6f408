"""Owns the cut summary of a transaction's logs that its row may carry, for people who debug.

Logs have a table of their own; repeating them in the transaction doubles the store. Where it is
asked for all the same (DENORMALIZE_EVENTS), a row carries how many there are and the first few by
place, address and topic, never their data.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa

#: Logs listed in one transaction's row; the count tells of the others.
LISTED_MAX = 16


def summaries(transactions: pa.Table, logs: pa.Table) -> pa.Array:
    """For every transaction a JSON document of its logs, NULL where it has none.

    Both tables are in chain order, as sources hand them on.
    """
    rows = logs.select(["log_index", "address", "topic0"]).to_pylist()
    starts = np.searchsorted(_places(logs), _places(transactions), side="left")
    ends = np.searchsorted(_places(logs), _places(transactions), side="right")
    return pa.array(
        [
            _summary(rows[start:end]) if end > start else None
            for start, end in zip(starts, ends, strict=True)
        ],
        pa.string(),
    )


def _places(table: pa.Table) -> np.ndarray:
    """Block number and transaction index of every row, as one value that sorts like the chain."""
    places = np.empty(table.num_rows, dtype=[("block", "i8"), ("index", "i8")])
    places["block"] = table["block_number"].to_numpy()
    places["index"] = table["transaction_index"].to_numpy()
    return places


def _summary(rows: list[dict[str, object]]) -> str:
    listed = [
        {
            "log_index": row["log_index"],
            "address": _hex(row["address"]),
            "topic0": _hex(row["topic0"]),
        }
        for row in rows[:LISTED_MAX]
    ]
    return json.dumps({"count": len(rows), "first": listed}, separators=(",", ":"))


def _hex(value: object) -> str | None:
    return "0x" + value.hex() if isinstance(value, bytes) else None
