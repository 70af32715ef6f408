"""Owns the types of the contract ABI: read from a JSON ABI, and what each takes in data.

Data is made of words of 32 bytes. A static type stands in place, in as many words as it always
takes; of a dynamic one an offset stands in place, which leads to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

#: Bytes of a word.
WORD = 32
#: How deep arrays and tuples may lie in each other.
DEPTH_MAX = 32

_NAME = re.compile(r"(uint|int|bytes|address|bool|string|function|tuple)(\d*)((?:\[\d*\])*)")
_SUFFIX = re.compile(r"\[(\d*)\]")


class AbiInvalid(Exception):
    """An ABI that cannot be used; the message says which part of it and why."""


class Form(Enum):
    """What kind of type it is."""

    UINT = "uint"
    INT = "int"
    ADDRESS = "address"
    BOOL = "bool"
    #: Bytes of a fixed length, at most a word.
    FIXED = "fixed"
    BYTES = "bytes"
    STRING = "string"
    ARRAY = "array"
    TUPLE = "tuple"


@dataclass(frozen=True, slots=True, kw_only=True)
class Type:
    """One type."""

    form: Form
    #: As a signature has it: `(uint256,address)[]`.
    canonical: str
    #: Of a number its bits, of fixed bytes their count, of an array its length (0: any).
    size: int = 0
    #: What an array holds.
    item: Type | None = None
    #: What a tuple holds, by the names of the ABI, which may be empty.
    components: tuple[tuple[str, Type], ...] = ()
    #: Whether an offset stands in its place.
    is_dynamic: bool = False
    #: Bytes that it takes in place.
    head: int = WORD

    @property
    def is_word(self) -> bool:
        """Whether it is one word: neither dynamic nor put together."""
        return not self.is_dynamic and self.form not in (Form.ARRAY, Form.TUPLE)


def read(entry: Mapping[str, Any], depth: int = 0) -> Type:
    """The type that an input of a JSON ABI names; raises AbiInvalid."""
    text = entry.get("type")
    if not isinstance(text, str):
        raise AbiInvalid("an input has no type")
    if depth > DEPTH_MAX:
        raise AbiInvalid(f"tuples lie in each other more than {DEPTH_MAX} deep")
    match = _NAME.fullmatch(text)
    if match is None:
        raise AbiInvalid(f"the type `{text}` is not one that contracts emit")
    name, digits, suffixes = match.groups()
    found = _tuple(entry, depth) if name == "tuple" and not digits else _word(text, name, digits)
    lengths = [int(length or 0) for length in _SUFFIX.findall(suffixes)]
    if len(lengths) + depth > DEPTH_MAX:
        raise AbiInvalid(f"the type `{text}` is more than {DEPTH_MAX} deep")
    for length, written in zip(lengths, _SUFFIX.findall(suffixes), strict=True):
        if written and not length:
            raise AbiInvalid(f"the type `{text}` has an array of no items")
        found = _array(found, length)
    return found


def _word(text: str, name: str, digits: str) -> Type:
    """A type that is neither array nor tuple."""
    size = int(digits or 0)
    match name:
        case "uint" | "int":
            size = size if digits else 256
            if size % 8 or not 8 <= size <= 256:
                raise AbiInvalid(f"the type `{text}` has no such number of bits")
            form = Form.UINT if name == "uint" else Form.INT
            return Type(form=form, canonical=f"{name}{size}", size=size)
        case "bytes" if digits:
            if not 1 <= size <= WORD:
                raise AbiInvalid(f"the type `{text}` has no such number of bytes")
            return Type(form=Form.FIXED, canonical=f"bytes{size}", size=size)
        case _ if digits:
            raise AbiInvalid(f"the type `{text}` is not one that contracts emit")
        case "function":
            # An address and a selector.
            return Type(form=Form.FIXED, canonical="function", size=24)
        case "address":
            return Type(form=Form.ADDRESS, canonical="address", size=160)
        case "bool":
            return Type(form=Form.BOOL, canonical="bool", size=1)
    return Type(form=Form(name), canonical=name, is_dynamic=True)


def _tuple(entry: Mapping[str, Any], depth: int) -> Type:
    listed = entry.get("components")
    if not isinstance(listed, list) or not listed:
        raise AbiInvalid("a tuple has no components")
    components = []
    for each in listed:
        if not isinstance(each, Mapping):
            raise AbiInvalid("a component of a tuple is no mapping")
        components.append((str(each.get("name") or ""), read(each, depth + 1)))
    is_dynamic = any(type_.is_dynamic for _, type_ in components)
    return Type(
        form=Form.TUPLE,
        canonical=f"({','.join(type_.canonical for _, type_ in components)})",
        components=tuple(components),
        is_dynamic=is_dynamic,
        head=WORD if is_dynamic else sum(type_.head for _, type_ in components),
    )


def _array(item: Type, length: int) -> Type:
    is_dynamic = item.is_dynamic or not length
    return Type(
        form=Form.ARRAY,
        canonical=f"{item.canonical}[{length or ''}]",
        size=length,
        item=item,
        is_dynamic=is_dynamic,
        head=WORD if is_dynamic else length * item.head,
    )
