"""Owns the encoding of large numbers as Postgres' numeric, a whole column at once.

A numeric is digits to the base of 10,000. They come from the 16-bit limbs of each number by one
matrix product with the digits of the powers of 2^16. All sums stay below 2^53, so floats are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: Bytes of the largest number that is encoded by the column.
WIDTH_MAX = 64

_LIMBS = WIDTH_MAX // 2
_GROUP = 10**8
#: Groups of eight digits that hold the largest number.
_GROUPS = 20
_NEGATIVE = 0x4000

#: The base-10^8 digits of 2^(16*i), for the limbs from the highest to the lowest.
_POWERS = np.array(
    [
        [2 ** (16 * limb) // _GROUP**place % _GROUP for place in range(_GROUPS - 1, -1, -1)]
        for limb in range(_LIMBS - 1, -1, -1)
    ],
    dtype=np.float64,
)


def fields(limbs: npt.NDArray[np.float64]) -> npt.NDArray[np.uint8]:
    """The numbers, given by their limbs from the highest to the lowest, as fields of COPY."""
    return _fields(limbs).view(np.uint8)


def signed_fields(values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Numbers in two's complement, big-endian and all of one width, as fields of COPY."""
    rows, width = values.shape
    is_negative = values[:, 0] >= 0x80
    padded = np.zeros((rows, width + width % 2), np.uint8)
    padded[:, -width:] = values
    padded[is_negative, : width % 2] = 0xFF
    # The size of a negative number is its complement and one more. The one is added to the lowest
    # limb: the product does not mind a limb of 2^16.
    padded[is_negative] ^= 0xFF
    limbs = padded.view(">u2").astype(np.float64)
    limbs[is_negative, -1] += 1
    encoded = _fields(limbs)
    encoded[is_negative, 2] = _NEGATIVE
    return encoded.view(np.uint8)


def _fields(limbs: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    rows, count = limbs.shape
    # Most columns hold small numbers: only the limbs and digits that occur are computed.
    start = min(int(np.argmax(np.append(limbs.any(axis=0), True))), count - 1)
    width = -(-16 * (count - start) // 26)
    powers = _POWERS[_LIMBS - count + start :, -width:]
    groups = (limbs[:, start:] @ powers).astype(np.int64)
    for index in range(width - 1, 0, -1):
        carry = groups[:, index] // _GROUP
        groups[:, index] -= carry * _GROUP
        groups[:, index - 1] += carry
    digits = 2 * width
    # A field: the count of digits, the weight of the first, sign, scale, digits.
    encoded = np.zeros((rows, 4 + digits), dtype=">u2")
    encoded[:, 0] = digits
    encoded[:, 1] = digits - 1
    high = groups // 10_000
    encoded[:, 4::2] = high
    encoded[:, 5::2] = groups - high * 10_000
    return encoded
