"""Owns the way from a node's JSON to rows, field by field, for proofs of a single answer.

Slow and plain on purpose: it is a second reading beside the source's fast decoder, so that a
mistake in one shows against the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unfork.proof.fields import Row
from unfork.proof.rows import Rows

#: A JSON object.
Json = dict[str, Any]


def rows(block: Json, receipts: Sequence[Json] | None) -> Rows:
    """The rows of a block with full transactions; receipts in block order, None if not asked for.

    Raises KeyError or ValueError where an answer is no block at all.
    """
    place = {
        "block_number": _number(block["number"]),
        "block_hash": _bytes(block["hash"]),
        "block_timestamp": _number(block["timestamp"]),
    }
    transactions = block["transactions"]
    by_hash = {receipt["transactionHash"]: receipt for receipt in receipts or ()}
    given = block.get("withdrawals")
    return Rows(
        block=_block(block),
        transactions=[
            {**place, **_transaction(part, by_hash.get(part["hash"], {}))} for part in transactions
        ],
        logs=None
        if receipts is None
        else [{**place, **_log(log)} for receipt in receipts for log in receipt["logs"]],
        # A root without its list is a list that was left out, not an empty one.
        withdrawals=None
        if given is None and block.get("withdrawalsRoot") is not None
        else [
            {**place, "withdrawal_index": at, **_withdrawal(part)}
            for at, part in enumerate(given or ())
        ],
    )


def _block(block: Json) -> Row:
    row = {
        _snake(name): _bytes(block.get(name))
        for name in (
            *("hash", "parentHash", "nonce", "mixHash", "sha3Uncles", "logsBloom"),
            *("transactionsRoot", "stateRoot", "receiptsRoot", "miner", "extraData"),
            *("withdrawalsRoot", "parentBeaconBlockRoot", "requestsHash"),
        )
    }
    numbers = {
        _snake(name): _number(block.get(name))
        for name in (
            *("number", "timestamp", "difficulty", "totalDifficulty", "size", "gasLimit"),
            *("gasUsed", "baseFeePerGas", "blobGasUsed", "excessBlobGas"),
        )
    }
    return {**row, **numbers, "transaction_count": len(block["transactions"])}


def _transaction(part: Json, receipt: Json) -> Row:
    kind = _number(part.get("type", "0x0"))
    numbers = {
        _snake(name): _number(part.get(name))
        for name in (
            *("transactionIndex", "nonce", "value", "gas", "gasPrice", "chainId", "r", "s"),
            *("maxFeePerGas", "maxPriorityFeePerGas", "maxFeePerBlobGas"),
        )
    }
    # From type 1 on v is the parity; some nodes give only one of the two names.
    parity = part.get("yParity") if kind else None
    root = receipt.get("root")
    return {
        **numbers,
        "v": _number(part.get("v") if parity is None else parity),
        "transaction_type": kind,
        "hash": _bytes(part["hash"]),
        "from_address": _bytes(part.get("from")),
        "to_address": _bytes(part.get("to")),
        "input": _bytes(part.get("input")),
        "access_list": part.get("accessList"),
        "authorization_list": part.get("authorizationList"),
        "blob_versioned_hashes": part.get("blobVersionedHashes"),
        "status": _number(receipt.get("status")),
        "root": _bytes(root) if root not in (None, "0x") else None,
        "gas_used": _number(receipt.get("gasUsed")),
        "cumulative_gas_used": _number(receipt.get("cumulativeGasUsed")),
        "effective_gas_price": _number(receipt.get("effectiveGasPrice")),
        "contract_address": _bytes(receipt.get("contractAddress")),
        "blob_gas_used": _number(receipt.get("blobGasUsed")),
        "blob_gas_price": _number(receipt.get("blobGasPrice")),
    }


def _log(log: Json) -> Row:
    topics = log["topics"]
    return {
        "transaction_hash": _bytes(log["transactionHash"]),
        "transaction_index": _number(log["transactionIndex"]),
        "log_index": _number(log["logIndex"]),
        "address": _bytes(log["address"]),
        "data": _bytes(log["data"]),
        **{f"topic{at}": _bytes(topic) for at, topic in enumerate(topics)},
    }


def _withdrawal(part: Json) -> Row:
    return {
        "index": _number(part["index"]),
        "validator_index": _number(part["validatorIndex"]),
        "address": _bytes(part["address"]),
        "amount": _number(part["amount"]),
    }


def _snake(name: str) -> str:
    """parentHash as parent_hash; sha3Uncles as sha3_uncles."""
    return "".join("_" + letter.lower() if letter.isupper() else letter for letter in name)


def _number(text: str | None) -> int | None:
    return None if text is None else int(text, 16)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text[2:])
