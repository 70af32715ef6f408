"""Owns the names of the columns that the built-in transforms read: of which input they read which.

A transform selects them first; whoever reads its inputs need not read more. It is apart from the
transforms because what plans and shows jobs has no Spark.
"""

from __future__ import annotations

#: The columns that place a row on the chain.
BLOCK = ("block_number", "block_hash", "block_timestamp")
#: Those of a row that lies in a transaction.
TRANSACTION = (*BLOCK, "transaction_hash", "transaction_index")

#: Of a log, to know which event it is.
LOGS = (
    *TRANSACTION,
    "log_index",
    "address",
    "topic0",
    "topic1",
    "topic2",
    "topic3",
    "data",
)
#: Of a trace, and what `internal_transactions` keeps.
TRACES = (
    *TRANSACTION,
    "trace_index",
    "trace_address",
    "trace_type",
    "call_type",
    "from_address",
    "to_address",
    "value",
    "gas",
    "gas_used",
    "error",
    "status",
)

ENRICHED = {
    "logs": LOGS,
    "transactions": (
        "block_number",
        "transaction_index",
        "from_address",
        "to_address",
        "value",
        "input",
        "gas_used",
        "effective_gas_price",
        "status",
    ),
    "blocks": ("number", "miner", "base_fee_per_gas"),
}
PARTICIPATION = {
    "transactions": (
        *BLOCK,
        "hash",
        "transaction_index",
        "from_address",
        "to_address",
        "contract_address",
        "status",
    ),
    "token_transfers": (*TRANSACTION, "from_address", "to_address"),
    "traces": TRACES,
}
STATS = {
    "transactions": (
        *BLOCK,
        "from_address",
        "to_address",
        "contract_address",
        "value",
        "status",
        "gas_used",
        "effective_gas_price",
    ),
    "token_transfers": (*BLOCK, "from_address", "to_address"),
    "traces": TRACES,
}
BALANCES = {
    "token_transfers": (
        *BLOCK,
        "standard",
        "token_address",
        "from_address",
        "to_address",
        "token_id",
        "amount",
    ),
}
DAYS = {
    "blocks": ("number", "hash", "timestamp", "gas_used"),
    "transactions": (
        "block_number",
        "block_timestamp",
        "from_address",
        "contract_address",
        "status",
        "value",
    ),
}

#: What `address_stats` counts.
COUNTS = (
    "transactions_sent",
    "transactions_received",
    "transactions_failed",
    "token_transfers_sent",
    "token_transfers_received",
    "internal_transactions_sent",
    "internal_transactions_received",
)
