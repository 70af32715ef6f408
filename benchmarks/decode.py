"""Measures decoding: a node's JSON to Arrow tables, against two peers on the same bytes.

The peers: `orjson.loads` alone, which makes Python objects and no table at all; and a decoder as
one writes it first, which takes field by field and builds the tables from rows. Blocks have 200
transactions and 400 logs. All run in turns, so that a busy machine slows all of them alike, and the
medians of their processor time are compared. Ours is shown a second time with the checks that an
answer must pass before it is believed, which neither peer has.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from datetime import UTC, datetime
from random import Random
from typing import Any

import orjson
import pyarrow as pa

from benchmarks import harness
from benchmarks.harness import Measure, Report
from unfork.datasets import evm
from unfork.datasets.dataset import Dataset, Kind
from unfork.datasets.scope import Scope
from unfork.sources import answers, checks, decode

#: Ours must reach this share of the speed of `orjson.loads` alone.
ORJSON_SHARE_MIN = 0.4
#: Ours must be this many times as fast as the decoder that goes field by field.
PER_FIELD_FACTOR_MIN = 5.0

TRANSACTIONS, LOGS_EACH = 200, 2


def main() -> int:
    """Runs the benchmark and prints its verdict."""
    return harness.main(__doc__, run, options)


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes, for experiments."""
    parser.add_argument("--blocks", type=int, default=16, help="blocks in one batch")
    parser.add_argument("--repeats", type=int, default=15, help="turns of all")


def run(chosen: argparse.Namespace) -> Report:
    """Lets all decode the same bytes, in turns."""
    blocks, receipts = bodies(2 if chosen.quick else chosen.blocks)
    assert ours(blocks, receipts) == per_field(blocks, receipts), "the decoders disagree"
    medians = harness.turns(
        {
            "orjson_loads": lambda: (orjson.loads(blocks), orjson.loads(receipts)),
            "ours": lambda: ours(blocks, receipts),
            "ours_with_checks": lambda: ours(blocks, receipts, is_checked=True),
            "per_field": lambda: per_field(blocks, receipts),
        },
        repeats=1 if chosen.quick else chosen.repeats,
        clock=time.process_time,
    )
    size = len(blocks) + len(receipts)
    return Report(
        measures=[
            Measure(
                name="share of orjson.loads alone",
                value=medians["orjson_loads"] / medians["ours"],
                unit="x",
                at_least=ORJSON_SHARE_MIN,
            ),
            Measure(
                name="times as fast as field by field",
                value=medians["per_field"] / medians["ours"],
                unit="x",
                at_least=PER_FIELD_FACTOR_MIN,
            ),
            Measure(name="speed", value=size / 1e6 / medians["ours"], unit="MB/s"),
        ],
        details={
            "bytes": size,
            "medians_ms": {name: round(value * 1000, 2) for name, value in medians.items()},
        },
    )


def ours(blocks: bytes, receipts: bytes, *, is_checked: bool = False) -> dict[str, pa.Table]:
    """The source's own way: parse, check on request, build columns."""
    wholes = []
    given = answers.RECEIPTS.batch.decode(receipts)
    for number, envelope in enumerate(answers.BLOCK.batch.decode(blocks)):
        block, own = envelope.result, given[number].result
        if is_checked:
            checks.placed(block, number)
            checks.transactions(block)
            checks.receipts(block, own)
        wholes.append(decode.Whole(block=block, receipts=own))
    return decode.tables(wholes, Scope())


