"""Owns the expected rows of derived datasets, computed from devnet blocks in plain Python.

It shares nothing with the transforms but what the datasets mean: logs are read from the blocks
themselves, and numbers are Python's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from unfork.devnet.block import Block
from unfork.proof.keccak import keccak256

Row = dict[str, Any]

TRANSFER = keccak256(b"Transfer(address,address,uint256)")


def token_transfers(blocks: Iterable[Block]) -> list[Row]:
    """Every ERC-20 transfer, in the order of the chain; amounts are int."""
    found = []
    for block in blocks:
        for index, executed in enumerate(block.transactions):
            for log, log_index in zip(executed.logs, executed.log_indexes, strict=True):
                if len(log.topics) != 3 or log.topics[0] != TRANSFER or len(log.data) != 32:
                    continue
                found.append(
                    {
                        **_place(block),
                        "transaction_hash": executed.hash,
                        "transaction_index": index,
                        "log_index": log_index,
                        "batch_ordinal": 0,
                        "standard": "erc20",
                        "token_address": log.address,
                        "from_address": log.topics[1][12:],
                        "to_address": log.topics[2][12:],
                        "token_id": None,
                        "amount": int.from_bytes(log.data, "big"),
                    }
                )
    return found


def balance_deltas(blocks: Iterable[Block]) -> list[Row]:
    """What every block changed of every balance it touched; `balance` is what was added."""
    found = []
    for block in blocks:
        deltas: dict[tuple[bytes, bytes], int] = {}
        for row in token_transfers([block]):
            for address, amount in (
                (row["from_address"], -row["amount"]),
                (row["to_address"], row["amount"]),
            ):
                if any(address):
                    key = (row["token_address"], address)
                    deltas[key] = deltas.get(key, 0) + amount
        found += [
            {**_place(block), "token_address": token, "address": address, "balance": delta}
            for (token, address), delta in deltas.items()
        ]
    return found


def token_balances(blocks: Iterable[Block]) -> dict[tuple[bytes, bytes], int]:
    """The balance of every token and address that any block touched."""
    balances: dict[tuple[bytes, bytes], int] = {}
    for row in balance_deltas(blocks):
        key = (row["token_address"], row["address"])
        balances[key] = balances.get(key, 0) + row["balance"]
    return balances


def daily_summary(blocks: Iterable[Block]) -> list[Row]:
    """One row a UTC day, in order; sums are int."""
    days: dict[Any, list[Block]] = {}
    for block in blocks:
        moment = datetime.fromtimestamp(block.header.timestamp, UTC)
        days.setdefault(moment.date(), []).append(block)
    found = []
    for day, held in sorted(days.items()):
        last = max(held, key=lambda block: block.number)
        executed = [each for block in held for each in block.transactions]
        found.append(
            {
                "day": day,
                **_place(last),
                "first_block": min(block.number for block in held),
                "blocks": len(held),
                "transactions": len(executed),
                "failed_transactions": sum(each.status == 0 for each in executed),
                "senders": len({each.sender for each in executed}),
                "gas_used": sum(block.header.gas_used for block in held),
                "value_sum": sum(each.transaction.value for each in executed),
            }
        )
    return found


def _place(block: Block) -> Row:
    return {
        "block_number": block.number,
        "block_hash": block.hash,
        "block_timestamp": datetime.fromtimestamp(block.header.timestamp, UTC),
    }
