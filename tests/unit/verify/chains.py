"""Chains of made blocks with the lookups that belong to them, as the hot store holds them."""

from __future__ import annotations

from tests.unit.proof import made
from unfork.proof.rows import Rows
from unfork.verify.stored import Stored


def held(rows: Rows) -> Stored:
    """The block with the lookups that belong to it."""
    row = rows.block
    return Stored(
        rows=rows,
        block_lookup=[{"id": row["hash"], "timestamp": row["timestamp"]}],
        tx_lookup=[
            {
                "id": part["hash"],
                "transaction_index": part["transaction_index"],
                "timestamp": part["block_timestamp"],
            }
            for part in rows.transactions or ()
        ],
    )


def chain(length: int) -> list[Stored]:
    """Blocks that follow each other from genesis on."""
    blocks: list[Rows] = []
    for seed in range(length):
        blocks.append(made.block(seed, parent=blocks[-1] if blocks else None, size=seed % 4))
    return [held(rows) for rows in blocks]
