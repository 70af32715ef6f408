"""Owns the dataset `token_transfers`: what moved of ERC-20, ERC-721 and ERC-1155 tokens.

A log is a transfer only where the hash of the signature, the number of topics and the size of the
data are those of its standard. What merely looks like one (a Transfer without indexed addresses,
a batch whose arrays differ in length or do not lie within its data) is none, and harms nobody.

A batch is several transfers, told apart by `batch_ordinal`. Its arrays are read where its data says
that they are, as any ABI decoder does. Batches are rare and take a way of their own, so that the
others do not pay for them.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.datasets.dataset import Kind
from unfork.jobs.transforms import topics, word
from unfork.jobs.transforms.columns import typed
from unfork.jobs.transforms.names import LOGS, TRANSACTION

#: One token, as a word.
_ONE = topics.literal((1).to_bytes(word.BYTES, "big"))


def token_transfers(logs: DataFrame) -> DataFrame:
    """One row a transfer: mints, burns, of nothing, and to oneself too."""
    logs = logs.select(*LOGS)
    # Spark puts both ways into one piece of code. There what was exploded is copied row by row, and
    # every other row with it, but not what was sorted; to sort the few batches costs nothing.
    return _plain(logs).unionAll(_batches(logs).sortWithinPartitions("log_index"))


def _plain(logs: DataFrame) -> DataFrame:
    """Logs that are one transfer each, whichever standard they are of."""
    transfer, single = map(topics.literal, (topics.TRANSFER, topics.TRANSFER_SINGLE))
    is_any = topics.is_any(topics.TRANSFER, topics.TRANSFER_SINGLE)
    # Sizes before hashes: they are what tells most logs apart, and cost less.
    is_transfer = (
        f"CASE WHEN topic3 IS NULL THEN length(data) = 32 AND topic0 = {transfer}"
        f" WHEN length(data) = 0 THEN topic0 = {transfer}"
        f" ELSE length(data) = 64 AND topic0 = {single} END"
    )
    # What is left has a fourth topic unless it is ERC-20, and data unless it is ERC-721.
    is_erc20, is_erc721 = "topic3 IS NULL", "length(data) = 0"
    has_sender_first = f"{is_erc20} OR {is_erc721}"
    return logs.where(f"{is_any} AND {is_transfer}").select(
        *TRANSACTION,
        "log_index",
        F.expr("0L AS batch_ordinal"),
        F.expr(
            f"CASE WHEN {is_erc20} THEN 'erc20' WHEN {is_erc721} THEN 'erc721' ELSE 'erc1155' END"
            " AS standard"
        ),
        F.expr("address AS token_address"),
        F.expr(
            f"CASE WHEN {has_sender_first} THEN {word.account('topic1')} "
            f"ELSE {word.account('topic2')} END AS from_address"
        ),
        F.expr(
            f"CASE WHEN {has_sender_first} THEN {word.account('topic2')} "
            f"ELSE {word.account('topic3')} END AS to_address"
        ),
        typed(
            f"CASE WHEN {is_erc20} THEN NULL WHEN {is_erc721} THEN topic3 "
            f"ELSE {word.read('data', '0')} END",
            "token_id",
            Kind.U256,
        ),
        typed(
            f"CASE WHEN {is_erc20} THEN data WHEN {is_erc721} THEN {_ONE} "
            f"ELSE {word.read('data', '32')} END",
            "amount",
            Kind.U256,
        ),
    )


def _batches(logs: DataFrame) -> DataFrame:
    """The transfers of batches, in the order of their arrays.

    Each array begins with its length, at a place that the data names. Nothing is read before it is
    known to lie within the data; a place or length of 2^30 and more never does.
    """
    is_batch = f"{topics.is_any(topics.TRANSFER_BATCH)} AND topic3 IS NOT NULL"
    placed = logs.where(f"{is_batch} AND length(data) >= {topics.BATCH_BYTES_MIN}").select(
        "*",
        F.expr(f"{word.place(word.read('data', '0'))} AS ids_at"),
        F.expr(f"{word.place(word.read('data', '32'))} AS amounts_at"),
    )
    ids_count, amounts_count = (word.read("data", name) for name in ("ids_at", "amounts_at"))
    last = f"length(data) - {word.BYTES}"
    counted = placed.select(
        "*",
        F.expr(
            f"CASE WHEN ids_at <= {last} AND amounts_at <= {last} AND {ids_count} = {amounts_count}"
            f" THEN {word.place(ids_count)} END AS count"
        ),
    )
    fits = f"count > 0 AND {word.BYTES}L * count <= {last} - greatest(ids_at, amounts_at)"
    each = counted.select(
        "*", F.expr(f"explode(CASE WHEN {fits} THEN sequence(0, count - 1) END) AS ordinal")
    )
    item = f"{word.BYTES} * (ordinal + 1)"
    return each.select(
        *TRANSACTION,
        "log_index",
        F.expr("CAST(ordinal AS bigint) AS batch_ordinal"),
        F.expr("'erc1155' AS standard"),
        F.expr("address AS token_address"),
        F.expr(f"{word.account('topic2')} AS from_address"),
        F.expr(f"{word.account('topic3')} AS to_address"),
        typed(word.read("data", f"ids_at + {item}"), "token_id", Kind.U256),
        typed(word.read("data", f"amounts_at + {item}"), "amount", Kind.U256),
    )
