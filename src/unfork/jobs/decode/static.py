"""Owns the decoding of words as Spark's own SQL: values that stand in a topic or in place in data.

What a word may be is checked as strictly as a contract's own decoder checks it: an address has
twelve zero bytes before it, a bool is 0 or 1, a number keeps to its bits. Words compare like the
numbers they are, so most checks look at bytes where they lie and copy nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from unfork.datasets.dataset import Kind
from unfork.jobs.decode import columns
from unfork.jobs.decode.types import WORD, Form, Type
from unfork.jobs.transforms import word

_TOP = 2 ** (8 * WORD)


@dataclass(frozen=True, slots=True)
class Source:
    """A word within a binary column."""

    column: str
    #: Where in the column it begins; None where it is all of it.
    at: int | None = None

    @property
    def whole(self) -> str:
        """The word."""
        return self.column if self.at is None else word.cut(self.column, self.at, WORD)

    def cut(self, at: int, length: int) -> str:
        """Some bytes of it."""
        return word.cut(self.column, (self.at or 0) + at, length)


def wrong(type_: Type, source: Source) -> str | None:
    """The condition under which a word is no value of the type; None where every word is one."""
    bits = type_.size
    match type_.form:
        case Form.UINT | Form.ADDRESS | Form.BOOL if bits < 8 * WORD:
            return f"{source.whole} > {_literal(2**bits - 1)}"
        case Form.INT if bits < 8 * WORD:
            low, high = _TOP - 2 ** (bits - 1), 2 ** (bits - 1) - 1
            return f"({source.whole} > {_literal(high)} AND {source.whole} < {_literal(low)})"
        case Form.FIXED if type_.size < WORD:
            padding = WORD - type_.size
            return f"{source.cut(type_.size, padding)} <> X'{bytes(padding).hex()}'"
    return None


def value(type_: Type, source: Source) -> str:
    """The value of a word, as its column holds it."""
    match type_.form:
        case Form.ADDRESS:
            return source.cut(WORD - 20, 20)
        case Form.FIXED if type_.size < WORD:
            return source.cut(0, type_.size)
        case Form.BOOL:
            return f"({source.whole} = {_literal(1)})"
    match columns.kind(type_):
        case Kind.INT if type_.form is Form.UINT:
            return word.small(source.cut(WORD - 7, 7))
        case Kind.INT:
            return word.signed_small(source.cut(WORD - 8, 8))
        case Kind.SIGNED:
            return word.signed(source.whole)
    return source.whole


def _literal(number: int) -> str:
    return f"X'{number.to_bytes(WORD, 'big').hex()}'"
