"""Measures decoding of logs in Parquet: words against Spark's own scan, the rest against eth-abi.

- static: Transfer(address,address,uint256), every column computed and checked, rows dropped,
  against a scan and filter of the same rows of the same file with their columns as they are.
- dynamic: an event with a string, bytes, an array and tuples, against a Python UDF that calls
  eth-abi once a row and returns the same columns, over the same logs.

Contenders take turns. Four fifths of the static logs are transfers.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from eth_abi.abi import encode as eth_encode
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import harness, sparks, transfers
from benchmarks.harness import Measure, Report
from unfork.jobs.decode import abi
from unfork.jobs.transforms import decode

#: Words: this share of the speed of a scan and filter at least.
SCAN_SHARE_MIN = 0.7
#: What is dynamic: so many times the speed of eth-abi in a UDF at least.
UDF_TIMES_MIN = 3.0
#: Different data of the dynamic event, and blocks of it in a file.
SAMPLES, FILES = 500, 4

TRANSFER = {
    "name": "Transfer",
    "inputs": [
        {"name": "from", "type": "address", "indexed": True},
        {"name": "to", "type": "address", "indexed": True},
        {"name": "value", "type": "uint256"},
    ],
}
DESCRIBED = {
    "name": "Described",
    "inputs": [
        {"name": "title", "type": "string"},
        {"name": "payload", "type": "bytes"},
        {"name": "amounts", "type": "uint256[]"},
        {
            "name": "notes",
            "type": "tuple[]",
            "components": [{"name": "id", "type": "uint256"}, {"name": "text", "type": "string"}],
        },
    ],
}
TYPES = ("string", "bytes", "uint256[]", "(uint256,string)[]")


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--logs", type=int, default=5_000_000, help="logs with words to decode")
    parser.add_argument("--dynamic", type=int, default=200_000, help="logs of the dynamic event")
    parser.add_argument("--repeats", type=int, default=5, help="turns, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures the contenders in turns."""
    logs, dynamic = (5_000, 1_000) if chosen.quick else (chosen.logs, chosen.dynamic)
    repeats = 1 if chosen.quick else chosen.repeats
    with sparks.folders() as folder:
        transfers.write(folder / "static", logs)
        write(folder / "dynamic", dynamic)
        with sparks.opened(folder) as spark:
            static = spark.read.parquet(str(folder / "static"))
            moving = spark.read.parquet(str(folder / "dynamic"))
            transfer = {"event": abi.event(TRANSFER).document}
            described = {"event": abi.event(DESCRIBED).document}
            found = decode.events(static, config=transfer).where("indexing_error IS NULL").count()
            assert found == transfers.filtered(static).count() > 0
            same(decode.events(moving, config=described), by_row(moving))
            seconds = harness.turns(
                {
                    "static": lambda: sparks.drain(decode.events(static, config=transfer)),
                    "scan": lambda: sparks.drain(transfers.filtered(static)),
                    "dynamic": lambda: sparks.drain(decode.events(moving, config=described)),
                    "eth-abi": lambda: sparks.drain(by_row(moving)),
                },
                repeats=repeats,
            )
    return Report(
        measures=[
            Measure(
                name="words, share of the speed of scan and filter",
                value=seconds["scan"] / seconds["static"],
                unit="x",
                at_least=SCAN_SHARE_MIN,
            ),
            Measure(
                name="strings, arrays, tuples, against eth-abi in a UDF",
                value=seconds["eth-abi"] / seconds["dynamic"],
                unit="x",
                at_least=UDF_TIMES_MIN,
            ),
            Measure(name="words", value=logs / seconds["static"], unit="logs/s"),
            Measure(
                name="strings, arrays, tuples", value=dynamic / seconds["dynamic"], unit="logs/s"
            ),
        ],
        details={
            "logs with words": logs,
            "dynamic logs": dynamic,
            **{f"{name}, median ms": round(each * 1000) for name, each in seconds.items()},
        },
    )


def by_row(logs: DataFrame) -> DataFrame:
    """What a UDF makes of the same logs, a row at a time."""

    def read(data: bytes) -> tuple[Any, ...]:
        # Found where it runs: what it holds cannot travel.
        from eth_abi.abi import decode as eth_decode

        title, payload, amounts, notes = eth_decode(TYPES, bytes(data))
        told = [{"id": str(number), "text": text} for number, text in notes]
        listed = [str(number) for number in amounts]
        return title, payload, json.dumps(listed), json.dumps(told)

    decoded = F.udf(
        read,
        "title string, payload binary, amounts string, notes string",
        useArrow=False,
    )
    place = ("block_number", "log_index", "address")
    topic = F.lit(abi.event(DESCRIBED).topic)
    chosen = logs.where(F.col("topic0") == topic).withColumn("decoded", decoded("data"))
    return chosen.select(*place, "decoded.*")


def same(ours: DataFrame, theirs: DataFrame) -> None:
    """Both contenders must find the same; they are compared by a few rows."""

    def rows(frame: DataFrame) -> list[Any]:
        names = ("log_index", "title", "payload", "amounts", "notes")
        held = frame.where("block_number = 0").orderBy("log_index").select(*names).collect()
        return [
            (row[0], row[1], bytes(row[2]), json.loads(row[3]), json.loads(row[4])) for row in held
        ]

    assert rows(ours) == rows(theirs) != []


def write(folder: Path, logs: int) -> None:
    """Makes the files of the dynamic event."""
    folder.mkdir()
    random = np.random.default_rng(1)
    samples = [_sample(random) for _ in range(SAMPLES)]
    size = -(-logs // FILES)
    topic = abi.event(DESCRIBED).topic
    for number, first in enumerate(range(0, logs, size)):
        count = min(size, logs - first)
        table = transfers.table(
            random, random.integers(0, 256, (transfers.ADDRESSES, 20), np.uint8), first, count
        )
        given = {
            "topic0": pa.array([topic] * count, pa.binary()),
            "topic1": pa.nulls(count, pa.binary()),
            "data": pa.array([samples[n % SAMPLES] for n in range(first, first + count)]),
        }
        for name, column in given.items():
            table = table.set_column(table.column_names.index(name), name, column)
        pq.write_table(table, folder / f"part-{number}.parquet", compression="zstd")


def _sample(random: np.random.Generator) -> bytes:
    text = "some words that people write " * 4
    amounts = [int(number) ** 4 for number in random.integers(0, 2**60, random.integers(0, 5))]
    notes = [(int(number), text[: number % 40]) for number in random.integers(0, 2**60, 2)]
    title, payload = text[: random.integers(0, 100)], random.bytes(int(random.integers(0, 100)))
    return eth_encode(TYPES, (title, payload, amounts, notes))


def main() -> int:
    """Prints the report; exits with 1 where a limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
