"""Owns the options of `format("unfork")`: read once, checked whole, each problem said by name.

| option | what |
|---|---|
| `dataset` | what is read: `blocks`, `logs`, ..., or what a job writes; always needed |
| `chain` | whose; needed where several chains are configured |
| `config` | the path of unfork.yaml as the executors see it; else their own environment says |
| `first`, `last` | the blocks, both included; all that are held when left out |
| `columns` | names with commas between; all when left out (Spark does not tell which it needs) |
| `at` | `number:0xhash`: the block up to which the chain is read; else the position or watermark |
| `tasks` | pieces that a large read is cut into |
| `only` | JSON: of some columns, the values (hex) of which a row must hold one to be read |
| `push` | `true` where the DataFrame is used once: then the database answers its filters |
| `store` | `hot` for the tables of Postgres alone; else what the lake holds is read there |
| `snapshot`, `floor`, `epoch` | one state for all reads of a run; `snapshot.hold` makes them |
| `stream` | with `readStream`: the stream's name, by which its place is kept |
| `start` | with `stream`: `snapshot`, `journal` or `latest` |
| `entries_max` | with `stream`: journal entries in one micro-batch, at most |
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from unfork import errors
from unfork.chain.block import BlockRef

#: Where a stream begins: at the blocks held now, at the first journal entry, or after the last one.
STARTS = ("snapshot", "journal", "latest")

#: Where rows can be asked for.
STORES = ("hot",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a reader asked for."""

    dataset: str
    chain: str | None = None
    config: str | None = None
    first: int | None = None
    last: int | None = None
    #: Empty for all.
    columns: tuple[str, ...] = ()
    at: BlockRef | None = None
    tasks: int | None = None
    #: By column, the values of which a row must hold one; rows without may be read all the same.
    only: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    #: Whether filters of Spark are answered by the database.
    push: bool = False
    snapshot: str | None = None
    #: The number of the floor in the snapshot, -1 where nothing is final.
    floor: int | None = None
    epoch: int | None = None
    #: Where rows are read, empty for wherever they are.
    store: str = ""
    stream: str | None = None
    start: str = STARTS[0]
    entries_max: int = 1000


def parse(options: Mapping[str, str]) -> Request:
    """The request that the options make, or ConfigInvalid with everything that is wrong."""
    known = {one.name: one for one in fields(Request)}
    problems: list[str] = []
    given: dict[str, Any] = {}
    for name, text in options.items():
        if name.lower() not in known:
            near = difflib.get_close_matches(name.lower(), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"
            problems.append(f"option {name} is unknown{hint}")
            continue
        try:
            given[name.lower()] = _READERS.get(name.lower(), str)(text.strip())
        except ValueError as error:
            problems.append(f"option {name}: {error}")
    if not given.get("dataset") and not any("dataset" in problem for problem in problems):
        problems.append("option dataset is missing")
    if given.get("snapshot") and not {"at", "floor", "epoch"} <= given.keys():
        problems.append("option snapshot goes with at, floor and epoch; take all from one holder")
    if problems:
        raise errors.ConfigInvalid("; ".join(problems), problems=problems)
    return Request(**given)


def ref(text: str) -> BlockRef:
    """Reads `number:0xhash`; raises ValueError."""
    match = re.fullmatch(r"(\d+):(?:0x)?((?:[0-9a-fA-F]{2})+)", text)
    if match is None:
        raise ValueError(f"{text!r} is no block; write number:0xhash")
    return BlockRef(int(match.group(1)), bytes.fromhex(match.group(2)))


def text(block: BlockRef) -> str:
    """A block as `ref` reads it."""
    return f"{block.number}:0x{block.hash.hex()}"


def only(values: Mapping[str, Sequence[bytes]]) -> str:
    """The option `only`, as it is read."""
    return json.dumps({name: [value.hex() for value in each] for name, each in values.items()})


def _only(text: str) -> dict[str, tuple[bytes, ...]]:
    try:
        return {
            name: tuple(bytes.fromhex(value.removeprefix("0x")) for value in values)
            for name, values in json.loads(text).items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ValueError('it is JSON: {"column": ["0xhex", ...]}') from None


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _whole(text: str) -> int:
    if not re.fullmatch(r"-?\d+", text):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)


def _natural(text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        raise ValueError(f"{text!r} is not a block number")
    return int(text)


def _positive(text: str) -> int:
    if (number := _whole(text)) < 1:
        raise ValueError(f"{number} is not at least 1")
    return number


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if len(set(names)) < len(names):
        raise ValueError("a column is named twice")
    return names


def _snapshot(text: str) -> str:
    if not re.fullmatch(r"[0-9A-F]+(-[0-9A-F]+)*", text):
        raise ValueError(f"{text!r} is no snapshot of Postgres")
    return text


def _stream(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", text):
        raise ValueError(f"{text!r} is no name: letters, digits, points, - and _")
    return text


def _store(text: str) -> str:
    if text not in STORES:
        raise ValueError(f"{text!r} is none of {', '.join(STORES)}")
    return text


def _start(text: str) -> str:
    if text not in STARTS:
        raise ValueError(f"{text!r} is none of {', '.join(STARTS)}")
    return text


_READERS = {
    "first": _natural,
    "last": _natural,
    "columns": _names,
    "at": ref,
    "tasks": _positive,
    "only": _only,
    "push": _flag,
    "snapshot": _snapshot,
    "floor": _whole,
    "epoch": _whole,
    "store": _store,
    "stream": _stream,
    "start": _start,
    "entries_max": _positive,
}
