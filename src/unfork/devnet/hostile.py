"""Owns the awkward values of a devnet: what a chain may hold and what software forgets.

Each is drawn now and then where the knob asks for it, and never otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from unfork.devnet.dice import Dice

#: The largest value of 256 bits.
U256_MAX = 2**256 - 1
#: Sizes around the limit above which stores move payloads elsewhere (8 KiB), and far above.
LARGE = (8_191, 8_192, 8_193, 12_000, 40_000)
#: First log index of a block that leaves the 31 and 32 bits many a reader keeps it in.
HUGE_LOG_INDEXES = (2**31 - 1, 2**31, 2**32 + 7, 2**40)


def amount(dice: Dice, *, hostile: bool) -> int:
    """An amount of tokens."""
    if hostile and dice.one_in(8):
        return dice.pick((U256_MAX, U256_MAX, U256_MAX - 1, 2**255, 2**128, 0))
    return dice.number(1 + dice.below(10))


def large(dice: Dice) -> bytes:
    """A large payload; one of them comes again and again, byte for byte."""
    size = dice.pick(LARGE)
    if dice.one_in(4):
        return b"\xab" * size
    return dice.data(size)


def string(dice: Dice, *, hostile: bool) -> bytes:
    """The bytes of a string argument."""
    if hostile and dice.one_in(2):
        return dice.pick((b"\0", b"a\0b\0", b"\0" * 33, b"\xff\xfe\xfd", "naïve 🦄".encode(), b""))
    return b"note " + dice.data(4).hex().encode()


def log_indexes(dice: Dice, *, hostile: bool) -> Iterator[int]:
    """The indexes of a block's logs, in order: counted from zero, unless hostile."""
    if not hostile or not dice.one_in(4):
        return itertools.count()
    first = dice.pick(HUGE_LOG_INDEXES) if dice.one_in(3) else dice.below(4)
    return _with_gaps(first, dice.data(32))


def _with_gaps(index: int, seed: bytes) -> Iterator[int]:
    # The gaps have dice of their own: how many logs there are must not change what follows.
    dice = Dice(seed)
    while True:
        yield index
        index += 1 + dice.below(3) * dice.below(100)
