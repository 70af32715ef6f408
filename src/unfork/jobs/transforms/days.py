"""Owns the dataset `daily_summary`: how much happened on each UTC day."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.jobs.transforms import word
from unfork.jobs.transforms.columns import sum_of
from unfork.jobs.transforms.names import DAYS


def daily_summary(blocks: DataFrame, transactions: DataFrame) -> DataFrame:
    """One row a UTC day: how much happened, and the last block that is counted in it."""
    blocks = blocks.select(*DAYS["blocks"])
    transactions = transactions.select(*DAYS["transactions"])
    by_block = blocks.groupBy(F.expr("to_date(timestamp) AS day")).agg(
        F.expr("max(struct(number, hash, timestamp)) AS last"),
        F.expr("min(number) AS first_block"),
        F.expr("count(*) AS blocks"),
        F.expr("sum(gas_used) AS gas_used"),
    )
    # Some nodes name the contract also where its creation failed.
    is_created = "contract_address IS NOT NULL AND coalesce(status, 1) <> 0"
    by_transaction = transactions.groupBy(F.expr("to_date(block_timestamp) AS day")).agg(
        F.expr("count(*) AS transactions"),
        F.expr("count(CASE WHEN status = 0 THEN 1 END) AS failed_transactions"),
        F.expr("count(DISTINCT from_address) AS senders"),
        F.expr(f"count(CASE WHEN {is_created} THEN 1 END) AS contracts_created"),
        *word.limb_sums("value", "value"),
    )
    # A row a day on either side: sorting them is nothing, sending them around is a job of its own.
    return by_block.join(by_transaction.hint("merge"), on="day", how="left").select(
        "day",
        F.expr("last.number AS block_number"),
        F.expr("last.hash AS block_hash"),
        F.expr("last.timestamp AS block_timestamp"),
        "first_block",
        "blocks",
        F.expr("coalesce(transactions, 0L) AS transactions"),
        F.expr("coalesce(failed_transactions, 0L) AS failed_transactions"),
        F.expr("coalesce(senders, 0L) AS senders"),
        F.expr("coalesce(contracts_created, 0L) AS contracts_created"),
        "gas_used",
        sum_of("value", "value_sum"),
    )
