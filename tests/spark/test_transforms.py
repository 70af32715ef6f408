"""Goal: the built-in transforms compute what the chain says, to the last of 256 bits.

Method: devnet blocks with awkward values, and single logs made by hand, through a real Spark,
compared with a recomputation in plain Python that shares no code with the transforms; blocks of
mainnet, with the transfers that others found in them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests import recorded
from tests.batches import table
from unfork.datasets import evm
from unfork.datasets.dataset import Kind
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.jobs.declaration import kind_of
from unfork.jobs.spark import schema
from unfork.jobs.transforms import evm as transforms
from unfork.testing import derived, oracle

pytestmark = pytest.mark.everywhere

LARGEST = 2**256 - 1
TOKEN, ALICE, BOB, NOBODY = b"\x70" * 20, b"\xaa" * 20, b"\xbb" * 20, bytes(20)


def frame(spark: SparkSession, name: str, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of a raw dataset as the source hands them on, in one piece as a small run has them."""
    dataset = evm.BY_NAME[name]
    wanted = schema.arrow(dataset.columns)
    made = spark.createDataFrame(table(dataset, rows).cast(wanted), schema.struct(dataset.columns))
    return made.coalesce(1)


def found(result: DataFrame) -> list[dict[str, Any]]:
    """The rows of a result, with numbers as int."""
    rows = result.toArrow().to_pylist()
    numbers = {field.name: kind_of(field) for field in result.schema}
    for row in rows:
        for name, kind in numbers.items():
            if kind in (Kind.U256, Kind.SIGNED) and row[name] is not None:
                row[name] = int.from_bytes(row[name], "big", signed=kind is Kind.SIGNED)
    return rows


def log(
    index: int, *, topics: Sequence[bytes], data: bytes, address: bytes = TOKEN
) -> dict[str, Any]:
    first, second, third, fourth = (*topics, None, None, None, None)[:4]
    return {
        "block_number": 7,
        "block_hash": b"\x07" * 32,
        "block_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "transaction_hash": b"\x01" * 32,
        "transaction_index": 0,
        "log_index": index,
        "address": address,
        "topic0": first,
        "topic1": second,
        "topic2": third,
        "topic3": fourth,
        "data": data,
    }


def padded(address: bytes) -> bytes:
    return bytes(12) + address


def word(number: int) -> bytes:
    return number.to_bytes(32, "big")


def moved(index: int, sender: bytes, receiver: bytes, amount: int) -> dict[str, Any]:
    topics = (derived.TRANSFER, padded(sender), padded(receiver))
    return log(index, topics=topics, data=word(amount))


def given(index: int, sender: bytes, receiver: bytes, number: int) -> dict[str, Any]:
    """A transfer of one ERC-721 token."""
    topics = (derived.TRANSFER, padded(sender), padded(receiver), word(number))
    return log(index, topics=topics, data=b"")


def multi(index: int, topic: bytes, data: bytes) -> dict[str, Any]:
    """A transfer of ERC-1155."""
    return log(index, topics=(topic, padded(TOKEN), padded(ALICE), padded(BOB)), data=data)


def batch(ids: Sequence[int], amounts: Sequence[int]) -> bytes:
    """The data of a batch, as compilers write it."""
    first = b"".join(map(word, (len(ids), *ids)))
    return word(64) + word(64 + len(first)) + first + b"".join(map(word, (len(amounts), *amounts)))


@cache
def hostile(blocks: int, **knobs: Any) -> tuple[Block, ...]:
    """A devnet with everything that chains should not have."""
    tree = Tree(Knobs(**{"density": 8, "hostile": True, **knobs}))
    tree.extend(blocks)
    held = [tree.at(number) for number in range(blocks + 1)]
    assert all(held)
    return tuple(block for block in held if block is not None)


