"""Owns what is known of a file in the lake: how large it is, what is in it, and of which blocks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Contents are two numbers of 64 bits, each added up by itself.
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """One file of a version."""

    #: Its name within the folder of the version.
    name: str
    #: Its bytes.
    size: int
    rows: int
    #: The content of its rows.
    content: int
    sha256: bytes
    #: The lowest and the highest block it holds rows of.
    first: int
    last: int

    def document(self) -> dict[str, Any]:
        """The file as JSON; a number beyond 53 bits is text."""
        return {
            "name": self.name,
            "bytes": self.size,
            "rows": self.rows,
            "content": str(self.content),
            "sha256": self.sha256.hex(),
            "first": self.first,
            "last": self.last,
        }


def from_document(found: Mapping[str, Any]) -> File:
    """Reads a file's record."""
    return File(
        name=found["name"],
        size=found["bytes"],
        rows=found["rows"],
        content=int(found["content"]),
        sha256=bytes.fromhex(found["sha256"]),
        first=found["first"],
        last=found["last"],
    )


def joined(a: int, b: int) -> int:
    """The content that two sums of hashes make."""
    return ((a % _MODULUS) << 64) | (b % _MODULUS)


def total(contents: Iterable[int]) -> int:
    """The content of several sets of rows together."""
    a = b = 0
    for content in contents:
        a += content >> 64
        b += content % _MODULUS
    return joined(a, b)
