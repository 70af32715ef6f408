"""Goal: the built-in transforms compute what the chain says, to the last of 256 bits.

Method: devnet blocks with awkward values, and single logs made by hand, through a real Spark,
compared with a recomputation in plain Python that shares no code with the transforms.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.batches import table
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.jobs.spark import schema
from unfork.jobs.transforms import evm as transforms
from unfork.testing import derived, oracle

pytestmark = pytest.mark.everywhere

LARGEST = 2**256 - 1
TOKEN, ALICE, BOB, NOBODY = b"\x70" * 20, b"\xaa" * 20, b"\xbb" * 20, bytes(20)


def frame(spark: SparkSession, name: str, rows: list[dict[str, Any]]) -> DataFrame:
    """Rows of a raw dataset as the source hands them on."""
    dataset = evm.BY_NAME[name]
    wanted = schema.arrow(dataset.columns)
    return spark.createDataFrame(table(dataset, rows).cast(wanted), schema.struct(dataset.columns))


def found(result: DataFrame, *numbers: str, signed: bool = False) -> list[dict[str, Any]]:
    """The rows of a result, with numbers as int."""
    rows = result.toArrow().to_pylist()
    for row in rows:
        for name in numbers:
            if row[name] is not None:
                row[name] = int.from_bytes(row[name], "big", signed=signed)
    return rows


def same(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> bool:
    return sorted(map(_comparable, left)) == sorted(map(_comparable, right))


def _comparable(row: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, repr(_utc(value))) for name, value in row.items())


def _utc(value: Any) -> Any:
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def transfer(index: int, *, topics: tuple[bytes, ...], data: bytes) -> dict[str, Any]:
    first, second, third, fourth = (*topics, None, None, None, None)[:4]
    return {
        "block_number": 7,
        "block_hash": b"\x07" * 32,
        "block_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "transaction_hash": b"\x01" * 32,
        "transaction_index": 0,
        "log_index": index,
        "address": TOKEN,
        "topic0": first,
        "topic1": second,
        "topic2": third,
        "topic3": fourth,
        "data": data,
    }


def padded(address: bytes) -> bytes:
    return bytes(12) + address


def moved(index: int, sender: bytes, receiver: bytes, amount: int) -> dict[str, Any]:
    topics = (derived.TRANSFER, padded(sender), padded(receiver))
    return transfer(index, topics=topics, data=amount.to_bytes(32, "big"))


def test_the_transfers_of_a_hostile_chain_are_those_of_its_blocks(spark: SparkSession) -> None:
    tree = Tree(Knobs(density=8, hostile=True))
    tree.extend(60)
    blocks = [tree.at(number) for number in range(61)]
    logs = frame(spark, "logs", oracle.rows_of(blocks)["logs"])
    expected = derived.token_transfers(blocks)
    assert any(row["amount"] == LARGEST for row in expected), "the devnet has the largest value"
    assert same(found(transforms.token_transfers(logs), "amount"), expected)


def test_only_two_addresses_and_one_word_are_an_erc20_transfer(spark: SparkSession) -> None:
    topics = (derived.TRANSFER, padded(ALICE), padded(BOB))
    one = (5).to_bytes(32, "big")
    logs = [
        transfer(0, topics=topics, data=one),
        transfer(1, topics=(*topics, one), data=b""),
        transfer(2, topics=(*topics, one), data=one),
        transfer(3, topics=topics[:2], data=one),
        transfer(4, topics=topics[:1], data=one),
        transfer(5, topics=(), data=one),
        transfer(6, topics=topics, data=b""),
        transfer(7, topics=topics, data=one[:31]),
        transfer(8, topics=topics, data=one + b"\0"),
        transfer(9, topics=topics, data=one + one),
        transfer(10, topics=(b"\xdd" * 32, *topics[1:]), data=one),
    ]
    rows = found(transforms.token_transfers(frame(spark, "logs", logs)), "amount")
    assert [row["log_index"] for row in rows] == [0]
    assert (rows[0]["from_address"], rows[0]["to_address"]) == (ALICE, BOB)


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
    rows = found(transforms.token_balances(transfers), "balance", signed=True)
    assert {row["address"]: row["balance"] for row in rows} == expected
    assert len(rows) == len(expected)


def test_the_deltas_of_a_hostile_chain_are_those_of_its_blocks(spark: SparkSession) -> None:
    tree = Tree(Knobs(density=8, hostile=True))
    tree.extend(40)
    blocks = [tree.at(number) for number in range(41)]
    transfers = transforms.token_transfers(frame(spark, "logs", oracle.rows_of(blocks)["logs"]))
    rows = found(transforms.token_balances(transfers), "balance", signed=True)
    assert same(rows, derived.balance_deltas(blocks))


def test_days_are_summed_up_as_utc_has_them(spark: SparkSession) -> None:
    tree = Tree(Knobs(density=4, hostile=True, block_time_s=7200))
    tree.extend(40)
    blocks = [tree.at(number) for number in range(41)]
    rows = oracle.rows_of(blocks)
    summary = transforms.daily_summary(
        frame(spark, "blocks", rows["blocks"]), frame(spark, "transactions", rows["transactions"])
    )
    expected = derived.daily_summary(blocks)
    assert len(expected) > 2
    assert same(found(summary, "value_sum", signed=True), expected)


def test_a_day_without_transactions_counts_its_blocks(spark: SparkSession) -> None:
    tree = Tree(Knobs(density=0))
    tree.extend(3)
    blocks = [tree.at(number) for number in range(4)]
    rows = oracle.rows_of(blocks)
    summary = transforms.daily_summary(
        frame(spark, "blocks", rows["blocks"]), frame(spark, "transactions", [])
    )
    if any(block.transactions for block in blocks):
        pytest.fail("a devnet of density 0 has no transactions")
    assert same(found(summary, "value_sum", signed=True), derived.daily_summary(blocks))


def test_numbers_say_in_their_metadata_what_they_are(spark: SparkSession) -> None:
    transfers = transforms.token_transfers(frame(spark, "logs", []))
    kinds = {each.name: each.metadata.get(schema.KIND) for each in transfers.schema}
    assert kinds["amount"] == kinds["token_id"] == "numeric(78,0)"
    deltas = transforms.token_balances(transfers)
    assert deltas.schema["balance"].metadata[schema.KIND] == "numeric"
