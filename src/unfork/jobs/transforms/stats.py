"""Owns the dataset `address_stats`: what an address has done and what was done to it, in numbers.

A run returns what each block adds; the commit adds it up. What is counted as sent and received of
Ether is what really moved: the values of transactions that did not fail, and of internal
transactions that took effect. A chain without traces knows of none of the latter, so there these
sums are of transactions alone. Fees are no part of them: `gas_spent` has them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.jobs.transforms import topics, word
from unfork.jobs.transforms.columns import NOBODY, sum_of
from unfork.jobs.transforms.internal import internal_transactions
from unfork.jobs.transforms.names import BLOCK, COUNTS, STATS

_ADDED = (*COUNTS, "gas_used")


def address_stats(transactions: DataFrame, transfers: DataFrame, traces: DataFrame) -> DataFrame:
    """What each block adds to the numbers of each address that took part in it."""
    # Some nodes name the contract also where its creation failed.
    receiver = "coalesce(to_address, CASE WHEN status = 0 THEN NULL ELSE contract_address END)"
    signed = transactions.select(*STATS["transactions"]).select(
        *BLOCK,
        F.expr(f"stack(2, from_address, true, {receiver}, false) AS (address, is_sender)"),
        "value",
        "status",
        "gas_used",
        "effective_gas_price",
    )
    has_moved = "coalesce(status, 1) <> 0"
    signed = _sides(
        signed,
        transactions_sent="is_sender",
        transactions_received="NOT is_sender",
        transactions_failed="is_sender AND status = 0",
        value_sent=f"is_sender AND {has_moved}",
        value_received=f"NOT is_sender AND {has_moved}",
        is_paying="is_sender",
    )
    moved = transfers.select(*STATS["token_transfers"]).select(
        *BLOCK, F.expr("stack(2, from_address, true, to_address, false) AS (address, is_sender)")
    )
    moved = _sides(
        moved.where(f"address <> {topics.literal(NOBODY)}"),
        token_transfers_sent="is_sender",
        token_transfers_received="NOT is_sender",
    )
    within = internal_transactions(traces).select(
        *BLOCK,
        F.expr("stack(2, from_address, true, to_address, false) AS (address, is_sender)"),
        "value",
        "status",
    )
    within = _sides(
        within,
        internal_transactions_sent="is_sender",
        internal_transactions_received="NOT is_sender",
        value_sent="is_sender AND status = 1",
        value_received="NOT is_sender AND status = 1",
    )
    everything = signed.unionAll(moved).unionAll(within).where("address IS NOT NULL")
    gathered = everything.groupBy("address", *BLOCK).agg(
        *(F.expr(f"sum({name}) AS {name}") for name in _ADDED),
        *word.limb_sums("sent", "value_sent"),
        *word.limb_sums("received", "value_received"),
        *word.limb_sums("spent", "gas_price", "gas_used", limb_bytes=2),
    )
    return gathered.select(
        "address",
        *BLOCK,
        F.expr("block_number AS first_block_number"),
        F.expr("block_timestamp AS first_block_timestamp"),
        *COUNTS,
        sum_of("sent", "value_sent"),
        sum_of("received", "value_received"),
        "gas_used",
        sum_of("spent", "gas_spent", limb_bytes=2),
    )


def _sides(rows: DataFrame, **conditions: str) -> DataFrame:
    """Rows in the one form that all of them are added up in: what a condition holds for counts."""
    is_paying = conditions.pop("is_paying", None)
    values = {name: conditions.pop(name, None) for name in ("value_sent", "value_received")}
    return rows.select(
        "address",
        *BLOCK,
        *(
            F.expr(f"CASE WHEN {conditions[name]} THEN 1L ELSE 0L END AS {name}")
            if name in conditions
            else F.expr(f"0L AS {name}")
            for name in COUNTS
        ),
        F.expr(f"{_where('gas_used', is_paying, '0L')} AS gas_used"),
        F.expr(f"{_where('effective_gas_price', is_paying, 'CAST(NULL AS binary)')} AS gas_price"),
        *(
            F.expr(f"{_where('value', condition, 'CAST(NULL AS binary)')} AS {name}")
            for name, condition in values.items()
        ),
    )


def _where(column: str, condition: str | None, otherwise: str) -> str:
    """A column where a condition holds, else something that adds nothing."""
    if condition is None:
        return otherwise
    return f"CASE WHEN {condition} THEN coalesce({column}, {otherwise}) ELSE {otherwise} END"