def computed(spark: SparkSession, blocks: Sequence[Block]) -> dict[str, DataFrame]:
    """Every built-in dataset over some blocks, merged ones as what each block adds."""
    rows = oracle.rows_of(blocks)
    logs, transactions, traces, headers = (
        frame(spark, name, rows[name]) for name in ("logs", "transactions", "traces", "blocks")
    )
    transfers = transforms.token_transfers(logs)
    return {
        "token_transfers": transfers,
        "approvals": transforms.approvals(logs),
        "internal_transactions": transforms.internal_transactions(traces),
        "enriched_transfers": transforms.enrich_transfers(logs, transactions, headers),
        "address_transactions": transforms.address_transactions(transactions, transfers, traces),
        "address_stats": transforms.address_stats(transactions, transfers, traces),
        "token_balances": transforms.token_balances(transfers),
        "daily_summary": transforms.daily_summary(headers, transactions),
    }


@pytest.mark.parametrize("name", derived.everything([]))
def test_the_datasets_of_a_hostile_chain_are_those_of_its_blocks(
    spark: SparkSession, name: str
) -> None:
    blocks = hostile(40)
    expected = {
        **derived.everything(blocks),
        "token_balances": derived.balance_deltas(blocks),
        "address_stats": derived.stats_deltas(blocks),
    }[name]
    assert expected, "the devnet has some"
    assert not derived.difference(expected, found(computed(spark, blocks)[name]))


def test_a_hostile_chain_has_what_is_hard_to_read() -> None:
    blocks = hostile(40)
    transfers = derived.token_transfers(blocks)
    assert {row["standard"] for row in transfers} == {"erc20", "erc721", "erc1155"}
    assert max(row["batch_ordinal"] for row in transfers) >= 2, "batches of several"
    assert any(row["amount"] == LARGEST for row in transfers)
    assert any(row["log_index"] >= 2**31 for row in transfers), "indexes beyond 31 bits"
    assert any(row["from_address"] == NOBODY for row in transfers), "minted"
    internal = derived.internal_transactions(blocks)
    assert {row["trace_type"] for row in internal} == {"call", "create", "suicide"}
    assert {row["status"] for row in internal} == {0, 1}
    everybody = derived.address_transactions(blocks)
    assert any(row["is_created"] for row in everybody)
    standards = {row["standard"] for row in derived.approvals(blocks)}
    assert standards == {"erc20", "erc721", None}


@pytest.mark.parametrize("number", ["1755634", "17173049", "19528783"])
def test_the_transfers_of_mainnet_are_those_that_others_found(
    spark: SparkSession, number: str
) -> None:
    block = json.loads((recorded.folder() / "mainnet" / f"{number}.json").read_bytes())
    logs = [
        {
            **log(
                int(one["logIndex"], 16),
                topics=[unhex(topic) for topic in one["topics"]],
                data=unhex(one["data"]),
                address=unhex(one["address"]),
            ),
            "block_number": int(one["blockNumber"], 16),
            "block_hash": unhex(one["blockHash"]),
            "transaction_hash": unhex(one["transactionHash"]),
        }
        for receipt in block["receipts"]
        for one in receipt["logs"]
    ]
    rows = found(transforms.token_transfers(frame(spark, "logs", logs)))
    assert sorted(map(as_ethereum_etl, rows), key=str) == sorted(
        ({name: expected[name] for name in ETL} for expected in block["expected_token_transfers"]),
        key=str,
    )


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("0x"))


def as_ethereum_etl(row: dict[str, Any]) -> dict[str, Any]:
    """A row by the rules of others, who put the id of an ERC-721 token where amounts are."""
    return {
        "block_number": row["block_number"],
        "log_index": row["log_index"],
        "value": row["token_id"] if row["standard"] == "erc721" else row["amount"],
        **{name: f"0x{row[name].hex()}" for name in HASHES},
    }


#: What both say of a transfer.
HASHES = ("block_hash", "transaction_hash", "token_address", "from_address", "to_address")
ETL = ("block_number", "log_index", "value", *HASHES)


