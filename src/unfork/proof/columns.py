"""Owns which check answers for which column, so that no column goes unproven without a word.

A column that a check could not prove is named in the report together with the check's reason. Each
column of each raw dataset stands here at least once; where several checks touch it, the ones named
are those without which a changed value would go unseen.
"""

from __future__ import annotations

from collections.abc import Mapping

from unfork.proof.finding import Check

#: Checks of columns that no block commits to, or not by rules that it names. What they cannot prove
#: is not held against a block; the report names it all the same.
UNCOMMITTED = frozenset(
    {Check.SENDERS, Check.BLOB_GAS_PRICES, Check.TOTAL_DIFFICULTY, Check.TRACE_VALUES}
)

#: Checks of values that some nodes and chains reckon otherwise, and that no hash contains. A stored
#: block that fails one is reported; a block is not refused for it when it arrives.
RECKONED = frozenset(
    {
        Check.BLOCK_SIZE,
        Check.TOTAL_DIFFICULTY,
        Check.GAS_PRICES,
        Check.BLOB_GAS_USED,
        Check.CREATED_CONTRACTS,
    }
)


def _of(dataset: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{dataset}.{name}" for name in names)


def _place(dataset: str, index: str | None = None) -> tuple[str, ...]:
    names = ("block_number", "block_hash", "block_timestamp")
    return _of(dataset, *names, *([index] if index else []))


#: The columns that each check answers for, as "dataset.column".
COVERED: Mapping[Check, tuple[str, ...]] = {
    Check.HEADER_HASH: _of(
        "blocks",
        *("number", "hash", "parent_hash", "timestamp", "nonce", "mix_hash", "sha3_uncles"),
        *("logs_bloom", "transactions_root", "state_root", "receipts_root", "miner"),
        *("difficulty", "extra_data", "gas_limit", "gas_used", "base_fee_per_gas"),
        *("withdrawals_root", "blob_gas_used", "excess_blob_gas", "parent_beacon_block_root"),
        "requests_hash",
    ),
    Check.TRANSACTION_COUNT: _of("blocks", "transaction_count"),
    Check.BLOCK_SIZE: _of("blocks", "size"),
    Check.TOTAL_DIFFICULTY: _of("blocks", "total_difficulty"),
    Check.PLACEMENT: (
        *_place("transactions", "transaction_index"),
        *_place("logs"),
        *_place("traces", "trace_index"),
        *_place("withdrawals", "withdrawal_index"),
    ),
    Check.TRANSACTION_HASHES: _of("transactions", "hash"),
    Check.TRANSACTIONS_ROOT: _of(
        "transactions",
        *("transaction_type", "nonce", "to_address", "value", "gas", "gas_price"),
        *("max_fee_per_gas", "max_priority_fee_per_gas", "max_fee_per_blob_gas"),
        *("blob_versioned_hashes", "access_list", "authorization_list", "chain_id"),
        *("v", "r", "s", "input"),
    ),
    Check.TRANSACTION_FIELDS: _of(
        "transactions",
        *("max_fee_per_gas", "max_priority_fee_per_gas", "max_fee_per_blob_gas"),
        *("blob_versioned_hashes", "access_list", "authorization_list", "chain_id", "root"),
    ),
    Check.SENDERS: _of("transactions", "from_address"),
    Check.CREATED_CONTRACTS: _of("transactions", "contract_address"),
    Check.GAS_PRICES: _of("transactions", "gas_price", "effective_gas_price"),
    Check.BLOB_GAS_USED: _of("transactions", "blob_gas_used"),
    Check.BLOB_GAS_PRICES: _of("transactions", "blob_gas_price"),
    Check.RECEIPTS_ROOT: (
        *_of("transactions", "status", "root", "cumulative_gas_used"),
        *_of("logs", "transaction_index", "address", "topic0", "topic1", "topic2", "topic3"),
        *_of("logs", "data"),
    ),
    Check.GAS_USED: _of("transactions", "gas_used"),
    Check.LOG_TRANSACTIONS: _of("logs", "transaction_hash"),
    Check.LOG_INDEXES: _of("logs", "log_index"),
    Check.WITHDRAWALS_ROOT: _of("withdrawals", "index", "validator_index", "address", "amount"),
    Check.TRACE_TREES: _of(
        "traces",
        *("transaction_hash", "transaction_index", "trace_address", "trace_type"),
        *("subtraces", "status"),
    ),
    Check.TRACE_VALUES: _of(
        "traces",
        *("call_type", "reward_type", "from_address", "to_address", "value", "gas"),
        *("gas_used", "input", "output", "error"),
    ),
    Check.PAYLOADS: (
        *_of("transactions", "payload_hash", "payload_ref"),
        *_of("logs", "payload_hash", "payload_ref"),
        *_of("traces", "payload_hash", "payload_ref", "output_payload_hash"),
        *_of("traces", "output_payload_ref"),
    ),
}
