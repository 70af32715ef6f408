"""Owns how a devnet block reads over JSON-RPC: the answers geth and parity would give for it.

Written from the block's values alone and apart from the oracle of expected rows, so that the two
are independent readings of one block. Quantities have no leading zeros, data keeps every byte, and
a field that the rules of a block do not have yet is absent. Everything here is pure; what is asked
often is kept as bytes by `fragments`.
"""

from __future__ import annotations

from typing import Any

from unfork.devnet.block import Block, Call, Executed
from unfork.proof import receipt as proof_receipt
from unfork.proof.receipt import Withdrawal

Json = dict[str, Any]

#: Gas that one blob takes.
BLOB_GAS = 131_072
#: Price of blob gas in Wei; the devnet never has enough blobs to raise it.
BLOB_GAS_PRICE = 1

_NO_BLOOM = bytes(256)


def block(block: Block, *, full: bool) -> Json:
    """The answer of eth_getBlockByNumber and ByHash, with transactions whole or as hashes."""
    answer = header(block)
    answer["size"] = hex(block.size)
    answer["uncles"] = []
    answer["transactions"] = (
        transactions(block) if full else [data(each.hash) for each in block.transactions]
    )
    if block.header.withdrawals_root is not None:
        answer["withdrawals"] = [_withdrawal(each) for each in block.withdrawals]
    return answer


def header(block: Block) -> Json:
    """What newHeads announces: the header and its hash."""
    own = block.header
    answer: Json = {
        "hash": data(block.hash),
        "number": hex(own.number),
        "parentHash": data(own.parent_hash),
        "sha3Uncles": data(own.sha3_uncles),
        "miner": data(own.miner),
        "stateRoot": data(own.state_root),
        "transactionsRoot": data(own.transactions_root),
        "receiptsRoot": data(own.receipts_root),
        "logsBloom": data(own.logs_bloom),
        "difficulty": hex(own.difficulty),
        "gasLimit": hex(own.gas_limit),
        "gasUsed": hex(own.gas_used),
        "timestamp": hex(own.timestamp),
        "extraData": data(own.extra_data),
        "mixHash": data(own.mix_hash),
        "nonce": data(own.nonce),
    }
    if own.base_fee_per_gas is not None:
        answer["baseFeePerGas"] = hex(own.base_fee_per_gas)
    if own.withdrawals_root is not None:
        answer["withdrawalsRoot"] = data(own.withdrawals_root)
    if own.blob_gas_used is not None:
        answer["blobGasUsed"] = hex(own.blob_gas_used)
    if own.excess_blob_gas is not None:
        answer["excessBlobGas"] = hex(own.excess_blob_gas)
    if own.parent_beacon_block_root is not None:
        answer["parentBeaconBlockRoot"] = data(own.parent_beacon_block_root)
    if own.requests_hash is not None:
        answer["requestsHash"] = data(own.requests_hash)
    return answer


def transactions(block: Block) -> list[Json]:
    """Every transaction of a block, whole."""
    place = _place(block)
    return [
        _transaction(executed, index, place) for index, executed in enumerate(block.transactions)
    ]


def receipts(block: Block) -> list[Json]:
    """The answer of eth_getBlockReceipts."""
    # An unproven tree leaves the header's bloom empty; a receipt's bloom must not contradict it.
    is_bloomed = block.header.logs_bloom != _NO_BLOOM
    place = _place(block)
    return [
        _receipt(executed, index, place, is_bloomed=is_bloomed)
        for index, executed in enumerate(block.transactions)
    ]


def logs(block: Block) -> list[Json]:
    """Every log of a block in order, as eth_getLogs gives them."""
    place = _place(block)
    return [
        log
        for index, executed in enumerate(block.transactions)
        for log in _logs(executed, index, place)
    ]


def flat_traces(block: Block) -> list[Json]:
    """The answer of trace_block: parity's flat list, each call with its path."""
    # Parity's own quirk: positions in a trace are plain numbers, not quantities.
    place = {"blockHash": data(block.hash), "blockNumber": block.number}
    return [
        {
            **_flat(call),
            **place,
            "transactionHash": data(executed.hash),
            "transactionPosition": index,
        }
        for index, executed in enumerate(block.transactions)
        for call in executed.calls
    ]


def call_traces(block: Block) -> list[Json]:
    """The answer of debug_traceBlockByHash with the callTracer: one tree of calls each."""
    return [
        {"txHash": data(executed.hash), "result": _nested(executed.calls)}
        for executed in block.transactions
    ]


def data(value: bytes) -> str:
    """Bytes as JSON-RPC writes them."""
    return "0x" + value.hex()


def _place(block: Block) -> Json:
    return {
        "blockHash": data(block.hash),
        "blockNumber": hex(block.number),
        "blockTimestamp": hex(block.header.timestamp),
    }