def test_an_erc20_and_an_erc721_that_share_a_topic_are_told_apart(spark: SparkSession) -> None:
    approved = (derived.APPROVAL, padded(ALICE), padded(BOB))
    logs = frame(
        spark,
        "logs",
        [
            moved(0, ALICE, BOB, 5),
            given(1, ALICE, BOB, 5),
            log(2, topics=approved, data=word(6)),
            log(3, topics=(*approved, word(6)), data=b""),
        ],
    )
    transfers = found(transforms.token_transfers(logs))
    assert [
        (row["log_index"], row["standard"], row["token_id"], row["amount"]) for row in transfers
    ] == [(0, "erc20", None, 5), (1, "erc721", 5, 1)]
    assert {(row["from_address"], row["to_address"]) for row in transfers} == {(ALICE, BOB)}
    approvals = found(transforms.approvals(logs))
    assert [
        (row["log_index"], row["standard"], row["token_id"], row["amount"]) for row in approvals
    ] == [(2, "erc20", None, 6), (3, "erc721", 6, None)]
    balances = found(transforms.token_balances(transforms.token_transfers(logs)))
    assert {
        (row["address"], row["standard"], row["token_id"]): row["balance"] for row in balances
    } == {
        (ALICE, "erc20", 0): -5,
        (BOB, "erc20", 0): 5,
        (ALICE, "erc721", 5): -1,
        (BOB, "erc721", 5): 1,
    }


def test_what_only_looks_like_a_transfer_is_none(spark: SparkSession) -> None:
    topics = (derived.TRANSFER, padded(ALICE), padded(BOB))
    one = word(5)
    pair = batch([1, 2], [3, 4])
    logs = [
        moved(0, ALICE, BOB, 5),
        log(2, topics=(*topics, one), data=one),
        log(3, topics=topics[:2], data=one),
        log(4, topics=topics[:1], data=padded(ALICE) + padded(BOB) + one),
        log(5, topics=(), data=one),
        log(6, topics=topics, data=b""),
        log(7, topics=topics, data=one[:31]),
        log(8, topics=topics, data=one + b"\0"),
        log(9, topics=topics, data=one + one),
        log(10, topics=(b"\xdd" * 32, *topics[1:]), data=one),
        multi(11, derived.SINGLE, one + one),
        multi(12, derived.SINGLE, one),
        multi(13, derived.SINGLE, one * 3),
        multi(14, derived.SINGLE, pair),
        multi(15, derived.BATCH, one + one),
        log(16, topics=(derived.SINGLE, *topics[1:]), data=one + one),
        log(17, topics=(derived.SINGLE, *topics[1:]), data=one),
        log(18, topics=(derived.BATCH, *topics[1:]), data=pair),
        multi(19, derived.APPROVAL, b""),
    ]
    rows = found(transforms.token_transfers(frame(spark, "logs", logs)))
    assert sorted((row["log_index"], row["standard"]) for row in rows) == [
        (0, "erc20"),
        (11, "erc1155"),
    ]


def test_the_arrays_of_a_batch_are_read_where_they_are_or_not_at_all(spark: SparkSession) -> None:
    pair = batch([7, LARGEST], [LARGEST, 0])
    shared = word(64) + word(64) + word(2) + word(8) + word(9)
    swapped = word(160) + word(64) + pair[160:256] + pair[64:160]
    logs = [
        multi(0, derived.BATCH, pair),
        multi(1, derived.BATCH, pair + b"what follows does not matter"),
        multi(2, derived.BATCH, shared),
        multi(3, derived.BATCH, swapped),
        multi(4, derived.BATCH, batch([], [])),
        multi(5, derived.BATCH, batch([1, 2], [3])),
        multi(6, derived.BATCH, batch([1], [2, 3])),
        multi(7, derived.BATCH, pair[:-1]),
        multi(8, derived.BATCH, pair[:128]),
        multi(9, derived.BATCH, word(64) + word(LARGEST) + pair[64:]),
        multi(10, derived.BATCH, word(2**31 - 1) + word(160) + pair[64:]),
        multi(11, derived.BATCH, word(2**30) + word(2**30) + pair[64:]),
        multi(12, derived.BATCH, word(64) + word(len(pair) - 31) + pair[64:]),
        multi(13, derived.BATCH, word(64) + word(64) + word(LARGEST) + pair[96:]),
        multi(14, derived.BATCH, word(64) + word(64) + word(2**30 - 1) + pair[96:]),
        multi(15, derived.BATCH, b"\xff" * 200),
        multi(16, derived.BATCH, batch(range(300), range(300))),
        multi(2**40, derived.BATCH, pair),
    ]
    rows = found(transforms.token_transfers(frame(spark, "logs", logs)))
    expected = [
        (index, ordinal, *moved)
        for index, pairs in {
            0: [(7, LARGEST), (LARGEST, 0)],
            1: [(7, LARGEST), (LARGEST, 0)],
            2: [(8, 8), (9, 9)],
            3: [(7, LARGEST), (LARGEST, 0)],
            16: [(number, number) for number in range(300)],
            2**40: [(7, LARGEST), (LARGEST, 0)],
        }.items()
        for ordinal, moved in enumerate(pairs)
    ]
    assert [
        (row["log_index"], row["batch_ordinal"], row["token_id"], row["amount"])
        for row in sorted(rows, key=lambda row: (row["log_index"], row["batch_ordinal"]))
    ] == expected
    assert {row["standard"] for row in rows} == {"erc1155"}
    assert {(row["from_address"], row["to_address"]) for row in rows} == {(ALICE, BOB)}


