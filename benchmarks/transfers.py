"""Measures token_transfers over logs in Parquet, against Spark's own scan and filter.

- ours: the built-in transform, every column of its result computed, rows dropped.
- scan and filter: the same rows of the same file by the same conditions, their columns as they are.

Four fifths of the logs are transfers, most of them ERC-20, some ERC-721 and ERC-1155; the others
are of other events. All take turns. Batches of ERC-1155 take a second look at the logs, which costs
little where the storage can tell that there are none, and where Postgres finds them by their topic.
What it costs where every part of a file has some is measured beside it, on files that do.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks import harness, sparks
from benchmarks.harness import Measure, Report
from unfork.jobs.transforms import evm, topics, word

#: Ours must reach this share of the speed of a scan and filter.
SCAN_SHARE_MIN = 0.8
#: Logs of a block, and files that they lie in, so that Spark has something to share out.
BLOCK_LOGS, FILES = 200, 4
#: Shares of logs: other events, ERC-20, ERC-721, ERC-1155 alone, and in a batch (of one transfer).
ERC20_ALONE = (0.2, 0.8, 0.0, 0.0, 0.0)
MIX = (0.2, 0.7, 0.07, 0.03, 0.0)
WITH_BATCHES = (0.2, 0.7, 0.06, 0.03, 0.01)
#: Addresses in use, some of them much more than others.
ADDRESSES = 50_000

COLUMNS = (
    "block_number",
    "block_hash",
    "block_timestamp",
    "transaction_hash",
    "transaction_index",
    "log_index",
    "address",
    "topic1",
    "topic2",
    "topic3",
    "data",
)


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--logs", type=int, default=5_000_000, help="logs to read")
    parser.add_argument("--repeats", type=int, default=5, help="turns, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Measures the contenders in turns."""
    logs, repeats = (2_000, 1) if chosen.quick else (chosen.logs, chosen.repeats)
    with sparks.folders() as folder:
        size = write(folder / "logs", logs, MIX)
        write(folder / "batches", logs, WITH_BATCHES)
        with sparks.opened(folder) as spark:
            frame, mixed = (spark.read.parquet(str(folder / one)) for one in ("logs", "batches"))
            found = evm.token_transfers(frame).count()
            assert found == matching(frame).count() > 0
            seconds = harness.turns(
                {
                    "ours": lambda: sparks.drain(evm.token_transfers(frame)),
                    "scan": lambda: sparks.drain(matching(frame)),
                    "ours, batches": lambda: sparks.drain(evm.token_transfers(mixed)),
                    "scan, batches": lambda: sparks.drain(matching(mixed)),
                },
                repeats=repeats,
            )
    return Report(
        measures=[
            Measure(
                name="token_transfers, share of the speed of scan and filter",
                value=seconds["scan"] / seconds["ours"],
                unit="x",
                at_least=SCAN_SHARE_MIN,
            ),
            Measure(
                name="the same with batches in every part of a file",
                value=seconds["scan, batches"] / seconds["ours, batches"],
                unit="x",
            ),
            Measure(name="token_transfers", value=logs / seconds["ours"], unit="logs/s"),
        ],
        details={
            "logs": logs,
            "transfers among them": found,
            "MB of Parquet": round(size / 1e6, 1),
            **{f"{name}, median ms": round(each * 1000) for name, each in seconds.items()},
        },
    )


def filtered(logs: DataFrame) -> DataFrame:
    """What every ERC-20 transfer needs of its log, and nothing made of it."""
    transfer = topics.literal(topics.TRANSFER)
    has_sizes = f"topic3 IS NULL AND length(data) = {word.BYTES}"
    is_erc20 = f"topic0 = {transfer} AND topic1 IS NOT NULL AND topic2 IS NOT NULL AND {has_sizes}"
    return logs.where(is_erc20).select(*COLUMNS)


