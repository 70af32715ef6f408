"""Owns the dataset `address_stats`: what an address has done and what was done to it, in numbers.

A run returns what each block adds; the commit adds it up. What is counted as sent and received of
Ether is what really moved: the values of transactions that did not fail, and of internal
transactions that took effect. A chain without traces knows of none of the latter, so there these
sums are of transactions alone. Fees are no part of them: `gas_spent` has them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from unfork.jobs.transforms import topics, word
from unfork.jobs.transforms.columns import NOBODY, sum_of
from unfork.jobs.transforms.internal import internal_transactions
from unfork.jobs.transforms.names import BLOCK, COUNTS, STATS


def address_stats(transactions: DataFrame, transfers: DataFrame, traces: DataFrame) -> DataFrame:
    """What each block adds to the numbers of each address that took part in it."""
    sums = [
        *(f"sum({name}) AS {name}" for name in (*COUNTS, "gas_used")),
        *word.limb_sum_texts("sent", "value_sent"),
        *word.limb_sum_texts("received", "value_received"),
        *word.limb_sum_texts("spent", "gas_price", "gas_used", limb_bytes=2),
    ]
    everything = " UNION ALL ".join((_SIGNED, _MOVED, _WITHIN))
    block = ", ".join(BLOCK)
    # As one text: a call to Spark for each of so many expressions takes longer than a small run.
    gathered = transactions.sparkSession.sql(
        f"SELECT address, {block}, {', '.join(sums)} FROM ({everything}) GROUP BY address, {block}",
        transactions=transactions.select(*STATS["transactions"]),
        transfers=transfers.select(*STATS["token_transfers"]),
        within=internal_transactions(traces),
    )
    return gathered.select(
        "address",
        *BLOCK,
        gathered["block_number"].alias("first_block_number"),
        gathered["block_timestamp"].alias("first_block_timestamp"),
        *COUNTS,
        sum_of("sent", "value_sent"),
        sum_of("received", "value_received"),
        "gas_used",
        sum_of("spent", "gas_spent", limb_bytes=2),
    )


def _side(
    source: str,
    receiver: str = "to_address",
    also: str = "",
    *,
    condition: str = "address IS NOT NULL",
    **conditions: str,
) -> str:
    """Rows in the one form that all of them are added up in: what a condition holds for counts."""
    counts = ", ".join(
        f"CASE WHEN {conditions[name]} THEN 1L ELSE 0L END AS {name}"
        if name in conditions
        else f"0L AS {name}"
        for name in COUNTS
    )
    others = ", ".join(
        f"CASE WHEN {conditions[name]} THEN {column} ELSE {nothing} END AS {name}"
        if name in conditions
        else f"{nothing} AS {name}"
        for name, column, nothing in (
            ("gas_used", "coalesce(gas_used, 0L)", "0L"),
            ("gas_price", "effective_gas_price", "CAST(NULL AS binary)"),
            ("value_sent", "value", "CAST(NULL AS binary)"),
            ("value_received", "value", "CAST(NULL AS binary)"),
        )
    )
    block = ", ".join(BLOCK)
    sides = f"stack(2, from_address, true, {receiver}, false) AS (address, is_sender)"
    return (
        f"SELECT address, {block}, {counts}, {others}"
        f" FROM (SELECT {block}, {sides}{also} FROM {{{source}}})"
        f" WHERE {condition}"
    )


#: Some nodes name the contract also where its creation failed.
_RECEIVER = "coalesce(to_address, CASE WHEN status = 0 THEN NULL ELSE contract_address END)"
_HAS_MOVED = "coalesce(status, 1) <> 0"

_SIGNED = _side(
    "transactions",
    _RECEIVER,
    ", value, status, gas_used, effective_gas_price",
    transactions_sent="is_sender",
    transactions_received="NOT is_sender",
    transactions_failed="is_sender AND status = 0",
    value_sent=f"is_sender AND {_HAS_MOVED}",
    value_received=f"NOT is_sender AND {_HAS_MOVED}",
    gas_used="is_sender",
    gas_price="is_sender",
)
_MOVED = _side(
    "transfers",
    # What tokens come from and go to is nobody.
    condition=f"address <> {topics.literal(NOBODY)}",
    token_transfers_sent="is_sender",
    token_transfers_received="NOT is_sender",
)
_WITHIN = _side(
    "within",
    also=", value, status",
    internal_transactions_sent="is_sender",
    internal_transactions_received="NOT is_sender",
    value_sent="is_sender AND status = 1",
    value_received="NOT is_sender AND status = 1",
)