def test_an_answer_that_is_neither_yes_nor_no_approves_nothing(spark: SparkSession) -> None:
    topics = (derived.APPROVAL_FOR_ALL, padded(ALICE), padded(BOB))
    logs = [
        log(0, topics=topics, data=word(1)),
        log(1, topics=topics, data=word(0)),
        log(2, topics=topics, data=word(2)),
        log(3, topics=topics, data=word(2**255)),
        log(4, topics=topics, data=b""),
        log(5, topics=(*topics, word(1)), data=word(1)),
        log(6, topics=(*topics, word(1)), data=b""),
        log(7, topics=topics[:2], data=word(1)),
    ]
    rows = found(transforms.approvals(frame(spark, "logs", logs)))
    assert [(row["log_index"], row["is_approved"]) for row in rows] == [(0, True), (1, False)]
    assert {(row["standard"], row["amount"], row["token_id"]) for row in rows} == {
        (None, None, None)
    }


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        ([moved(0, ALICE, BOB, 5)], {ALICE: -5, BOB: 5}),
        ([moved(0, ALICE, ALICE, LARGEST)], {ALICE: 0}),
        ([moved(0, ALICE, BOB, 0)], {ALICE: 0, BOB: 0}),
        ([moved(0, NOBODY, BOB, 9), moved(1, BOB, NOBODY, 2)], {BOB: 7}),
        ([moved(n, ALICE, BOB, LARGEST) for n in range(20)],
         {ALICE: -20 * LARGEST, BOB: 20 * LARGEST}),
        ([moved(0, ALICE, BOB, 2**32), moved(1, BOB, ALICE, 1)],
         {ALICE: 1 - 2**32, BOB: 2**32 - 1}),
        ([moved(0, ALICE, BOB, 2**255), moved(1, BOB, ALICE, 2**224)],
         {ALICE: 2**224 - 2**255, BOB: 2**255 - 2**224}),
    ],
)  # fmt: skip
def test_deltas_are_exact_and_signed(
    spark: SparkSession, logs: list[dict[str, Any]], expected: dict[bytes, int]
) -> None:
    transfers = transforms.token_transfers(frame(spark, "logs", logs))
    rows = found(transforms.token_balances(transfers))
    assert {row["address"]: row["balance"] for row in rows} == expected
    assert len(rows) == len(expected)


def test_ids_are_balances_of_their_own(spark: SparkSession) -> None:
    logs = [
        given(0, NOBODY, ALICE, 3),
        given(1, ALICE, BOB, 3),
        given(2, NOBODY, BOB, 0),
        multi(3, derived.BATCH, batch([3, 3, 0], [LARGEST, LARGEST, 1])),
        moved(4, ALICE, BOB, 7),
    ]
    transfers = transforms.token_transfers(frame(spark, "logs", logs))
    rows = found(transforms.token_balances(transfers))
    assert {(row["address"], row["standard"], row["token_id"]): row["balance"] for row in rows} == {
        (ALICE, "erc721", 3): 0,
        (BOB, "erc721", 3): 1,
        (BOB, "erc721", 0): 1,
        (ALICE, "erc1155", 3): -2 * LARGEST,
        (BOB, "erc1155", 3): 2 * LARGEST,
        (ALICE, "erc1155", 0): -1,
        (BOB, "erc1155", 0): 1,
        (ALICE, "erc20", 0): -7,
        (BOB, "erc20", 0): 7,
    }


