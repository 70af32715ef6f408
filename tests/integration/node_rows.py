"""Turns a node's own answers into the rows that must be stored, field by field.

Written for reading, not for speed, and without any of unfork's decoding.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.integration.anvil_node import Node

Row = dict[str, Any]
Json = dict[str, Any]


class NodeRows:
    """The rows of a node's canonical chain; what was read once by hash is not read again."""

    def __init__(self, node: Node, *, traces: bool) -> None:
        self._node = node
        self._traces = traces
        self._known: dict[str, dict[str, list[Row]]] = {}

    async def head(self) -> tuple[int, bytes]:
        """The node's tip."""
        block = await self._node.ask("eth_getBlockByNumber", "latest", False)
        return _int(block["number"]), _bytes(block["hash"])

    async def all(self) -> dict[str, list[Row]]:
        """Every row from block 0 to the head."""
        height = await self._node.height()
        calls = [("eth_getBlockByNumber", (hex(n), True)) for n in range(height + 1)]
        blocks = await self._node.ask_all(calls)
        for block in blocks:
            if block["hash"] not in self._known:
                self._known[block["hash"]] = await self._read(block)
        names = ("blocks", "transactions", "logs", "traces", "withdrawals")
        return {
            name: [row for block in blocks for row in self._known[block["hash"]][name]]
            for name in names
        }

    async def _read(self, block: Json) -> dict[str, list[Row]]:
        calls: list[tuple[str, tuple[Any, ...]]] = [("eth_getBlockReceipts", (block["number"],))]
        if self._traces:
            calls.append(("trace_block", (block["number"],)))
        receipts, *traces = await self._node.ask_all(calls)
        place = {
            "block_number": _int(block["number"]),
            "block_hash": _bytes(block["hash"]),
            "block_timestamp": _time(block["timestamp"]),
        }
        pairs = list(zip(block["transactions"], receipts, strict=True))
        for own, receipt in pairs:
            assert own["hash"] == receipt["transactionHash"]
            assert block["hash"] == receipt["blockHash"] == own["blockHash"]
        return {
            "blocks": [_block(block)],
            "transactions": [place | _transaction(own, receipt) for own, receipt in pairs],
            "logs": [place | _log(log) for receipt in receipts for log in receipt["logs"]],
            "traces": _traces(place, traces[0]) if traces else [],
            "withdrawals": [place | _withdrawal(i, w) for i, w in enumerate(block["withdrawals"])],
        }


def _block(block: Json) -> Row:
    return {
        "number": _int(block["number"]),
        "hash": _bytes(block["hash"]),
        "parent_hash": _bytes(block["parentHash"]),
        "timestamp": _time(block["timestamp"]),
        "nonce": _bytes(block["nonce"]),
        "mix_hash": _bytes(block["mixHash"]),
        "sha3_uncles": _bytes(block["sha3Uncles"]),
        "logs_bloom": _bytes(block["logsBloom"]),
        "transactions_root": _bytes(block["transactionsRoot"]),
        "state_root": _bytes(block["stateRoot"]),
        "receipts_root": _bytes(block["receiptsRoot"]),
        "miner": _bytes(block["miner"]),
        "difficulty": _int(block["difficulty"]),
        "total_difficulty": _int(block.get("totalDifficulty")),
        "size": _int(block["size"]),
        "extra_data": _bytes(block["extraData"]),
        "gas_limit": _int(block["gasLimit"]),
        "gas_used": _int(block["gasUsed"]),
        "base_fee_per_gas": _int(block["baseFeePerGas"]),
        "withdrawals_root": _bytes(block["withdrawalsRoot"]),
        "blob_gas_used": _int(block["blobGasUsed"]),
        "excess_blob_gas": _int(block["excessBlobGas"]),
        "parent_beacon_block_root": _bytes(block["parentBeaconBlockRoot"]),
        "requests_hash": _bytes(block["requestsHash"]),
        "transaction_count": len(block["transactions"]),
    }


