"""Owns the events of a contract's ABI: read from a JSON file, and as what decides a job's rows.

An event becomes a plain document that holds what decoding needs and nothing else, so that an ABI
that says the same in other words, or in another order, is no change to the job.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unfork.jobs.decode import types
from unfork.jobs.decode.types import AbiInvalid, Type
from unfork.proof.keccak import keccak256

#: Topics of a log at most.
TOPICS_MAX = 4
#: Arguments of an event at most; far more than a contract can log.
ARGUMENTS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of an event."""

    #: As the ABI writes it; may be empty.
    name: str
    type: Type
    #: Whether it is a topic.
    is_indexed: bool
    #: The document that it was read from, without what decides nothing.
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event."""

    name: str
    #: Whether no topic tells which event a log is of.
    is_anonymous: bool
    arguments: tuple[Argument, ...]

    @property
    def signature(self) -> str:
        """Name and types: `Transfer(address,address,uint256)`."""
        return f"{self.name}({','.join(one.type.canonical for one in self.arguments)})"

    @property
    def topic(self) -> bytes:
        """The hash of its signature, which is the first topic of its logs."""
        return keccak256(self.signature.encode())

    @property
    def indexed(self) -> tuple[Argument, ...]:
        """The arguments that are topics, in order."""
        return tuple(one for one in self.arguments if one.is_indexed)

    @property
    def document(self) -> dict[str, Any]:
        """What decides the rows, as plain values; `event` reads it again."""
        return {
            "name": self.name,
            "anonymous": self.is_anonymous,
            "inputs": [dict(one.document) for one in self.arguments],
        }


def load(file: Path) -> tuple[Event, ...]:
    """The events of an ABI file, in order; raises AbiInvalid with what is wrong."""
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise AbiInvalid(f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise AbiInvalid("is not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise AbiInvalid(f"is not JSON: {error.msg} at line {error.lineno}") from error
    except RecursionError as error:
        raise AbiInvalid("is no ABI: it is nested too deeply") from error
    if isinstance(held, Mapping):
        held = held.get("abi")
    if not isinstance(held, list):
        raise AbiInvalid("is no ABI: neither a list, nor a mapping with a list under `abi`")
    found: dict[str, Event] = {}
    for entry in held:
        if not isinstance(entry, Mapping):
            raise AbiInvalid("is no ABI: an entry of it is no mapping")
        if entry.get("type") == "event":
            read = event(entry)
            # Artifacts of several files may say the same event twice.
            found.setdefault(read.signature, read)
    if not found:
        raise AbiInvalid("has no event")
    return tuple(found.values())


def event(entry: Mapping[str, Any]) -> Event:
    """The event that an entry of an ABI, or a document, describes; raises AbiInvalid."""
    name, inputs = entry.get("name"), entry.get("inputs", [])
    if not isinstance(name, str) or not name or not isinstance(inputs, list):
        raise AbiInvalid("has an event without name or inputs")
    try:
        arguments = tuple(_argument(each) for each in inputs)
    except AbiInvalid as error:
        raise AbiInvalid(f"event `{name}`: {error}") from error
    found = Event(name=name, is_anonymous=bool(entry.get("anonymous", False)), arguments=arguments)
    most = TOPICS_MAX if found.is_anonymous else TOPICS_MAX - 1
    if len(found.indexed) > most:
        raise AbiInvalid(f"event `{name}` has more than {most} indexed arguments")
    if len(arguments) > ARGUMENTS_MAX:
        raise AbiInvalid(f"event `{name}` has more than {ARGUMENTS_MAX} arguments")
    return found


def _argument(entry: Any) -> Argument:
    if not isinstance(entry, Mapping):
        raise AbiInvalid("an input is no mapping")
    is_indexed = bool(entry.get("indexed", False))
    document = {**_decisive(entry, types.read(entry)), "indexed": is_indexed}
    return Argument(
        name=str(entry.get("name") or ""),
        type=types.read(entry),
        is_indexed=is_indexed,
        document=document,
    )


def _decisive(entry: Mapping[str, Any], type_: Type) -> dict[str, Any]:
    """An input without what decides nothing, its type in the one way of a signature."""
    text = str(entry["type"])
    kept: dict[str, Any] = {"name": str(entry.get("name") or "")}
    if not text.startswith("tuple"):
        return {**kept, "type": type_.canonical}
    inner = type_
    while inner.item is not None:
        inner = inner.item
    listed = zip(entry["components"], inner.components, strict=True)
    components = [_decisive(each, component) for each, (_, component) in listed]
    return {**kept, "type": text, "components": components}