def per_field(blocks: bytes, receipts: bytes) -> dict[str, pa.Table]:
    """The plain way: every field of every row through a function, tables from rows."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in Scope().datasets}
    given = json.loads(receipts)
    for number, envelope in enumerate(json.loads(blocks)):
        _rows_of(envelope["result"], given[number]["result"], rows)
    return {
        name: pa.Table.from_pylist(some, schema=evm.BY_NAME[name].schema)
        for name, some in rows.items()
    }


def bodies(blocks: int) -> tuple[bytes, bytes]:
    """The answers to two batches of calls: blocks with transactions, and receipts with logs."""
    random = Random(1)
    made = [_block(random, number) for number in range(blocks)]
    envelope = {"jsonrpc": "2.0"}
    first = [{**envelope, "id": n, "result": block} for n, (block, _) in enumerate(made)]
    second = [{**envelope, "id": n, "result": receipts} for n, (_, receipts) in enumerate(made)]
    return orjson.dumps(first), orjson.dumps(second)


def _block(random: Random, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    place = {"blockHash": _data(random, 32), "blockNumber": hex(number)}
    transactions = [_transaction(random, place, index) for index in range(TRANSACTIONS)]
    block = {
        "number": hex(number),
        "hash": place["blockHash"],
        "timestamp": hex(1_700_000_000 + 12 * number),
        "nonce": "0x0000000000000000",
        "miner": _data(random, 20),
        "logsBloom": _data(random, 256),
        "extraData": _data(random, 12),
        "difficulty": "0x0",
        "size": hex(random.randrange(50_000, 150_000)),
        "gasLimit": hex(36_000_000),
        "gasUsed": hex(random.randrange(10**7, 3 * 10**7)),
        "baseFeePerGas": hex(random.randrange(10**9, 10**11)),
        "blobGasUsed": "0x20000",
        "excessBlobGas": "0x0",
        "uncles": [],
        "transactions": transactions,
        "withdrawals": [_withdrawal(random, 16 * number + place) for place in range(16)],
    }
    for name in _HASHES:
        block[name] = _data(random, 32)
    return block, [_receipt(random, each, place) for each in transactions]


def _transaction(random: Random, place: dict[str, Any], index: int) -> dict[str, Any]:
    return {
        **place,
        "from": _data(random, 20),
        "gas": hex(random.randrange(21_000, 800_000)),
        "gasPrice": hex(random.randrange(10**9, 10**11)),
        "maxFeePerGas": hex(random.randrange(10**9, 10**11)),
        "maxPriorityFeePerGas": hex(random.randrange(10**8, 10**10)),
        "hash": _data(random, 32),
        "input": _data(random, random.choice([0, 0, 68, 68, 68, 132, 260, 580])),
        "nonce": hex(random.randrange(100_000)),
        "to": _data(random, 20),
        "transactionIndex": hex(index),
        "value": hex(random.choice([0, 0, random.randrange(10**20)])),
        "type": "0x2",
        "accessList": [],
        "chainId": "0x1",
        "v": "0x1",
        "r": _data(random, 32),
        "s": _data(random, 32),
        "yParity": "0x1",
    }


def _receipt(random: Random, own: dict[str, Any], place: dict[str, Any]) -> dict[str, Any]:
    index = int(own["transactionIndex"], 16)
    shared = {"transactionHash": own["hash"], "transactionIndex": own["transactionIndex"]}
    logs = [
        {
            "address": _data(random, 20),
            "topics": [_data(random, 32) for _ in range(3)],
            "data": _data(random, 32),
            **place,
            **shared,
            "logIndex": hex(LOGS_EACH * index + position),
            "removed": False,
        }
        for position in range(LOGS_EACH)
    ]
    return {
        **place,
        **shared,
        "contractAddress": None,
        "cumulativeGasUsed": hex(60_000 * (index + 1)),
        "effectiveGasPrice": own["gasPrice"],
        "from": own["from"],
        "gasUsed": hex(60_000),
        "logs": logs,
        "logsBloom": _data(random, 256),
        "status": "0x1",
        "to": own["to"],
        "type": "0x2",
    }


def _withdrawal(random: Random, index: int) -> dict[str, Any]:
    return {
        "index": hex(index),
        "validatorIndex": hex(random.randrange(10**6)),
        "address": _data(random, 20),
        "amount": hex(random.randrange(10**7, 10**8)),
    }


def _data(random: Random, size: int) -> str:
    return "0x" + random.randbytes(size).hex()


_HASHES = (
    "parentHash",
    "mixHash",
    "sha3Uncles",
    "transactionsRoot",
    "stateRoot",
    "receiptsRoot",
    "withdrawalsRoot",
    "parentBeaconBlockRoot",
)

# The plain decoder.


def _rows_of(
    block: dict[str, Any], receipts: list[dict[str, Any]], rows: dict[str, list[dict[str, Any]]]
) -> None:
    place = {
        "block_number": block["number"],
        "block_hash": block["hash"],
        "block_timestamp": block["timestamp"],
    }
    header = {_snake(name): value for name, value in block.items()}
    header["transaction_count"] = hex(len(block["transactions"]))
    rows["blocks"].append(_row(evm.BLOCKS, header))
    for transaction, receipt in zip(block["transactions"], receipts, strict=True):
        fields = {_snake(name): value for name, value in receipt.items()}
        fields |= {_snake(name): value for name, value in transaction.items()}
        fields |= place
        fields["from_address"], fields["to_address"] = transaction["from"], transaction["to"]
        fields["transaction_type"] = transaction["type"]
        rows["transactions"].append(_row(evm.TRANSACTIONS, fields))
        for log in receipt["logs"]:
            fields = {_snake(name): value for name, value in log.items()} | place
            for position, topic in enumerate(log["topics"]):
                fields[f"topic{position}"] = topic
            rows["logs"].append(_row(evm.LOGS, fields))
    for position, withdrawal in enumerate(block["withdrawals"]):
        fields = {_snake(name): value for name, value in withdrawal.items()} | place
        fields["withdrawal_index"] = hex(position)
        rows["withdrawals"].append(_row(evm.WITHDRAWALS, fields))


def _row(dataset: Dataset, fields: dict[str, Any]) -> dict[str, Any]:
    return {column.name: _value(column.kind, fields.get(column.name)) for column in dataset.columns}


def _value(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case Kind.INT:
            return int(value, 16)
        case Kind.U256:
            return int(value, 16).to_bytes(32, "big")
        case Kind.TIME:
            return datetime.fromtimestamp(int(value, 16), UTC)
        case Kind.JSON:
            return json.dumps(value)
        case _:
            return bytes.fromhex(value[2:])


@functools.cache
def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


if __name__ == "__main__":
    sys.exit(main())