def test_fees_are_exact_for_any_price_and_failures_move_nothing(spark: SparkSession) -> None:
    (sample,) = oracle.rows_of(hostile(40))["transactions"][:1]
    common = {**sample, "block_number": 7, "from_address": ALICE, "to_address": BOB}
    signed = [
        {**common, "transaction_index": index, "status": status, "value": value,
         "gas_used": gas, "effective_gas_price": price}
        for index, (status, value, gas, price) in enumerate(
            [
                (1, LARGEST, 2**29, LARGEST),
                (1, LARGEST, 2**29, LARGEST),
                (0, LARGEST, 21_000, 2**128 + 1),
                (None, 5, 0, 0),
            ]
        )
    ]  # fmt: skip
    nothing = transforms.token_transfers(frame(spark, "logs", []))
    transactions = frame(spark, "transactions", signed)
    stats = transforms.address_stats(transactions, nothing, frame(spark, "traces", []))
    rows = {row["address"]: row for row in found(stats)}
    alice, bob = rows[ALICE], rows[BOB]
    assert alice["gas_spent"] == 2**30 * LARGEST + 21_000 * (2**128 + 1)
    assert alice["value_sent"] == bob["value_received"] == 2 * LARGEST + 5
    assert (alice["transactions_sent"], alice["transactions_failed"]) == (4, 1)
    assert (bob["transactions_received"], bob["transactions_failed"]) == (4, 0)
    assert bob["gas_spent"] == bob["gas_used"] == bob["value_sent"] == 0
    assert alice["gas_used"] == 2**30 + 21_000


def test_without_traces_nobody_took_part_in_an_internal_transaction(spark: SparkSession) -> None:
    rows = oracle.rows_of(hostile(40)[:20])
    transactions = frame(spark, "transactions", rows["transactions"])
    transfers = transforms.token_transfers(frame(spark, "logs", rows["logs"]))
    nothing = frame(spark, "traces", [])
    took = found(transforms.address_transactions(transactions, transfers, nothing))
    roles = ("is_internal_sender", "is_internal_receiver")
    assert took and not any(row[role] for row in took for role in roles)
    stats = found(transforms.address_stats(transactions, transfers, nothing))
    assert sum(row["transactions_sent"] for row in stats) == len(rows["transactions"])
    assert not any(row["internal_transactions_sent"] for row in stats)


def test_days_are_summed_up_as_utc_has_them(spark: SparkSession) -> None:
    blocks = hostile(40, density=4, block_time_s=7200)
    expected = derived.daily_summary(blocks)
    assert len(expected) > 2
    assert not derived.difference(expected, found(computed(spark, blocks)["daily_summary"]))


def test_a_day_without_transactions_counts_its_blocks(spark: SparkSession) -> None:
    blocks = hostile(3, density=0, hostile=False)
    if any(block.transactions for block in blocks):
        pytest.fail("a devnet of density 0 has no transactions")
    summary = computed(spark, blocks)["daily_summary"]
    assert not derived.difference(derived.daily_summary(blocks), found(summary))


def test_numbers_say_in_their_metadata_what_they_are(spark: SparkSession) -> None:
    made = computed(spark, [])
    kinds = {
        name: {field.name: field.metadata.get(schema.KIND) for field in frame.schema}
        for name, frame in made.items()
    }
    assert kinds["token_transfers"]["amount"] == "numeric(78,0)"
    assert kinds["token_transfers"]["token_id"] == "numeric(78,0)"
    assert kinds["approvals"]["amount"] == kinds["approvals"]["token_id"] == "numeric(78,0)"
    assert kinds["internal_transactions"]["value"] == "numeric(78,0)"
    assert kinds["enriched_transfers"]["transaction_value"] == "numeric(78,0)"
    assert kinds["token_balances"]["token_id"] == "numeric(78,0)"
    assert kinds["token_balances"]["balance"] == "numeric"
    assert {kinds["address_stats"][name] for name in ("value_sent", "gas_spent")} == {"numeric"}
