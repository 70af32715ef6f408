"""Goal: a token is asked where it is new, where another contract took its address, and only there.

Method: every course that four blocks of an address can take (nothing, a transfer, a creation, both
in each) after every state that a run can find (never seen, seen without a transfer since it was
created, seen): all of them at once, each with an address of its own, compared with a loop in plain
Python. A run depends on the state before it alone, so it does not matter how blocks are cut.
"""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from unfork.jobs.transforms import tokens

FIRST, BLOCKS = 100, 4
EVENTS = ("", "t", "c", "tc")
#: What is known before the run: nothing, a row without a standard, a whole row.
STATES = ("unknown", "untold", "told")

PLACE = [
    StructField("block_number", LongType()),
    StructField("block_hash", BinaryType()),
    StructField("block_timestamp", TimestampType()),
]
TRANSFERS = StructType(
    [
        *PLACE,
        StructField("log_index", LongType()),
        StructField("batch_ordinal", LongType()),
        StructField("standard", StringType()),
        StructField("token_address", BinaryType()),
    ]
)
TRANSACTIONS = StructType(
    [*PLACE, StructField("status", LongType()), StructField("contract_address", BinaryType())]
)
KNOWN = StructType([StructField("address", BinaryType()), StructField("standard", StringType())])


def place(block: int) -> tuple[Any, ...]:
    moment = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=block)
    return FIRST + block, bytes([block]) * 32, moment


def expected(state: str, course: tuple[str, ...]) -> list[tuple[int, str | None]]:
    """The blocks after which an address is asked, each with the standard that is seen there."""
    asked: list[tuple[int, str | None]] = []
    for block, event in enumerate(course):
        standard = "erc721" if "t" in event else None
        is_new = standard is not None and ("c" in event or state != "told")
        if is_new or (event == "c" and state != "unknown"):
            asked.append((FIRST + block, standard))
            state = "told" if standard else "untold"
    return asked


def test_a_token_is_asked_where_it_is_new_and_where_another_took_its_address(
    spark: SparkSession,
) -> None:
    transfers, transactions, known = [], [], []
    wanted: dict[bytes, list[tuple[int, str | None]]] = {}
    courses = itertools.product(STATES, itertools.product(EVENTS, repeat=BLOCKS))
    for number, (state, course) in enumerate(courses):
        address = number.to_bytes(20, "big")
        if found := expected(state, course):
            wanted[address] = found
        if state != "unknown":
            known.append((address, "erc20" if state == "told" else None))
        for block, event in enumerate(course):
            if "t" in event:
                # The first of a block says what it is; what comes later in it does not.
                for index, ordinal, standard in (
                    (7, 0, "erc20"),
                    (3, 1, "erc20"),
                    (3, 0, "erc721"),
                ):
                    transfers.append((*place(block), index, ordinal, standard, address))
            if "c" in event:
                transactions.append((*place(block), None if block % 2 else 1, address))
            # What failed created nothing, and most transactions create nothing.
            transactions.append((*place(block), 0, address))
            transactions.append((*place(block), 1, None))

    found = tokens.asked(
        spark.createDataFrame(transfers, TRANSFERS),
        spark.createDataFrame(transactions, TRANSACTIONS),
        spark.createDataFrame(known, KNOWN),
    ).toArrow()

    asked: dict[bytes, list[tuple[int, str | None]]] = {}
    for row in sorted(found.to_pylist(), key=lambda row: row["block_number"]):
        number = row["block_number"]
        assert (number, row["block_hash"], row["block_timestamp"]) == place(number - FIRST)
        asked.setdefault(row["address"], []).append((number, row["standard"]))
    assert asked == wanted
    assert len(wanted) > 600
