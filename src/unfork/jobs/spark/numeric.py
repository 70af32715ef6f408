"""Owns the way of large numbers out of Postgres: its own digits to bytes, a column at once.

The driver gives a numeric as text, one by one. `numeric_send` gives it as Postgres holds it, digits
to the base of 10,000, and those become binary by one matrix product: the digits of each number
times the 16-bit limbs of the powers of 10,000. All sums stay below 2^53, so floats are exact.

256-bit numbers are 32 bytes. Signed numbers are two's complement in 36 bytes, as sums of words are
inside Spark; the few that need more get what they need. So a number has one form, and equal numbers
are equal bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unfork import errors
from unfork.database import copy

#: Limbs of 16 bits of a 256-bit number, and of a signed one.
LIMBS, SIGNED_LIMBS = 16, 18
#: Digits to the base of 10,000 of the largest number that is converted by the column.
DIGITS = 22

#: Rows converted at once: keeps every buffer in the caches.
ROWS_AT_ONCE = 4096

#: Postgres' sign of what is below zero.
_NEGATIVE = 0x4000

#: The limbs of 10,000^place, the lowest first, as many as the largest power has.
_POWERS = np.array(
    [
        [10_000**place >> (16 * limb) & 0xFFFF for place in range(DIGITS)]
        for limb in range(-(-DIGITS * 14 // 16))
    ],
    dtype=np.float64,
)


def unsigned(column: pa.Array) -> pa.Array:
    """Numbers as `numeric_send` gives them, as 32 bytes big-endian each; NULL stays NULL.

    Raises RowRefused for what is no whole number from 0 to 2^256-1.
    """
    rows = len(column)
    values = np.zeros((rows, LIMBS), dtype=">u2")
    for first in range(0, rows, ROWS_AT_ONCE):
        numbers = _Numbers(column.slice(first, ROWS_AT_ONCE))
        if numbers.signs.any():
            raise errors.RowRefused("a stored number is negative, or none at all")
        limbs = numbers.limbs(LIMBS)
        if limbs is None:
            raise errors.RowRefused("a stored number does not fit into 256 bits")
        values[first : first + ROWS_AT_ONCE] = limbs
    return _fixed(column, values)


def signed(column: pa.Array) -> pa.Array:
    """Numbers as `numeric_send` gives them, in two's complement; NULL stays NULL.

    Raises RowRefused for what is no whole number.
    """
    rows = len(column)
    values = np.zeros((rows, SIGNED_LIMBS), dtype=">u2")
    for first in range(0, rows, ROWS_AT_ONCE):
        numbers = _Numbers(column.slice(first, ROWS_AT_ONCE))
        if not np.isin(numbers.signs, (0, _NEGATIVE)).all():
            raise errors.RowRefused("a stored number is none at all")
        limbs = numbers.limbs(SIGNED_LIMBS)
        if limbs is None or (limbs[:, 0] >> 15).any():
            return pa.array([_one(sent) for sent in column.to_pylist()], pa.binary())
        values[first : first + ROWS_AT_ONCE] = _negated(limbs, numbers.signs == _NEGATIVE)
    return _fixed(column, values)


class _Numbers:
    """Some numbers as Postgres sends them: digits to the base of 10,000, weight, sign."""

    def __init__(self, column: pa.Array) -> None:
        data, offsets = copy.bytes_of(column)
        self._words = np.frombuffer(data, ">u2")
        self._starts = (offsets[:-1] - offsets[0]) >> 1
        # A NULL has no header, and a zero no digits: neither has anything to place.
        self._counts = ((offsets[1:] - offsets[:-1]) >> 1) - 4
        #: The sign of each number that is there.
        self.signs: npt.NDArray[Any] = np.zeros(len(column), dtype=np.uint16)
        is_there = self._counts >= 0
        self.signs[is_there] = self._words[self._starts[is_there] + 2]

    def limbs(self, count: int) -> npt.NDArray[Any] | None:
        """The size of every number as that many limbs, the highest first; None if one needs more.

        Raises RowRefused for what is not whole.
        """
        digits = self._digits()
        if digits is None:
            return None
        width = len(digits)
        # Most columns hold small numbers: only the limbs that can occur are computed.
        used = min(-(-width * 14 // 16) + 1, len(_POWERS))
        sums = (_POWERS[:used, :width] @ digits).astype(np.int64)
        for index in range(used - 1):
            sums[index + 1] += sums[index] >> 16
            sums[index] &= 0xFFFF
        if sums[count:].any() or (sums[-1] >> 16).any():
            return None
        values = np.zeros((len(self._starts), count), dtype=np.uint16)
        for index, limb in enumerate(sums[:count]):
            values[:, count - 1 - index] = limb
        return values

    def _digits(self) -> npt.NDArray[np.float64] | None:
        """The digits by their place, in as many places as the largest needs; None if too many."""
        words, starts, counts = self._words, self._starts, self._counts
        filled = np.flatnonzero(counts > 0)
        if len(filled) == 0:
            return np.zeros((1, len(starts)))
        starts, counts = starts[filled], counts[filled]
        weights = words[starts + 1].astype(np.int16)
        if (counts > weights + 1).any():
            raise errors.RowRefused("a stored number is not a whole one")
        if weights.max() >= DIGITS:
            return None
        digits = np.zeros((int(weights.max()) + 1, len(self._starts)))
        for index in range(int(counts.max())):
            longer = counts > index
            if not longer.all():
                filled, starts, weights = filled[longer], starts[longer], weights[longer]
                counts = counts[longer]
            digits[weights - index, filled] = words[starts + (4 + index)]
        return digits


def _negated(limbs: npt.NDArray[Any], is_negative: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Sizes as two's complement: of what is negative every bit is turned, and one added."""
    if not is_negative.any():
        return limbs
    turned = (~limbs[is_negative]).astype(np.int64)
    carry = np.ones(len(turned), dtype=np.int64)
    for index in range(turned.shape[1] - 1, -1, -1):
        turned[:, index] += carry
        carry = turned[:, index] >> 16
    limbs[is_negative] = turned & 0xFFFF
    return limbs


def _one(sent: bytes | None) -> bytes | None:
    """One number in two's complement, in 36 bytes or as many as it needs."""
    if sent is None:
        return None
    count, weight, sign, _, *digits = np.frombuffer(sent, ">u2").tolist()
    size = 0
    for digit in digits:
        size = size * 10_000 + digit
    size *= 10_000 ** (weight + 1 - count) if count else 0
    number = -size if sign == _NEGATIVE else size
    width = max(2 * SIGNED_LIMBS, (number if number >= 0 else ~number).bit_length() // 8 + 1)
    return number.to_bytes(width, "big", signed=True)


def _fixed(column: pa.Array, values: npt.NDArray[Any]) -> pa.Array:
    """Numbers of one width as an Arrow column, with the NULLs of another."""
    width = 2 * values.shape[1]
    offsets = np.arange(len(column) + 1, dtype=np.int32) * np.int32(width)
    buffers = [_validity(column), pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.binary(), len(column), buffers)


def _validity(column: pa.Array) -> Any:
    """Which values there are, as Arrow wants it; None where all are."""
    if column.null_count == 0:
        return None
    return column.is_valid().buffers()[1]
