"""Declares the raw datasets of an EVM chain, named after ethereum-etl where it has a name.

Keys are positional: a transaction hash may come back in another block, a position cannot.
"""

from __future__ import annotations

from unfork.datasets.dataset import Column, Dataset, Kind, Payload

INT, U256, BYTES, TEXT, TIME = Kind.INT, Kind.U256, Kind.BYTES, Kind.TEXT, Kind.TIME

#: The columns that place a row on the chain; every dataset but blocks starts with them.
PLACE = (
    Column("block_number", INT),
    Column("block_hash", BYTES),
    Column("block_timestamp", TIME),
)

BLOCKS = Dataset(
    name="blocks",
    family="evm",
    columns=(
        Column("number", INT),
        Column("hash", BYTES),
        Column("parent_hash", BYTES),
        Column("timestamp", TIME),
        Column("nonce", BYTES, nullable=True),
        Column("mix_hash", BYTES, nullable=True),
        Column("sha3_uncles", BYTES, nullable=True),
        Column("logs_bloom", BYTES, nullable=True),
        Column("transactions_root", BYTES, nullable=True),
        Column("state_root", BYTES, nullable=True),
        Column("receipts_root", BYTES, nullable=True),
        Column("miner", BYTES, nullable=True),
        Column("difficulty", U256, nullable=True),
        Column("total_difficulty", U256, nullable=True),
        Column("size", INT, nullable=True),
        Column("extra_data", BYTES, nullable=True),
        Column("gas_limit", INT, nullable=True),
        Column("gas_used", INT, nullable=True),
        Column("base_fee_per_gas", U256, nullable=True),
        Column("withdrawals_root", BYTES, nullable=True),
        Column("blob_gas_used", INT, nullable=True),
        Column("excess_blob_gas", INT, nullable=True),
        Column("parent_beacon_block_root", BYTES, nullable=True),
        Column("requests_hash", BYTES, nullable=True),
        #: NULL where the scope does not include transactions and the node did not list them.
        Column("transaction_count", INT, nullable=True),
    ),
    key=("number",),
    partition_size=5_000_000,
    row_bytes=900,
)

TRANSACTIONS = Dataset(
    name="transactions",
    family="evm",
    columns=(
        *PLACE,
        Column("transaction_index", INT),
        Column("hash", BYTES),
        Column("transaction_type", INT),
        Column("nonce", INT),
        Column("from_address", BYTES),
        Column("to_address", BYTES, nullable=True),
        Column("value", U256),
        Column("gas", INT),
        Column("gas_price", U256, nullable=True),
        Column("max_fee_per_gas", U256, nullable=True),
        Column("max_priority_fee_per_gas", U256, nullable=True),
        Column("max_fee_per_blob_gas", U256, nullable=True),
        Column("blob_versioned_hashes", Kind.BYTES_LIST, nullable=True),
        Column("access_list", Kind.JSON, nullable=True),
        Column("authorization_list", Kind.JSON, nullable=True),
        Column("chain_id", U256, nullable=True),
        Column("v", U256, nullable=True),
        Column("r", U256, nullable=True),
        Column("s", U256, nullable=True),
        Column("input", BYTES),
        Column("status", INT, nullable=True),
        Column("root", BYTES, nullable=True),
        Column("gas_used", INT, nullable=True),
        Column("cumulative_gas_used", INT, nullable=True),
        Column("effective_gas_price", U256, nullable=True),
        Column("contract_address", BYTES, nullable=True),
        Column("blob_gas_used", INT, nullable=True),
        Column("blob_gas_price", U256, nullable=True),
    ),
    key=("block_number", "transaction_index"),
    partition_size=1_000_000,
    payloads=(Payload("input", "payload_hash", "payload_ref"),),
    row_bytes=600,
)

LOGS = Dataset(
    name="logs",
    family="evm",
    columns=(
        *PLACE,
        Column("transaction_hash", BYTES),
        Column("transaction_index", INT),
        Column("log_index", INT),
        Column("address", BYTES),
        Column("topic0", BYTES, nullable=True),
        Column("topic1", BYTES, nullable=True),
        Column("topic2", BYTES, nullable=True),
        Column("topic3", BYTES, nullable=True),
        Column("data", BYTES),
    ),
    key=("block_number", "log_index"),
    partition_size=500_000,
    payloads=(Payload("data", "payload_hash", "payload_ref"),),
    row_bytes=450,
    indexes=(("address", "block_number"),),
)

TRACES = Dataset(
    name="traces",
    family="evm",
    columns=(
        *PLACE,
        Column("transaction_hash", BYTES, nullable=True),
        Column("transaction_index", INT, nullable=True),
        #: Position of the trace in its block.
        Column("trace_index", INT),
        #: Path in the call tree as "0,2,1"; empty for the outermost call.
        Column("trace_address", TEXT),
        Column("trace_type", TEXT),
        Column("call_type", TEXT, nullable=True),
        Column("reward_type", TEXT, nullable=True),
        Column("from_address", BYTES, nullable=True),
        Column("to_address", BYTES, nullable=True),
        Column("value", U256, nullable=True),
        Column("gas", INT, nullable=True),
        Column("gas_used", INT, nullable=True),
        Column("input", BYTES, nullable=True),
        Column("output", BYTES, nullable=True),
        Column("subtraces", INT),
        Column("error", TEXT, nullable=True),
        #: 1 where the call and all calls around it took effect, else 0.
        Column("status", INT),
    ),
    key=("block_number", "trace_index"),
    partition_size=500_000,
    payloads=(
        Payload("input", "payload_hash", "payload_ref"),
        Payload("output", "output_payload_hash", "output_payload_ref"),
    ),
    row_bytes=500,
)

WITHDRAWALS = Dataset(
    name="withdrawals",
    family="evm",
    columns=(
        *PLACE,
        #: Position of the withdrawal in its block.
        Column("withdrawal_index", INT),
        #: The consensus layer's own running number.
        Column("index", INT),
        Column("validator_index", INT),
        Column("address", BYTES),
        #: In Gwei.
        Column("amount", U256),
    ),
    key=("block_number", "withdrawal_index"),
    partition_size=5_000_000,
    row_bytes=160,
)

DATASETS = (BLOCKS, TRANSACTIONS, LOGS, TRACES, WITHDRAWALS)
BY_NAME = {dataset.name: dataset for dataset in DATASETS}
