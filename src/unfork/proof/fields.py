"""Owns reading one field of a row: the forms a value may come in, and what is wrong with it.

A reader collects the names of what is missing and the description of what is impossible, so that a
caller reads all fields first and asks once whether the value can be put together.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from unfork.proof.block import Gap

#: One row by column name.
Row = Mapping[str, Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Reader:
    """Reads the fields of one row and remembers what was wrong."""

    __slots__ = ("broken", "missing", "row")

    def __init__(self, row: Row) -> None:
        self.row = row
        self.missing: list[str] = []
        self.broken: list[str] = []

    def gap(self) -> Gap | None:
        """What is wrong with the fields read so far, None where nothing is."""
        if self.missing or self.broken:
            return Gap(missing=tuple(self.missing), broken=tuple(self.broken))
        return None

    def text(self, name: str) -> bytes:
        """Bytes that must be there."""
        value = self.row.get(name)
        if isinstance(value, bytes):
            return value
        if value is None:
            self.missing.append(name)
        else:
            self.broken.append(f"{name} is not bytes")
        return b""

    def number(self, name: str) -> int:
        """A number that must be there and not be negative."""
        value = self.row.get(name)
        if value is None:
            self.missing.append(name)
            return 0
        found = number(value)
        if found is None:
            self.broken.append(f"{name} is not a number from zero on: {value}")
            return 0
        return found

    def optional_number(self, name: str) -> int | None:
        """A number, or None where the row has none."""
        return None if self.row.get(name) is None else self.number(name)

    def seconds(self, name: str) -> int:
        """A moment in whole seconds since 1970 that must be there."""
        value = self.row.get(name)
        if value is None:
            self.missing.append(name)
            return 0
        found = seconds(value)
        if found is None:
            self.broken.append(f"{name} is not a whole second from 1970 on: {value}")
            return 0
        return found


def number(value: Any) -> int | None:
    """A number in any of its forms (int, Decimal, 32 bytes, hex text), None where it is none."""
    if type(value) is int:
        return value if value >= 0 else None
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    try:
        if isinstance(value, Decimal):
            found = int(value)
            return found if found >= 0 and found == value else None
        if isinstance(value, str):
            found = int(value, 0)
            return found if found >= 0 else None
    except (ValueError, OverflowError):
        # Text that is no number, NaN and infinity.
        return None
    return None


def seconds(value: Any) -> int | None:
    """A moment as whole seconds since 1970, None where it has a fraction or lies before."""
    if isinstance(value, datetime):
        since = value - _EPOCH
        if since.microseconds or since.days < 0:
            return None
        return since.days * 86400 + since.seconds
    return number(value)


def text(value: Any) -> bytes | None:
    """Bytes given as bytes or as hex text, None where it is neither."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str) and value.startswith("0x"):
        try:
            return bytes.fromhex(value[2:])
        except ValueError:
            return None
    return None
