"""Owns the dataset `address_transactions`: which transactions an address took part in, and how.

An address takes part as what a transaction names (sender, receiver, the contract it creates), as a
side of a token transfer, or as a side of an internal transaction. A chain without traces knows of
no internal transactions: then nobody has the roles of one, and nobody took part by them alone.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.jobs.transforms import topics
from unfork.jobs.transforms.columns import NOBODY
from unfork.jobs.transforms.internal import internal_transactions
from unfork.jobs.transforms.names import BLOCK, PARTICIPATION, TRANSACTION

#: Each role an address can have, as a bit.
ROLES = {
    "is_sender": 1,
    "is_receiver": 2,
    "is_created": 4,
    "is_token_sender": 8,
    "is_token_receiver": 16,
    "is_internal_sender": 32,
    "is_internal_receiver": 64,
}


def address_transactions(
    transactions: DataFrame, transfers: DataFrame, traces: DataFrame
) -> DataFrame:
    """One row an address and transaction, with every role that it had."""
    signed = transactions.select(*PARTICIPATION["transactions"]).select(
        *BLOCK,
        F.expr("hash AS transaction_hash"),
        "transaction_index",
        # Some nodes name the contract also where its creation failed.
        F.expr(
            "stack(3, from_address, 1, to_address, 2,"
            " CASE WHEN status = 0 THEN NULL ELSE contract_address END, 4) AS (address, role)"
        ),
    )
    moved = transfers.select(*PARTICIPATION["token_transfers"]).select(
        *TRANSACTION, F.expr("stack(2, from_address, 8, to_address, 16) AS (address, role)")
    )
    # What tokens come from and go to is nobody; Ether can be sent to its address.
    moved = moved.where(f"address <> {topics.literal(NOBODY)}")
    is_created = "trace_type = 'create' AND status = 1"
    within = internal_transactions(traces).select(
        *TRANSACTION,
        F.expr(
            f"stack(2, from_address, 32, to_address, CASE WHEN {is_created} THEN 4 ELSE 64 END)"
            " AS (address, role)"
        ),
    )
    everybody = signed.unionAll(moved).unionAll(within).where("address IS NOT NULL")
    gathered = everybody.groupBy("address", *TRANSACTION).agg(F.expr("bit_or(role) AS roles"))
    return gathered.select(
        # Always there, but Spark cannot know; the column is part of a primary key.
        F.expr("coalesce(address, X'') AS address"),
        *TRANSACTION,
        *(F.expr(f"(roles & {bit}) <> 0 AS {name}") for name, bit in ROLES.items()),
    )
