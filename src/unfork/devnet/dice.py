"""Owns chance: a stream of draws that depends on nothing but the bytes it was seeded with.

The standard library's generator promises its sequence only in part across versions, and hashing of
Python objects depends on the process. A hash function in counter mode depends on neither.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import TypeVar

Choice = TypeVar("Choice")

#: Draws made at once, each of four bytes.
_DRAWS = 128
_unpack = struct.Struct(f">{_DRAWS}I").unpack


class Dice:
    """Draws in a fixed order: the same seed and the same questions give the same answers."""

    __slots__ = ("_counter", "_draws", "_pool", "_position", "_seed")

    def __init__(self, *seed: bytes) -> None:
        # Lengths are hashed too, so that no two lists of parts run into each other.
        text = b"".join(len(part).to_bytes(4, "big") + part for part in seed)
        self._seed = hashlib.sha256(text).digest()
        self._counter = 0
        self._draws: Iterator[int] = iter(())
        self._pool = b""
        self._position = 0

    def below(self, bound: int) -> int:
        """A number from 0 up to and without the bound, at most 2^32."""
        draw = next(self._draws, None)
        if draw is None:
            self._draws = iter(_unpack(self._stream(4 * _DRAWS)))
            draw = next(self._draws)
        return draw * bound >> 32

    def one_in(self, count: int) -> bool:
        """True once in so many draws."""
        return self.below(count) == 0

    def chance(self, probability: float) -> bool:
        """True with this probability, in steps of a millionth."""
        return self.below(1_000_000) < round(probability * 1_000_000)

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """One of the choices."""
        return choices[self.below(len(choices))]

    def data(self, size: int) -> bytes:
        """So many bytes."""
        if size > 256:
            return self._stream(size)
        end = self._position + size
        if end > len(self._pool):
            self._pool = self._stream(1024)
            self._position, end = 0, size
        drawn = self._pool[self._position : end]
        self._position = end
        return drawn

    def number(self, size: int) -> int:
        """A number of so many bytes."""
        return int.from_bytes(self.data(size), "big")

    def _stream(self, size: int) -> bytes:
        self._counter += 1
        return hashlib.shake_256(self._seed + self._counter.to_bytes(8, "big")).digest(size)
