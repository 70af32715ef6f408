"""Owns the built-in dataset of tokens: what each contract says of itself, and when it was asked.

A token is asked after the first block in which anything of it is transferred. What it says is then
believed until a contract is created at its address: that one is asked after its own block, and once
more at its first transfer, which tells what kind of token it is. So a live block costs what is new
in it, and what was asked is the same however the blocks are cut into runs.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: What a row of a token is asked at, in the order in which it is grouped.
_PLACE = ("address", "block_number", "block_hash", "block_timestamp")


def asked(token_transfers: DataFrame, transactions: DataFrame, known: DataFrame) -> DataFrame:
    """Who is asked where: new tokens, and those at whose address a contract was created.

    `known` is what is there before the first block: addresses, each with its standard, which is
    NULL where the contract has not been seen to transfer anything since it was created.
    """
    moved = (
        token_transfers.select(
            "block_number",
            "block_hash",
            "block_timestamp",
            F.expr("token_address AS address"),
            "standard",
            "log_index",
            "batch_ordinal",
        )
        .groupBy(*_PLACE)
        .agg(F.expr("min_by(standard, struct(log_index, batch_ordinal)) AS standard"))
        .select(*_PLACE, "standard", F.expr("false AS is_created"))
    )
    created = transactions.where("contract_address IS NOT NULL AND coalesce(status, 1) = 1").select(
        F.expr("contract_address AS address"),
        "block_number",
        "block_hash",
        "block_timestamp",
        F.expr("CAST(NULL AS string) AS standard"),
        F.expr("true AS is_created"),
    )
    seen = moved.unionByName(created).groupBy(*_PLACE)
    events = seen.agg(
        F.expr("max(standard) AS standard"), F.expr("bool_or(is_created) AS is_created")
    ).select(
        *_PLACE,
        "standard",
        "is_created",
        F.expr("row_number() OVER (PARTITION BY address ORDER BY block_number) = 1 AS is_first"),
        F.expr("lag(standard) OVER (PARTITION BY address ORDER BY block_number) AS before"),
        F.expr(
            "count(standard) OVER (PARTITION BY address ORDER BY block_number"
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) > 0 AS has_moved"
        ),
    )
    held = known.select("address", F.expr("standard AS held"), F.expr("true AS is_held"))
    is_told = "CASE WHEN is_first THEN held IS NOT NULL ELSE before IS NOT NULL END"
    is_new = f"standard IS NOT NULL AND (is_created OR NOT {is_told})"
    is_replaced = "standard IS NULL AND (has_moved OR coalesce(is_held, false))"
    return (
        events.join(held, on="address", how="left")
        .where(f"({is_new}) OR ({is_replaced})")
        .select("block_number", "block_hash", "address", "block_timestamp", "standard")
    )


def tokens(
    token_transfers: DataFrame,
    transactions: DataFrame,
    name: DataFrame,
    symbol: DataFrame,
    decimals: DataFrame,
) -> DataFrame:
    """What tokens said when they were asked, a row an address and block."""
    place = ["block_number", "block_hash", "address"]
    said = (
        name.select(*place, "block_timestamp", "standard", "value", "remark")
        .withColumnsRenamed({"value": "name", "remark": "name_remark"})
        .join(
            symbol.select(*place, "value", "remark")
            .withColumnsRenamed({"value": "symbol", "remark": "symbol_remark"})
            .hint("merge"),
            on=place,
            how="inner",
        )
        .join(
            decimals.select(*place, "value", "remark")
            .withColumnsRenamed({"value": "decimals", "remark": "decimals_remark"})
            .hint("merge"),
            on=place,
            how="inner",
        )
    )
    remarks = ", ".join(f"'{one} ' || {one}_remark" for one in ("name", "symbol", "decimals"))
    return said.select(
        "address",
        "name",
        "symbol",
        "decimals",
        "standard",
        F.expr(f"nullif(concat_ws('; ', {remarks}), '') AS remarks"),
        "block_number",
        "block_hash",
        "block_timestamp",
    )
