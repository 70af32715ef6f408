"""Owns the dataset `enriched_transfers`: transfers with what their transaction and block say.

Whoever asks what a transfer was part of need not join large tables: who signed the transaction and
what he called, whether it worked, what it paid.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.datasets.dataset import Kind
from unfork.jobs.transforms import word
from unfork.jobs.transforms.columns import typed
from unfork.jobs.transforms.names import BLOCK, ENRICHED
from unfork.jobs.transforms.transfers import token_transfers


def enrich_transfers(logs: DataFrame, transactions: DataFrame, blocks: DataFrame) -> DataFrame:
    """One row a transfer, as `token_transfers` has it, with its transaction and its block."""
    transfers = token_transfers(logs)
    around = transactions.select(*ENRICHED["transactions"]).select(
        "block_number",
        "transaction_index",
        F.expr("from_address AS transaction_from_address"),
        F.expr("to_address AS transaction_to_address"),
        typed("value", "transaction_value", Kind.U256),
        F.expr(f"{word.selector('input')} AS transaction_method"),
        F.expr("gas_used AS transaction_gas_used"),
        typed("effective_gas_price", "transaction_effective_gas_price", Kind.U256),
        F.expr("status AS transaction_status"),
    )
    above = blocks.select(*ENRICHED["blocks"]).select(
        F.expr("number AS block_number"),
        F.expr("miner AS block_miner"),
        typed("base_fee_per_gas", "block_base_fee_per_gas", Kind.U256),
    )
    # All of it comes in the order of the chain: sorting it is little, sending it around is more.
    # Transactions and blocks come first because Spark would send transfers around otherwise.
    context = around.join(above.hint("merge"), on=["block_number"], how="left")
    joined = transfers.join(
        context.hint("merge"), on=["block_number", "transaction_index"], how="left"
    )
    own = [name for name in transfers.columns if name not in BLOCK]
    added = [*around.columns[2:], *above.columns[1:]]
    return joined.select(*BLOCK, *own, *added)
