"""Owns the dataset `token_balances`: how much of every token an address holds.

What is held is told apart by contract, standard and id: an address that a fork makes another sort
of contract, or one that speaks two standards, mixes nothing. ERC-20 has no ids, so there the id is
zero, and contract and address are enough. Balances are what transfers add up to: a contract that
moves tokens without a word can bring one below zero.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.datasets.dataset import Kind
from unfork.jobs.transforms import topics, word
from unfork.jobs.transforms.columns import NOBODY, sum_of, typed
from unfork.jobs.transforms.names import BALANCES, BLOCK

_NO_ID = topics.literal(bytes(word.BYTES))


def token_balances(transfers: DataFrame) -> DataFrame:
    """What each block changed of the balance of each address, to be added up.

    Nobody (the zero address) has no balance: what is minted comes from nowhere. An address that
    took part has a row also where nothing changed for it.
    """
    place = [*BLOCK, "token_address", "standard", "token_id"]
    transfers = transfers.select(*BALANCES["token_transfers"]).withColumn(
        "token_id", F.expr(f"coalesce(token_id, {_NO_ID})")
    )
    # Each transfer is two changes; read once, not once for either side.
    sides = F.expr("stack(2, from_address, -1L, to_address, 1L) AS (address, sign)")
    moved = transfers.select(*place, sides, "amount")
    moved = moved.where(f"address <> {topics.literal(NOBODY)}")
    limbs = word.limb_sums("delta", "amount", "sign")
    summed = moved.groupBy(*place, "address").agg(*limbs)
    return summed.select(
        *BLOCK,
        "token_address",
        "address",
        "standard",
        typed("token_id", "token_id", Kind.U256),
        sum_of("delta", "balance"),
    )
