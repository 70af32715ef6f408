"""Owns the events of an ABI as tests write them: how a call of one becomes topics and data.

An event is known from an ABI (a file, or what JSON makes of it) or from its signature, as Solidity
writes it: `Swap(address indexed sender, uint256 amount)`. What stands here encodes; the decoding
that jobs do is written elsewhere and shares nothing with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unfork.proof.keccak import keccak256

WORD = 32

_ARRAY = re.compile(r"(.*)\[(\d*)\]\Z", re.DOTALL)
_SIGNATURE = re.compile(r"\s*(?:event\s+)?([A-Za-z_$][\w$]*)\s*\((.*)\)\s*(anonymous)?\s*;?\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of an event."""

    name: str
    #: As it stands in the signature, tuples written out: `(address,uint256)[]`.
    type: str
    is_indexed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event of a contract."""

    name: str
    arguments: tuple[Argument, ...]
    is_anonymous: bool = False

    @property
    def signature(self) -> str:
        """What its topic is the hash of."""
        return f"{self.name}({','.join(argument.type for argument in self.arguments)})"

    def log(self, values: Sequence[Any]) -> tuple[tuple[bytes, ...], bytes]:
        """The topics and the data of one; the values in the order of the arguments.

        Raises ValueError where a value does not fit its type.
        """
        pairs = list(zip(self.arguments, values, strict=True))
        topics = [] if self.is_anonymous else [keccak256(self.signature.encode())]
        topics += [_topic(one.type, value) for one, value in pairs if one.is_indexed]
        plain = [(one.type, value) for one, value in pairs if not one.is_indexed]
        return tuple(topics), sequence([kind for kind, _ in plain], [value for _, value in plain])


def known(given: str | Path | Sequence[Any]) -> tuple[Event, ...]:
    """The events of an ABI: of a file, of parsed JSON, or of signatures. Raises ValueError."""
    found: Any = given
    if isinstance(given, Path) or (isinstance(given, str) and given.endswith(".json")):
        found = json.loads(Path(given).read_text(encoding="utf-8"))
    if isinstance(found, Mapping):
        # What compilers write: the ABI beside the code.
        found = found.get("abi", [])
    return tuple(_events([found] if isinstance(found, str) else found))


def sequence(types: Sequence[str], values: Sequence[Any]) -> bytes:
    """Values one after the other: fixed ones in place, the others behind, with where they are."""
    if len(types) != len(values):
        raise ValueError(f"{len(types)} values are needed, {len(values)} are given")
    heads: list[bytes | None] = []
    tails: list[bytes] = []
    for kind, value in zip(types, values, strict=True):
        encoded = encode(kind, value)
        heads.append(None if is_dynamic(kind) else encoded)
        tails.append(encoded if is_dynamic(kind) else b"")
    at = sum(WORD if head is None else len(head) for head in heads)
    parts = []
    for head, tail in zip(heads, tails, strict=True):
        parts.append(at.to_bytes(WORD, "big") if head is None else head)
        at += len(tail)
    return b"".join([*parts, *tails])


def encode(kind: str, value: Any) -> bytes:
    """One value; raises ValueError where it does not fit."""
    array = _ARRAY.fullmatch(kind)
    if array is not None:
        inner, size = array.groups()
        items = list(value)
        if size and len(items) != int(size):
            raise ValueError(f"{kind} takes {size} values, not {len(items)}")
        body = sequence([inner] * len(items), items)
        return body if size else len(items).to_bytes(WORD, "big") + body
    if kind.startswith("("):
        return sequence(members(kind), list(value))
    match re.fullmatch(r"([a-z]+)(\d*)", kind):
        case None:
            raise ValueError(f"{kind} is no type of the ABI")
        case found:
            return _simple(found.group(1), found.group(2), value)


def is_dynamic(kind: str) -> bool:
    """Whether values of a type differ in length."""
    array = _ARRAY.fullmatch(kind)
    if array is not None:
        return not array.group(2) or is_dynamic(array.group(1))
    if kind.startswith("("):
        return any(map(is_dynamic, members(kind)))
    return kind in ("bytes", "string")


def members(kind: str) -> list[str]:
    """The types in a tuple."""
    return list(_split(kind[1:-1]))


def _simple(name: str, size: str, value: Any) -> bytes:
    match name:
        case "uint" | "int":
            bits = int(size or 256)
            low, high = (0, 2**bits) if name == "uint" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
            if not isinstance(value, int) or not low <= value < high:
                raise ValueError(f"{value!r} is no {name}{bits}")
            return (value % 2**256).to_bytes(WORD, "big")
        case "bool":
            if not isinstance(value, bool):
                raise ValueError(f"{value!r} is neither true nor false")
            return int(value).to_bytes(WORD, "big")
        case "address":
            if not isinstance(value, bytes) or len(value) != 20:
                raise ValueError(f"{value!r} is no address")
            return bytes(12) + value
        case "bytes" if size:
            if not isinstance(value, bytes) or len(value) > int(size):
                raise ValueError(f"{value!r} does not fit bytes{size}")
            return value.ljust(WORD, b"\0")
        case "bytes" | "string":
            data = value.encode() if isinstance(value, str) else value
            if not isinstance(data, bytes):
                raise ValueError(f"{value!r} is no {name}")
            return len(data).to_bytes(WORD, "big") + _filled(data)
    raise ValueError(f"{name}{size} is no type of the ABI")


def _topic(kind: str, value: Any) -> bytes:
    """An indexed value: as it is where one word holds it, else the hash of it."""
    if _ARRAY.fullmatch(kind) or kind.startswith("("):
        return keccak256(_flat(kind, value))
    if kind in ("bytes", "string"):
        return keccak256(value.encode() if isinstance(value, str) else value)
    return encode(kind, value)


def _flat(kind: str, value: Any) -> bytes:
    """What the topic of a list or tuple is the hash of: its members in whole words, no lengths."""
    array = _ARRAY.fullmatch(kind)
    if array is not None:
        return b"".join(_flat(array.group(1), item) for item in value)
    if kind.startswith("("):
        return b"".join(map(_flat, members(kind), value))
    if kind in ("bytes", "string"):
        return _filled(value.encode() if isinstance(value, str) else value)
    return encode(kind, value)


def _filled(data: bytes) -> bytes:
    return data + bytes(-len(data) % WORD)


def _events(items: Iterable[Any]) -> Iterator[Event]:
    for item in items:
        if isinstance(item, str):
            yield _signed(item)
        elif item.get("type") == "event":
            arguments = (
                Argument(name=one["name"], type=_written(one), is_indexed=one.get("indexed", False))
                for one in item.get("inputs", ())
            )
            is_anonymous = bool(item.get("anonymous"))
            yield Event(name=item["name"], arguments=tuple(arguments), is_anonymous=is_anonymous)


def _signed(text: str) -> Event:
    """An event of its signature."""
    match = _SIGNATURE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no signature of an event, such as Paid(address indexed to)")
    name, inside, anonymous = match.groups()
    arguments = []
    for part in _split(inside):
        typed, *words = re.findall(r"\(.*\)[\w\[\]]*|[^\s]+", part)
        is_indexed = "indexed" in words
        named = [word for word in words if word != "indexed"]
        canonical = re.sub(r"\b(u?int)\b(?!\d)", r"\g<1>256", re.sub(r"\s|tuple", "", typed))
        arguments.append(
            Argument(name=named[-1] if named else "", type=canonical, is_indexed=is_indexed)
        )
    return Event(name=name, arguments=tuple(arguments), is_anonymous=anonymous is not None)


def _written(argument: Mapping[str, Any]) -> str:
    """A type of JSON as it stands in a signature."""
    kind: str = argument["type"]
    if not kind.startswith("tuple"):
        return kind
    inner = ",".join(_written(one) for one in argument["components"])
    return f"({inner}){kind.removeprefix('tuple')}"


def _split(text: str) -> Iterator[str]:
    """The parts of a list between commas, brackets within it left alone."""
    depth, start = 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    if text[start:].strip():
        yield text[start:].strip()
