"""Owns 256-bit words inside Spark: cut out of binary data, and summed exactly.

Spark has no number of 256 bits. A word stays the 32 bytes it is, which sort like the number; a sum
is made of its eight limbs of 32 bits, each summed as a 64-bit number, and put together afterwards.
So a sum of up to 2^31 words is exact, and one of more is an overflow error (ANSI), never a wrong
number. A sum is signed: 36 bytes in two's complement, big-endian.

Binary is sliced here and nowhere else: it is free on Spark and unknown to some engines like it.
It is written as SQL: made of one object a term, sums would cost more than a small run takes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

#: Limbs of a word, and the bytes of each.
LIMBS, LIMB_BYTES = 8, 4
#: Bytes of a word.
BYTES = LIMBS * LIMB_BYTES


def at(data: Column, index: int) -> Column:
    """The word at a place of ABI data, the first being 0."""
    return F.substring(data, index * BYTES + 1, BYTES)


def address(word: str, name: str) -> Column:
    """The address in a column of words, its last 20 bytes, under a name of its own."""
    return F.expr(f"substring({word}, {BYTES - 20 + 1}, 20) AS {name}")


def cut(source: str, at: int, length: int) -> str:
    """So many bytes of a binary column or expression, from the one at a place; the first is 0."""
    return f"substring({source}, {at + 1}, {length})"


def small(source: str) -> str:
    """At most seven bytes as the whole number that they are."""
    return f"CAST(conv(hex({source}), 16, 10) AS bigint)"


def signed_small(source: str) -> str:
    """Eight bytes as the number in two's complement that they are."""
    high, low = small(cut(source, 0, 4)), small(cut(source, 4, 4))
    # Split so that no part of it leaves 64 bits, whatever the bytes are.
    sign = f"CASE WHEN {high} >= 2147483648L THEN 4294967296L ELSE 0L END"
    return f"(({high} - {sign}) * 4294967296L + {low})"


def signed(word: str) -> str:
    """A word in two's complement, as long as sums are."""
    filling = f"CASE WHEN {word} >= X'80' THEN X'ffffffff' ELSE X'00000000' END"
    return f"concat({filling}, {word})"


def limb_sums(name: str, value: str, times: str | None = None) -> list[Column]:
    """The sums of a column's limbs, for `agg`; each value counts 1 or -1 times, as `times` says."""
    return [F.expr(text) for text in limb_sum_texts(name, value, times)]


def limb_sum_texts(
    name: str, value: str, times: str | None = None, *, limb_bytes: int = LIMB_BYTES
) -> list[str]:
    """The same as SQL, for whom a column at a time would take too long.

    With limbs of 2 bytes `times` may be any number, as long as what the numbers of a group add up
    to stays below 2^47: more is an overflow error.
    """
    factor = "" if times is None else f" * {times}"
    sums = []
    for index, limb in enumerate(limb_names(name, limb_bytes)):
        digits = f"hex(substring({value}, {index * limb_bytes + 1}, {limb_bytes}))"
        sums.append(f"sum(CAST(conv({digits}, 16, 10) AS bigint){factor}) AS {limb}")
    return sums


def limb_names(name: str, limb_bytes: int = LIMB_BYTES) -> Sequence[str]:
    """The columns that `limb_sums` makes, from the highest limb to the lowest."""
    return [f"{name}_limb{index}" for index in range(BYTES // limb_bytes)]


def total(name: str, *, limb_bytes: int = LIMB_BYTES) -> Column:
    """The number that limb sums make together, as 36 bytes in two's complement."""
    parts: list[str] = []
    carry = "0L"
    for limb in reversed(limb_names(name, limb_bytes)):
        whole = f"({limb} + {carry})"
        parts.insert(0, _low_bytes(whole, limb_bytes))
        # An arithmetic shift rounds down, so what is left below is never negative.
        carry = f"shiftright({whole}, {8 * limb_bytes})"
    # What does not fit into the bytes left is an overflow error, too.
    highest = _low_bytes(f"CAST({carry} AS int)", LIMB_BYTES)
    return F.expr(f"concat({highest}, {', '.join(parts)})")


def read(data: str, offset: str) -> str:
    """The word that begins at a byte of binary data, the first being 0."""
    return f"substring({data}, {offset} + 1, {BYTES})"


def account(word: str) -> str:
    """The address in a word, as SQL: its last 20 bytes, whatever stands before them."""
    return f"substring({word}, {BYTES - 20 + 1}, 20)"


def selector(data: str) -> str:
    """What a call's input says which function is meant; NULL where it is too short to say it."""
    return f"CASE WHEN length({data}) >= 4 THEN substring({data}, 1, 4) END"


def place(word: str) -> str:
    """A word that is a place or a length within data, as an int; NULL from 2^30 on."""
    zeros = bytes(BYTES - LIMB_BYTES).hex()
    low = f"substring({word}, {BYTES - LIMB_BYTES + 1}, {LIMB_BYTES})"
    is_small = f"substring({word}, 1, {BYTES - LIMB_BYTES}) = X'{zeros}' AND {low} < X'40'"
    return f"CASE WHEN {is_small} THEN CAST(conv(hex({low}), 16, 10) AS int) END"


def _low_bytes(number: str, count: int) -> str:
    """The lowest bytes of a number."""
    return f"unhex(lpad(hex({number} & {256**count - 1}L), {2 * count}, '0'))"