def _transaction(own: Json, receipt: Json) -> Row:
    return {
        "transaction_index": _int(own["transactionIndex"]),
        "hash": _bytes(own["hash"]),
        "transaction_type": _int(own["type"]),
        "nonce": _int(own["nonce"]),
        "from_address": _bytes(own["from"]),
        "to_address": _bytes(own["to"]),
        "value": _int(own["value"]),
        "gas": _int(own["gas"]),
        "gas_price": _int(own["gasPrice"]),
        "max_fee_per_gas": _int(own.get("maxFeePerGas")),
        "max_priority_fee_per_gas": _int(own.get("maxPriorityFeePerGas")),
        "max_fee_per_blob_gas": None,
        "blob_versioned_hashes": None,
        "access_list": own.get("accessList"),
        "authorization_list": None,
        "chain_id": _int(own.get("chainId")),
        "v": _int(own["v"]),
        "r": _int(own["r"]),
        "s": _int(own["s"]),
        "input": _bytes(own["input"]),
        "status": _int(receipt["status"]),
        "root": None,
        "gas_used": _int(receipt["gasUsed"]),
        "cumulative_gas_used": _int(receipt["cumulativeGasUsed"]),
        "effective_gas_price": _int(receipt["effectiveGasPrice"]),
        "contract_address": _bytes(receipt["contractAddress"]),
        "blob_gas_used": _int(receipt.get("blobGasUsed")),
        "blob_gas_price": _int(receipt.get("blobGasPrice")),
    }


def _log(log: Json) -> Row:
    topics = [_bytes(topic) for topic in log["topics"]] + [None] * 4
    return {
        "transaction_hash": _bytes(log["transactionHash"]),
        "transaction_index": _int(log["transactionIndex"]),
        "log_index": _int(log["logIndex"]),
        "address": _bytes(log["address"]),
        "topic0": topics[0],
        "topic1": topics[1],
        "topic2": topics[2],
        "topic3": topics[3],
        "data": _bytes(log["data"]),
    }


def _traces(place: Row, traces: list[Json]) -> list[Row]:
    failed = {
        (trace["transactionHash"], tuple(trace["traceAddress"]))
        for trace in traces
        if "error" in trace
    }
    rows = []
    for index, trace in enumerate(traces):
        path = tuple(trace["traceAddress"])
        around = {(trace["transactionHash"], path[:n]) for n in range(len(path) + 1)}
        rows.append(place | _trace(trace, index) | {"status": 0 if around & failed else 1})
    return rows


def _trace(trace: Json, index: int) -> Row:
    # A call that failed has no result; anvil shows one all the same.
    action, result = trace["action"], {} if "error" in trace else trace["result"]
    is_creation = trace["type"] == "create"
    return {
        "transaction_hash": _bytes(trace["transactionHash"]),
        "transaction_index": trace["transactionPosition"],
        "trace_index": index,
        "trace_address": ",".join(str(step) for step in trace["traceAddress"]),
        "trace_type": trace["type"],
        "call_type": action.get("callType"),
        "reward_type": None,
        "from_address": _bytes(action["from"]),
        "to_address": _bytes(result.get("address") if is_creation else action["to"]),
        "value": _int(action["value"]),
        "gas": _int(action["gas"]),
        "gas_used": _int(result.get("gasUsed")),
        "input": _bytes(action["init"] if is_creation else action["input"]),
        "output": _bytes(result.get("code") if is_creation else result.get("output")),
        "subtraces": trace["subtraces"],
        "error": trace.get("error"),
    }


def _withdrawal(position: int, withdrawal: Json) -> Row:
    return {
        "withdrawal_index": position,
        "index": _int(withdrawal["index"]),
        "validator_index": _int(withdrawal["validatorIndex"]),
        "address": _bytes(withdrawal["address"]),
        "amount": _int(withdrawal["amount"]),
    }


def _int(text: str | None) -> int | None:
    return None if text is None else int(text, 16)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text[2:])


def _time(text: str) -> datetime:
    return datetime.fromtimestamp(int(text, 16), UTC)
