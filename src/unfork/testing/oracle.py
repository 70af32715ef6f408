"""Owns the expected rows: what every table must hold for a block of the devnet.

It reads the block's own values, field by field, and shares no code with the rendering of JSON-RPC
answers nor with the decoding of them: where the two roads meet, both are right or both are wrong
in the same way by accident.

Values are plain Python ones: int (256-bit numbers too), bytes, str, datetime in UTC, lists, and
parsed JSON documents.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from unfork.datasets import evm
from unfork.devnet.block import Block, Call, Executed
from unfork.devnet.tree import Tree
from unfork.proof.transaction import Authorization, Transaction

Row = dict[str, Any]
#: Rows by the name of their dataset; every EVM dataset is there, if only as an empty list.
Rows = dict[str, list[Row]]

BLOB_GAS = 131_072


def rows(block: Block) -> Rows:
    """Every row of one block, in the order of the block."""
    place = {
        "block_number": block.number,
        "block_hash": block.hash,
        "block_timestamp": datetime.fromtimestamp(block.header.timestamp, UTC),
    }
    executed = list(enumerate(block.transactions))
    return {
        "blocks": [_block(block)],
        "transactions": [{**place, **_transaction(each, index)} for index, each in executed],
        "logs": [{**place, **log} for index, each in executed for log in _logs(each, index)],
        "traces": [
            {**place, "trace_index": position, **trace}
            for position, trace in enumerate(
                trace for index, each in executed for trace in _traces(each, index)
            )
        ],
        "withdrawals": [
            {
                **place,
                "withdrawal_index": position,
                "index": withdrawal.index,
                "validator_index": withdrawal.validator_index,
                "address": withdrawal.address,
                "amount": withdrawal.amount,
            }
            for position, withdrawal in enumerate(block.withdrawals)
        ],
    }


def rows_of(blocks: Iterable[Block]) -> Rows:
    """Every row of several blocks, in their order."""
    together: Rows = {dataset.name: [] for dataset in evm.DATASETS}
    for block in blocks:
        for name, some in rows(block).items():
            together[name] += some
    return together


def canonical_rows(tree: Tree, first: int, last: int) -> Rows:
    """Every row of the canonical blocks from first to last; numbers above the head have none."""
    blocks = (tree.at(number) for number in range(first, last + 1))
    return rows_of(block for block in blocks if block is not None)


def _block(block: Block) -> Row:
    header = block.header
    return {
        "number": header.number,
        "hash": block.hash,
        "parent_hash": header.parent_hash,
        "timestamp": datetime.fromtimestamp(header.timestamp, UTC),
        "nonce": header.nonce,
        "mix_hash": header.mix_hash,
        "sha3_uncles": header.sha3_uncles,
        "logs_bloom": header.logs_bloom,
        "transactions_root": header.transactions_root,
        "state_root": header.state_root,
        "receipts_root": header.receipts_root,
        "miner": header.miner,
        "difficulty": header.difficulty,
        # No node gives it any more.
        "total_difficulty": None,
        "size": block.size,
        "extra_data": header.extra_data,
        "gas_limit": header.gas_limit,
        "gas_used": header.gas_used,
        "base_fee_per_gas": header.base_fee_per_gas,
        "withdrawals_root": header.withdrawals_root,
        "blob_gas_used": header.blob_gas_used,
        "excess_blob_gas": header.excess_blob_gas,
        "parent_beacon_block_root": header.parent_beacon_block_root,
        "requests_hash": header.requests_hash,
        "transaction_count": len(block.transactions),
    }


def _transaction(executed: Executed, index: int) -> Row:
    own = executed.transaction
    is_blob = own.type == 3
    return {
        "transaction_index": index,
        "hash": executed.hash,
        "transaction_type": own.type,
        "nonce": own.nonce,
        "from_address": executed.sender,
        "to_address": own.to,
        "value": own.value,
        "gas": own.gas,
        # From type 2 on a node shows the price paid, for the transaction itself names none.
        "gas_price": own.gas_price if own.type < 2 else executed.effective_gas_price,
        "max_fee_per_gas": own.max_fee_per_gas,
        "max_priority_fee_per_gas": own.max_priority_fee_per_gas,
        "max_fee_per_blob_gas": own.max_fee_per_blob_gas,
        "blob_versioned_hashes": list(own.blob_versioned_hashes) if is_blob else None,
        "access_list": _access_list(own) if own.type >= 1 else None,
        "authorization_list": (
            [_authorization(each) for each in own.authorization_list] if own.type == 4 else None
        ),
        "chain_id": _chain_id(own),
        "v": own.v,
        "r": own.r,
        "s": own.s,
        "input": own.input,
        "status": executed.status,
        "root": None,
        "gas_used": executed.gas_used,
        "cumulative_gas_used": executed.cumulative_gas_used,
        "effective_gas_price": executed.effective_gas_price,
        "contract_address": executed.contract_address,
        "blob_gas_used": BLOB_GAS * len(own.blob_versioned_hashes) if is_blob else None,
        "blob_gas_price": 1 if is_blob else None,
    }


def _chain_id(own: Transaction) -> int | None:
    """The chain a transaction is signed for; a legacy one says it in v, or not at all (27, 28)."""
    if own.type > 0:
        return own.chain_id
    return None if own.v in (27, 28) else (own.v - 35) >> 1


def _access_list(own: Transaction) -> list[dict[str, Any]]:
    return [
        {"address": f"0x{address.hex()}", "storageKeys": [f"0x{key.hex()}" for key in keys]}
        for address, keys in own.access_list
    ]


def _authorization(own: Authorization) -> dict[str, str]:
    return {
        "chainId": f"{own.chain_id:#x}",
        "address": f"0x{own.address.hex()}",
        "nonce": f"{own.nonce:#x}",
        "yParity": f"{own.y_parity:#x}",
        "r": f"{own.r:#x}",
        "s": f"{own.s:#x}",
    }


def _logs(executed: Executed, index: int) -> list[Row]:
    found = []
    for log, log_index in zip(executed.logs, executed.log_indexes, strict=True):
        first, second, third, fourth = (*log.topics, None, None, None, None)[:4]
        found.append(
            {
                "transaction_hash": executed.hash,
                "transaction_index": index,
                "log_index": log_index,
                "address": log.address,
                "topic0": first,
                "topic1": second,
                "topic2": third,
                "topic3": fourth,
                "data": log.data,
            }
        )
    return found


def _traces(executed: Executed, index: int) -> list[Row]:
    errors = {call.path for call in executed.calls if call.error is not None}
    return [
        {
            "transaction_hash": executed.hash,
            "transaction_index": index,
            "trace_address": ",".join(str(step) for step in call.path),
            "trace_type": call.type,
            "call_type": call.call_type,
            "reward_type": None,
            "from_address": call.sender,
            "to_address": call.to,
            "value": call.value,
            "subtraces": call.subtraces,
            "error": call.error,
            "status": 0 if any(call.path[:n] in errors for n in range(len(call.path) + 1)) else 1,
            **_gas_and_data(call),
        }
        for call in executed.calls
    ]


def _gas_and_data(call: Call) -> Row:
    """A contract's end has neither gas nor data; a call that failed has no result."""
    if call.type == "suicide":
        return {"gas": None, "gas_used": None, "input": None, "output": None}
    is_done = call.error is None
    return {
        "gas": call.gas,
        "gas_used": call.gas_used if is_done else None,
        "input": call.input,
        "output": call.output if is_done else None,
    }
