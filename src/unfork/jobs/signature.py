"""Owns the signature of a contract's function: how a call of it is written and what it returns.

`balanceOf(address)(uint256 balance)` names the function, the types of its arguments and those of
what it returns, each with a name where one is wanted. Types are those of the contract ABI that fit
into a column: numbers, addresses, booleans, bytes of any length and strings. One more is ours:
`text`, a string that some of the first tokens return as a bytes32.

What a contract returns is a stranger's. An answer that is not what the signature says decodes to
nothing, never to a guess; a text loses what no text of Postgres can hold. Both are remarked upon.

Pure: no clock, no I/O.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unfork.datasets.dataset import Kind
from unfork.proof.keccak import keccak256

WORD = 32
#: Bytes of a signed number outside of 64 bits, as Spark has sums of words.
SIGNED_BYTES = 36

_TYPE = re.compile(r"(uint|int|bytes)(\d{1,3})?|address|bool|string|text")
_PART = re.compile(r"\s*([a-z]\w*)(?:\s+([A-Za-z_]\w*))?\s*", re.ASCII)
_SIGNATURE = re.compile(r"\s*([A-Za-z_$][\w$]*)\s*\(([^()]*)\)\s*\(([^()]*)\)\s*", re.ASCII)


class BadSignature(ValueError):
    """A signature that cannot be used; the message says why."""


class Unfit(ValueError):
    """A value that does not fit the type of an argument."""


@dataclass(frozen=True, slots=True)
class Type:
    """One type of the contract ABI."""

    #: As the selector is made of it.
    name: str

    @property
    def kind(self) -> Kind:
        """What column its values fit into."""
        if self.name.startswith("uint"):
            return Kind.INT if self.bits < 64 else Kind.U256
        if self.name.startswith("int"):
            return Kind.INT if self.bits <= 64 else Kind.SIGNED
        if self.name == "bool":
            return Kind.BOOL
        return Kind.TEXT if self.is_text else Kind.BYTES

    @property
    def takes(self) -> frozenset[Kind]:
        """The kinds of columns that it takes its values from, as an argument."""
        if self.name.startswith(("uint", "int")):
            return frozenset({Kind.INT, Kind.U256, Kind.SIGNED})
        return frozenset({self.kind})

    @property
    def bits(self) -> int:
        """Bits of a number."""
        return int(self.name.removeprefix("u").removeprefix("int"))

    @property
    def size(self) -> int:
        """Bytes of a type of so many bytes."""
        return int(self.name.removeprefix("bytes"))

    @property
    def is_text(self) -> bool:
        return self.name in ("string", "text")

    @property
    def is_dynamic(self) -> bool:
        """Whether its place holds only the way to its value."""
        return self.is_text or self.name == "bytes"


@dataclass(frozen=True, slots=True)
class Named:
    """A type and the column for it."""

    type: Type
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """A function of a contract."""

    name: str
    arguments: tuple[Type, ...]
    returns: tuple[Named, ...]

    @property
    def selector(self) -> bytes:
        """What the input of a call begins with."""
        types = ",".join(one.name for one in self.arguments)
        return keccak256(f"{self.name}({types})".encode())[:4]


@dataclass(frozen=True, slots=True)
class Decoded:
    """What an answer says, with what had to be left out or was not as it should be."""

    #: One a return; all None where the answer is not what the signature says.
    values: tuple[Any, ...]
    remarks: tuple[str, ...] = ()


@functools.lru_cache(maxsize=256)
def parse(text: str) -> Signature:
    """A signature out of its text; raises BadSignature."""
    found = _SIGNATURE.fullmatch(text)
    if found is None:
        raise BadSignature(
            f"{text!r} is no signature; write it as name(types of its arguments)(types it returns)"
        )
    name, given, returned = found.groups()
    arguments = tuple(part.type for part in _parts(given))
    if any(one.name == "text" for one in arguments):
        raise BadSignature("`text` is what a function returns; an argument is a string or bytes32")
    returns = _parts(returned)
    names = [one.name for one in returns]
    named = tuple(
        Named(one.type, one.name or ("value" if len(returns) == 1 else f"value{place}"))
        for place, one in enumerate(returns)
    )
    if len({one.name for one in named}) != len(named):
        raise BadSignature(f"{text!r} names two returns alike: {', '.join(filter(None, names))}")
    return Signature(name=name, arguments=arguments, returns=named)


def encode(signature: Signature, values: Sequence[Any]) -> bytes:
    """The input of a call: numbers as int, everything else as bytes or str; raises Unfit."""
    heads: list[bytes | None] = []
    tails: list[bytes] = []
    for type_, value in zip(signature.arguments, values, strict=True):
        if type_.is_dynamic:
            data = value.encode() if isinstance(value, str) else value
            tails.append(len(data).to_bytes(WORD, "big") + data + bytes(-len(data) % WORD))
            heads.append(None)
        else:
            heads.append(_word(type_, value))
    at = WORD * len(heads)
    left = iter(tails)
    placed = b""
    for head in heads:
        if head is None:
            head = at.to_bytes(WORD, "big")
            at += len(next(left))
        placed += head
    return signature.selector + placed + b"".join(tails)


def decode(signature: Signature, output: bytes) -> Decoded:
    """What an answer says."""
    nothing: tuple[Any, ...] = (None,) * len(signature.returns)
    if not signature.returns:
        return Decoded(())
    if not output:
        return Decoded(nothing, ("empty",))
    if len(output) == WORD and len(signature.returns) == 1:
        if signature.returns[0].type.name == "text":
            text, remarks = _fit_text(output.rstrip(b"\0"))
            return Decoded((text,), ("bytes32", *remarks))
    values: list[Any] = []
    said: list[str] = []
    try:
        for place, one in enumerate(signature.returns):
            value, remarks = _value(one.type, output, place)
            values.append(value)
            said += remarks
    except Unfit:
        return Decoded(nothing, ("undecodable",))
    return Decoded(tuple(values), tuple(dict.fromkeys(said)))


def _parts(text: str) -> list[Named]:
    return [_part(part) for part in text.split(",")] if text.strip() else []


def _part(text: str) -> Named:
    found = _PART.fullmatch(text)
    type_ = None if found is None else _type(found.group(1))
    if found is None or type_ is None:
        raise BadSignature(
            f"{text.strip()!r} is no type that fits into a column; leave out what it returns and "
            "read `output`"
        )
    return Named(type_, found.group(2) or "")


def _type(name: str) -> Type | None:
    found = _TYPE.fullmatch(name)
    if found is None:
        return None
    base, size = found.group(1), found.group(2)
    if base in ("uint", "int"):
        bits = int(size or 256)
        return Type(f"{base}{bits}") if 8 <= bits <= 256 and bits % 8 == 0 else None
    if size is not None and not 1 <= int(size) <= WORD:
        return None
    return Type(name)


def _word(type_: Type, value: Any) -> bytes:
    """The 32 bytes of a value that has as many."""
    if type_.kind is Kind.BOOL:
        return int(value).to_bytes(WORD, "big")
    if type_.name.startswith(("uint", "int")):
        is_signed = type_.name.startswith("int")
        low = -(1 << type_.bits - 1) if is_signed else 0
        if not low <= value < low + (1 << type_.bits):
            raise Unfit
        return int(value).to_bytes(WORD, "big", signed=is_signed)
    size = 20 if type_.name == "address" else type_.size
    if len(value) != size:
        raise Unfit
    return bytes(value).rjust(WORD, b"\0") if size == 20 else bytes(value).ljust(WORD, b"\0")


def _value(type_: Type, output: bytes, place: int) -> tuple[Any, tuple[str, ...]]:
    """A returned value, in the form of its column; raises Unfit."""
    word = _cut(output, place * WORD, WORD)
    if type_.is_dynamic:
        start = _number(word, output)
        length = _number(_cut(output, start, WORD), output)
        data = _cut(output, start + WORD, length)
        return _fit_text(data) if type_.is_text else (data, ())
    if type_.name.startswith("uint"):
        number = int.from_bytes(word, "big")
        if number >> type_.bits:
            raise Unfit
        return (number if type_.kind is Kind.INT else word), ()
    if type_.name.startswith("int"):
        number = int.from_bytes(word, "big", signed=True)
        if not -(1 << type_.bits - 1) <= number < 1 << type_.bits - 1:
            raise Unfit
        if type_.kind is Kind.INT:
            return number, ()
        return number.to_bytes(SIGNED_BYTES, "big", signed=True), ()
    if type_.name == "bool":
        if word not in (_FALSE, _TRUE):
            raise Unfit
        return word == _TRUE, ()
    if type_.name == "address":
        if any(word[:12]):
            raise Unfit
        return word[12:], ()
    if any(word[type_.size :]):
        raise Unfit
    return word[: type_.size], ()


_FALSE, _TRUE = bytes(WORD), bytes(WORD - 1) + b"\1"


def _cut(output: bytes, start: int, length: int) -> bytes:
    """So many bytes, all of which must be there."""
    if start + length > len(output):
        raise Unfit
    return output[start : start + length]


def _number(word: bytes, output: bytes) -> int:
    """A place or a length; what lies beyond the answer is neither."""
    number = int.from_bytes(word, "big")
    if number > len(output):
        raise Unfit
    return number


def _fit_text(data: bytes) -> tuple[str, tuple[str, ...]]:
    """A text that Postgres can hold: without NUL, and U+FFFD for what is no UTF-8."""
    remarks = []
    if b"\0" in data:
        remarks.append("nul")
        data = data.replace(b"\0", b"")
    try:
        return data.decode(), tuple(remarks)
    except UnicodeDecodeError:
        return data.decode(errors="replace"), (*remarks, "utf8")
