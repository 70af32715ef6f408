"""What decoded events must be, told by eth-abi and plain Python: the oracle of decoding.

It shares nothing with the code under test but what a dataset means. A log is of an event by its
first topic, its number of topics and its address; what eth-abi cannot read is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from eth_abi import decode
from eth_abi.exceptions import DecodingError

from unfork.devnet.block import Block
from unfork.proof.keccak import keccak256

Row = dict[str, Any]

#: What eth-abi raises where it cannot read something.
FAILURES = (DecodingError, OverflowError, MemoryError)


def argument(name: str, type_: str, *components: Row, indexed: bool = False) -> Row:
    """An input as a JSON ABI has it."""
    told: Row = {"name": name, "type": type_}
    if components:
        told["components"] = list(components)
    return {**told, "indexed": True} if indexed else told


def event(name: str, *inputs: Row, anonymous: bool = False) -> Row:
    """An event as a JSON ABI has it."""
    return {"type": "event", "name": name, "anonymous": anonymous, "inputs": list(inputs)}


def canonical(entry: Row) -> str:
    """The type of an input as a signature has it."""
    if not entry["type"].startswith("tuple"):
        return str(entry["type"])
    inner = ",".join(canonical(each) for each in entry["components"])
    return f"({inner}){entry['type'].removeprefix('tuple')}"


def topic(entry: Row) -> bytes:
    """The first topic of an event's logs."""
    types = ",".join(canonical(each) for each in entry["inputs"])
    return keccak256(f"{entry['name']}({types})".encode())


@dataclass
class Expected:
    """What an event's dataset holds, and which logs are told as errors."""

    rows: list[Row] = field(default_factory=list)
    #: Block number and log index.
    refused: list[tuple[int, int]] = field(default_factory=list)


def expected(
    entry: Row,
    blocks: Iterable[Block],
    *,
    names: Sequence[str],
    addresses: Iterable[bytes] | None = None,
    announced: Sequence[tuple[int, bytes]] | None = None,
) -> Expected:
    """What the dataset of an event is over a chain; `names` are its columns after the place.

    `announced` are addresses with the block from which on each counts.
    """
    found = Expected()
    listed = None if addresses is None else set(addresses)
    for place, log in logs(blocks):
        number = place["block_number"]
        is_meant = listed is None or log.address in listed
        if announced is not None:
            is_meant = any(a == log.address and first <= number for first, a in announced)
        if not is_meant or not is_of(entry, log.topics):
            continue
        try:
            values = values_of(entry, log.topics, log.data)
        except FAILURES:
            found.refused.append((number, place["log_index"]))
            continue
        found.rows.append(
            {**place, "address": log.address, **dict(zip(names, values, strict=True))}
        )
    return found


def logs(blocks: Iterable[Block]) -> Iterable[tuple[Row, Any]]:
    """Every log of some blocks, and where it is."""
    for block in blocks:
        for index, executed in enumerate(block.transactions):
            for log, log_index in zip(executed.logs, executed.log_indexes, strict=True):
                yield (
                    {
                        "block_number": block.number,
                        "block_hash": block.hash,
                        "block_timestamp": datetime.fromtimestamp(block.header.timestamp, UTC),
                        "transaction_hash": executed.hash,
                        "transaction_index": index,
                        "log_index": log_index,
                    },
                    log,
                )


def is_of(entry: Row, topics: Sequence[bytes]) -> bool:
    """Whether a log with these topics is of an event."""
    indexed = sum(bool(each.get("indexed")) for each in entry["inputs"])
    if entry["anonymous"]:
        return len(topics) == indexed
    return len(topics) == indexed + 1 and topics[0] == topic(entry)


def values_of(entry: Row, topics: Sequence[bytes], data: bytes) -> list[Any]:
    """The arguments of a log as their columns hold them; raises what eth-abi raises."""
    waiting = list(topics if entry["anonymous"] else topics[1:])
    plain = [each for each in entry["inputs"] if not each.get("indexed")]
    read = iter(decode([readable(each) for each in plain], data))
    values: list[Any] = []
    for each in entry["inputs"]:
        if not each.get("indexed"):
            values.append(column(each, next(read)))
            continue
        word = waiting.pop(0)
        values.append(word)
        if each["type"] not in ("string", "bytes") and not each["type"].startswith("tuple"):
            if not each["type"].endswith("]"):
                values[-1] = column(each, decode([readable(each)], word)[0])
    return values


def readable(entry: Row) -> str:
    """The type by which eth-abi reads a value: strings as bytes, for they may hold anything."""
    return canonical(entry).replace("string", "bytes")


def column(entry: Row, value: Any) -> Any:
    """A value of eth-abi as a column holds it."""
    if entry["type"].endswith("]") or entry["type"] == "tuple":
        return document(entry, value)
    if entry["type"] == "string":
        return text(value)
    return bytes.fromhex(value[2:]) if entry["type"] == "address" else value


def document(entry: Row, value: Any) -> Any:
    """A value of eth-abi as JSON holds it."""
    type_ = entry["type"]
    if type_.endswith("]"):
        item = {**entry, "type": type_[: type_.rindex("[")]}
        return [document(item, each) for each in value]
    if type_ == "tuple":
        components = entry["components"]
        told = [document(one, each) for one, each in zip(components, value, strict=True)]
        names = [one["name"] for one in components]
        is_named = all(names) and len(set(names)) == len(names)
        return dict(zip(names, told, strict=True)) if is_named else told
    if type_ == "string":
        return text(value)
    if isinstance(value, bool):
        return value
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return str(value)


def text(value: bytes) -> str:
    """A string as a column of text holds it."""
    try:
        if 0 not in value:
            return value.decode()
    except UnicodeDecodeError:
        pass
    told, left = "", value.replace(b"\\", b"\\\\")
    while left:
        for size in (1, 2, 3, 4):
            try:
                one = left[:size].decode()
            except UnicodeDecodeError:
                continue
            told, left = told + (one if one != "\0" else "\\x00"), left[size:]
            break
        else:
            told, left = f"{told}\\x{left[0]:02x}", left[1:]
    return told


def plain(value: Any) -> Any:
    """A value of JSON text, parsed."""
    return json.loads(value)