def _transaction(executed: Executed, index: int, place: Json) -> Json:
    own = executed.transaction
    answer: Json = {
        **place,
        "transactionIndex": hex(index),
        "hash": data(executed.hash),
        "type": hex(own.type),
        "nonce": hex(own.nonce),
        "from": data(executed.sender),
        "to": None if own.to is None else data(own.to),
        "value": hex(own.value),
        "gas": hex(own.gas),
        "input": data(own.input),
        "v": hex(own.v),
        "r": hex(own.r),
        "s": hex(own.s),
    }
    if own.type == 0:
        # A protected signature carries the chain in v; the ones before EIP-155 name none.
        if own.v >= 35:
            answer["chainId"] = hex((own.v - 35) // 2)
    else:
        assert own.chain_id is not None
        answer["chainId"] = hex(own.chain_id)
        answer["yParity"] = hex(own.v)
        answer["accessList"] = [
            {"address": data(address), "storageKeys": [data(key) for key in keys]}
            for address, keys in own.access_list
        ]
    if own.type < 2:
        assert own.gas_price is not None
        answer["gasPrice"] = hex(own.gas_price)
    else:
        assert own.max_fee_per_gas is not None and own.max_priority_fee_per_gas is not None
        # In a mined transaction geth shows the price that was really paid.
        answer["gasPrice"] = hex(executed.effective_gas_price)
        answer["maxFeePerGas"] = hex(own.max_fee_per_gas)
        answer["maxPriorityFeePerGas"] = hex(own.max_priority_fee_per_gas)
    if own.type == 3:
        assert own.max_fee_per_blob_gas is not None
        answer["maxFeePerBlobGas"] = hex(own.max_fee_per_blob_gas)
        answer["blobVersionedHashes"] = [data(each) for each in own.blob_versioned_hashes]
    if own.type == 4:
        answer["authorizationList"] = [
            {
                "chainId": hex(each.chain_id),
                "address": data(each.address),
                "nonce": hex(each.nonce),
                "yParity": hex(each.y_parity),
                "r": hex(each.r),
                "s": hex(each.s),
            }
            for each in own.authorization_list
        ]
    return answer


def _receipt(executed: Executed, index: int, place: Json, *, is_bloomed: bool) -> Json:
    own = executed.transaction
    bloom = proof_receipt.bloom(executed.logs) if is_bloomed else _NO_BLOOM
    created = executed.contract_address
    answer: Json = {
        "blockHash": place["blockHash"],
        "blockNumber": place["blockNumber"],
        "transactionHash": data(executed.hash),
        "transactionIndex": hex(index),
        "type": hex(own.type),
        "status": hex(executed.status),
        "from": data(executed.sender),
        "to": None if own.to is None else data(own.to),
        "contractAddress": None if created is None else data(created),
        "gasUsed": hex(executed.gas_used),
        "cumulativeGasUsed": hex(executed.cumulative_gas_used),
        "effectiveGasPrice": hex(executed.effective_gas_price),
        "logs": _logs(executed, index, place),
        "logsBloom": data(bloom),
    }
    if own.type == 3:
        answer["blobGasUsed"] = hex(BLOB_GAS * len(own.blob_versioned_hashes))
        answer["blobGasPrice"] = hex(BLOB_GAS_PRICE)
    return answer


def _logs(executed: Executed, index: int, place: Json) -> list[Json]:
    shared = {
        **place,
        "transactionHash": data(executed.hash),
        "transactionIndex": hex(index),
        "removed": False,
    }
    return [
        {
            "address": data(log.address),
            "topics": [data(topic) for topic in log.topics],
            "data": data(log.data),
            "logIndex": hex(log_index),
            **shared,
        }
        for log, log_index in zip(executed.logs, executed.log_indexes, strict=True)
    ]


def _withdrawal(own: Withdrawal) -> Json:
    return {
        "index": hex(own.index),
        "validatorIndex": hex(own.validator_index),
        "address": data(own.address),
        "amount": hex(own.amount),
    }


def _flat(call: Call) -> Json:
    answer: Json = {
        "action": _action(call),
        "subtraces": call.subtraces,
        "traceAddress": list(call.path),
        "type": call.type,
    }
    if call.error is not None:
        answer["error"] = call.error
    else:
        answer["result"] = _result(call)
    return answer


def _action(call: Call) -> Json:
    if call.type == "suicide":
        assert call.to is not None
        return {
            "address": data(call.sender),
            "refundAddress": data(call.to),
            "balance": hex(call.value),
        }
    shared = {"from": data(call.sender), "gas": hex(call.gas), "value": hex(call.value)}
    if call.type == "create":
        return {**shared, "creationMethod": "create", "init": data(call.input)}
    assert call.to is not None
    return {**shared, "callType": call.call_type, "to": data(call.to), "input": data(call.input)}


def _result(call: Call) -> Json | None:
    if call.type == "suicide":
        return None
    if call.type == "create":
        assert call.to is not None
        return {
            "address": data(call.to),
            "code": data(call.output),
            "gasUsed": hex(call.gas_used),
        }
    return {"gasUsed": hex(call.gas_used), "output": data(call.output)}


def _nested(calls: tuple[Call, ...]) -> Json:
    """The tree of calls; they come depth first, so a call's parent is always there already."""
    by_path: dict[tuple[int, ...], Json] = {}
    for call in calls:
        frame = _frame(call)
        by_path[call.path] = frame
        if call.path:
            by_path[call.path[:-1]].setdefault("calls", []).append(frame)
    return by_path[()]


def _frame(call: Call) -> Json:
    """One call as geth's callTracer writes it: what is empty is left out."""
    frame: Json = {
        "type": _frame_type(call),
        "from": data(call.sender),
        "gas": hex(call.gas),
        "gasUsed": hex(call.gas_used),
        "input": data(call.input),
    }
    # A contract whose creation failed has no address.
    if call.to is not None and not (call.type == "create" and call.error is not None):
        frame["to"] = data(call.to)
    if call.output:
        frame["output"] = data(call.output)
    if call.call_type != "staticcall":
        frame["value"] = hex(call.value)
    if call.error is not None:
        frame["error"] = _GETH_ERRORS.get(call.error, call.error)
    return frame


#: The same failures in the words of parity and of geth.
_GETH_ERRORS = {"Reverted": "execution reverted", "Out of gas": "out of gas"}


def _frame_type(call: Call) -> str:
    if call.type == "suicide":
        return "SELFDESTRUCT"
    return (call.call_type or call.type).upper()
