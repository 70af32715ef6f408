"""Owns the built-in datasets of EVM chains: transfers, balances and days, each a pure transform.

Every transform opens with a select of what it reads and closes with one that is its schema. Columns
that are numbers in Postgres say so in their metadata, because Spark only sees bytes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unfork.datasets.dataset import Kind
from unfork.jobs.spark.schema import KIND
from unfork.jobs.transforms import word

#: keccak256("Transfer(address,address,uint256)"): ERC-20 and ERC-721 share it.
TRANSFER = bytes.fromhex("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef")
#: Who sends what is minted and receives what is burnt.
NOBODY = bytes(20)


def token_transfers(logs: DataFrame) -> DataFrame:
    """The transfers of ERC-20 tokens: a Transfer with two indexed addresses and one word of data.

    With a fourth topic it is a transfer of ERC-721; with other data it is something else.
    """
    logs = logs.select(
        "block_number",
        "block_hash",
        "block_timestamp",
        "transaction_hash",
        "transaction_index",
        "log_index",
        "address",
        "topic0",
        "topic1",
        "topic2",
        "topic3",
        "data",
    )
    is_transfer = f"topic0 = X'{TRANSFER.hex()}'"
    has_two_addresses = "topic1 IS NOT NULL AND topic2 IS NOT NULL AND topic3 IS NULL"
    has_one_word = f"length(data) = {word.BYTES}"
    return logs.where(f"{is_transfer} AND {has_two_addresses} AND {has_one_word}").select(
        "block_number",
        "block_hash",
        "block_timestamp",
        "transaction_hash",
        "transaction_index",
        "log_index",
        F.expr("0L AS batch_ordinal"),
        F.expr("'erc20' AS standard"),
        F.expr("address AS token_address"),
        word.address("topic1", "from_address"),
        word.address("topic2", "to_address"),
        _typed(F.expr("CAST(NULL AS binary)"), "token_id", Kind.U256),
        _typed(F.col("data"), "amount", Kind.U256),
    )


def token_balances(transfers: DataFrame) -> DataFrame:
    """What each block changed of the ERC-20 balance of each address, to be added up.

    Nobody (the zero address) has no balance: what is minted comes from nowhere. An address that
    took part has a row also where nothing changed for it.
    """
    transfers = transfers.where("standard = 'erc20'").select(
        "block_number",
        "block_hash",
        "block_timestamp",
        "token_address",
        "from_address",
        "to_address",
        "amount",
    )
    place = ["block_number", "block_hash", "block_timestamp", "token_address"]
    # Each transfer is two changes; read once, not once for either side.
    sides = F.expr("stack(2, from_address, -1L, to_address, 1L) AS (address, sign)")
    moved = transfers.select(*place, sides, "amount").where(f"address <> X'{NOBODY.hex()}'")
    limbs = word.limb_sums("delta", "amount", "sign")
    summed = moved.groupBy(*place, "address").agg(*limbs)
    return summed.select(*place, "address", _typed(word.total("delta"), "balance", Kind.SIGNED))


def daily_summary(blocks: DataFrame, transactions: DataFrame) -> DataFrame:
    """One row a UTC day: how much happened, and the last block that is counted in it."""
    blocks = blocks.select("number", "hash", "timestamp", "gas_used")
    transactions = transactions.select("block_timestamp", "from_address", "status", "value")
    by_block = blocks.groupBy(F.expr("to_date(timestamp) AS day")).agg(
        F.expr("max(struct(number, hash, timestamp)) AS last"),
        F.expr("min(number) AS first_block"),
        F.expr("count(*) AS blocks"),
        F.expr("sum(gas_used) AS gas_used"),
    )
    by_transaction = transactions.groupBy(F.expr("to_date(block_timestamp) AS day")).agg(
        F.expr("count(*) AS transactions"),
        F.expr("count(CASE WHEN status = 0 THEN 1 END) AS failed_transactions"),
        F.expr("count(DISTINCT from_address) AS senders"),
        *word.limb_sums("value", "value"),
    )
    none = f"X'{bytes(word.BYTES + word.LIMB_BYTES).hex()}'"
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
        "gas_used",
        _typed(F.coalesce(word.total("value"), F.expr(none)), "value_sum", Kind.SIGNED),
    )


def _typed(column: Column, name: str, kind: Kind) -> Column:
    """A column that says what its bytes are."""
    return column.alias(name, metadata={KIND: kind.value})