def matching(logs: DataFrame) -> DataFrame:
    """What every transfer needs of its log, and nothing made of it."""
    transfer, single, batch = map(topics.literal, topics.TRANSFERS)
    is_transfer = (
        f"CASE WHEN topic3 IS NULL THEN length(data) = {word.BYTES} AND topic0 = {transfer}"
        f" WHEN length(data) = 0 THEN topic0 = {transfer}"
        f" WHEN length(data) = {2 * word.BYTES} THEN topic0 = {single}"
        f" ELSE topic0 = {batch} END"
    )
    return logs.where(f"{topics.is_any(*topics.TRANSFERS)} AND {is_transfer}").select(*COLUMNS)


def write(folder: Path, logs: int, mix: Sequence[float] = ERC20_ALONE) -> int:
    """Makes the files; returns their bytes."""
    folder.mkdir()
    random = np.random.default_rng(1)
    known = random.integers(0, 256, (ADDRESSES, 20), dtype=np.uint8)
    size = -(-logs // FILES)
    for number, first in enumerate(range(0, logs, size)):
        pq.write_table(
            table(random, known, first, min(size, logs - first), mix),
            folder / f"part-{number}.parquet",
            compression="zstd",
            row_group_size=-(-size // 4),
        )
    return sum(file.stat().st_size for file in folder.iterdir())


def table(
    random: np.random.Generator,
    known: npt.NDArray[np.uint8],
    first: int,
    rows: int,
    mix: Sequence[float] = ERC20_ALONE,
) -> pa.Table:
    """Logs that look like those of a busy chain."""
    index = np.arange(first, first + rows)
    block = index // BLOCK_LOGS
    kind = random.choice(len(mix), rows, p=mix)
    transfer, single, batch = topics.TRANSFERS
    topic = pa.array([transfer[::-1], transfer, transfer, single, batch], pa.binary())
    amount = np.zeros((rows, 32), np.uint8)
    amount[:, 24:] = random.integers(0, 256, (rows, 8), dtype=np.uint8)
    words = _binary(amount)
    return pa.table(
        {
            "block_number": block,
            "block_hash": _binary(_hashed(block, 1)),
            "block_timestamp": pa.array(
                1_700_000_000_000_000 + block * 12_000_000, pa.timestamp("us", tz="UTC")
            ),
            "transaction_hash": _binary(_hashed(index // 2, 2)),
            "transaction_index": index % BLOCK_LOGS // 2,
            "log_index": index % BLOCK_LOGS,
            "address": _binary(known[_popular(random, rows)]),
            "topic0": topic.take(pa.array(kind)),
            "topic1": _binary(_padded(known[_popular(random, rows)])),
            "topic2": _binary(_padded(known[_popular(random, rows)])),
            "topic3": pc.if_else(pa.array(kind >= 2), words, pa.nulls(rows, pa.binary())),
            "data": pc.choose(pa.array(kind), *_data(words)),
        }
    )


def _data(words: pa.Array) -> list[pa.Array]:
    """The data of each kind of log."""
    nothing = pa.scalar(b"", pa.binary())
    empty = pa.array([b""], pa.binary()).take(pa.array(np.zeros(len(words), np.int64)))
    places, one = (
        pa.scalar(b"".join(n.to_bytes(32, "big") for n in ns)) for ns in ((64, 128), (1,))
    )
    batch = pc.binary_join_element_wise(places, one, words, one, words, nothing)
    pair = pc.binary_join_element_wise(words, words, nothing)
    return [words, words, empty, pair, batch]


def _popular(random: np.random.Generator, rows: int) -> npt.NDArray[np.int64]:
    return random.zipf(1.3, rows).astype(np.int64) % ADDRESSES


def _hashed(numbers: npt.NDArray[np.int64], seed: int) -> npt.NDArray[np.uint8]:
    """Bytes that look like a hash of each number, the same for the same one."""
    mixed = np.empty((len(numbers), 4), np.uint64)
    for place in range(4):
        mixed[:, place] = (numbers.astype(np.uint64) + np.uint64(seed + place)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        mixed[:, place] ^= mixed[:, place] >> np.uint64(29)
    return mixed.view(np.uint8)


def _padded(addresses: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    return np.pad(addresses, ((0, 0), (12, 0)))


def _binary(block: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes as an Arrow column."""
    rows, width = block.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(block))]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def main() -> int:
    """Prints the report; exits with 1 where the limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
