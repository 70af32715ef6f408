"""Owns the step from columns of hex text to Arrow arrays.

Columns of one kind are converted together: joined once, turned from hex to bytes once, and handed
to Arrow as buffers. No Python object is made per value beyond the text the parser made already, and
what a conversion costs to set up is paid once per kind, not once per column.

Invariants: a value is converted exactly or refused; `BadValue` names column and row. A missing
value is None (an empty text counts as missing: no hex text is empty).
"""

from __future__ import annotations

import re
from binascii import unhexlify
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]
#: Columns by name.
Texts = Mapping[str, Sequence[str | None]]
Arrays = dict[str, pa.Array]

#: The last second of the year 9999, the highest that Postgres, Arrow and Python all write alike.
SECONDS_MAX = 253_402_300_799
_INT_MAX = 2**63 - 1
_ZERO, _X = ord("0"), ord("x")
#: Values below which each is converted by itself, because whole columns cost more to set up.
_FEW = 48
#: Quantities this long are signatures and the like, which are converted apart from small ones.
_LONG = 60
_QUANTITY = re.compile(r"0x[0-9a-fA-F]+")


class BadValue(ValueError):
    """A value that cannot be converted, with the place where it stands."""

    def __init__(
        self, row: int, value: Any, why: str, *, is_malformed: bool = True, column: str = ""
    ) -> None:
        super().__init__(f"{str(value)[:80]!r} {why}")
        self.row = row
        self.value = value
        #: False where the value is well-formed but too large for its column.
        self.is_malformed = is_malformed
        self.column = column


def integers(columns: Texts) -> Arrays:
    """Quantities as 64-bit numbers."""
    return _converted(columns, pa.int64(), int64, from_integers)


def u256(columns: Texts) -> Arrays:
    """Quantities as 256-bit numbers: 32 bytes, big-endian."""
    made: Arrays = {}
    for is_long in (False, True):
        some = {name: values for name, values in columns.items() if _is_long(values) is is_long}
        made |= _converted(some, pa.binary(32), lambda v: _quantities(v, 32), _from_u256)
    return made


def fixed(columns: Texts, size: int) -> Arrays:
    """Byte strings that all have `size` bytes where they are not missing."""
    return _converted(columns, pa.binary(), lambda v: matrix(v, size), from_matrix)


def binary(columns: Texts) -> Arrays:
    """Byte strings of any length; all columns share one buffer of bytes."""
    values, spans = _gathered(columns, may_repeat=False)
    if not values:
        return {name: pa.nulls(span.count, pa.binary()) for name, span in spans.items()}
    try:
        lengths, data = _bytes(values)
    except BadValue as bad:
        raise _placed(bad, spans) from None
    shared = pa.py_buffer(data)
    ends = _offsets(lengths)
    made: Arrays = {}
    for name, span in spans.items():
        if span.first == span.last:
            made[name] = pa.nulls(span.count, pa.binary())
            continue
        offsets = ends[span.first : span.last + 1]
        if span.valid is not None:
            sizes = np.zeros(span.count, np.int32)
            sizes[span.valid] = lengths[span.first : span.last]
            offsets = _offsets(sizes) + offsets[0]
        made[name] = _binary(offsets, shared, span.valid)
    return made


def int64(values: Sequence[str]) -> NDArray[np.int64]:
    """Quantities as 64-bit numbers; none may be missing."""
    unsigned = _quantities(values, 8).view(">u8").reshape(-1)
    if len(unsigned) and unsigned.max() > _INT_MAX:
        row = int(np.flatnonzero(unsigned > _INT_MAX)[0])
        raise BadValue(row, values[row], "is above 2^63-1", is_malformed=False)
    return unsigned.astype(np.int64)


def matrix(values: Sequence[str], size: int) -> Bytes:
    """Byte strings of one size as rows of a matrix; none may be missing.

    Each has its length already (the parser saw to it); here only all of them together are measured.
    """
    return _rows("".join(values), values, size)


def from_integers(numbers: NDArray[np.int64], valid: Mask | None = None) -> pa.Array:
    """Numbers as an Arrow column, without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(numbers), [_bits(valid), pa.py_buffer(numbers)])


def from_matrix(rows: Bytes, valid: Mask | None = None) -> pa.Array:
    """Rows of a matrix as variable binary, the type of every byte column."""
    count, size = rows.shape
    if valid is None:
        offsets = np.arange(count + 1, dtype=np.int32) * np.int32(size)
        return _binary(offsets, pa.py_buffer(rows))
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(valid, out=offsets[1:])
    return _binary(offsets * np.int32(size), pa.py_buffer(rows[valid]), valid)


def times(seconds: NDArray[np.int64]) -> pa.Array:
    """Seconds since 1970 as moments in UTC."""
    if len(seconds) and seconds.max() > SECONDS_MAX:
        row = int(np.flatnonzero(seconds > SECONDS_MAX)[0])
        value = hex(int(seconds[row]))
        raise BadValue(row, value, "is a time after the year 9999", is_malformed=False)
    micros = np.ascontiguousarray(seconds * 1_000_000)
    kind = pa.timestamp("us", tz="UTC")
    return pa.Array.from_buffers(kind, len(micros), [None, pa.py_buffer(micros)])


def nth(lists: Sequence[Sequence[str]], size: int, positions: int) -> list[pa.Array]:
    """For each position one column: the entry there of every list, NULL where a list is shorter."""
    counts, flat = _flat(lists, size)
    if len(counts) and counts.max() > positions:
        row = int(counts.argmax())
        raise BadValue(row, lists[row], f"has more than {positions} entries")
    starts = np.cumsum(counts) - counts
    columns = []
    for position in range(positions):
        valid = counts > position
        if valid.all():
            columns.append(from_matrix(flat.take(starts + position, axis=0)))
        elif not valid.any():
            columns.append(pa.nulls(len(lists), pa.binary()))
        else:
            rows = np.zeros((len(lists), size), np.uint8)
            rows[valid] = flat.take(starts[valid] + position, axis=0)
            columns.append(from_matrix(rows, valid))
    return columns


def binary_lists(lists: Sequence[Sequence[str] | None], size: int) -> pa.Array:
    """Lists of byte strings of one size."""
    if not any(entries is not None for entries in lists):
        return pa.nulls(len(lists), pa.list_(pa.binary()))
    counts, flat = _flat([entries or () for entries in lists], size)
    absent = np.fromiter((entries is None for entries in lists), np.bool_, len(lists))
    return pa.ListArray.from_arrays(
        pa.array(_offsets(counts)), from_matrix(flat), mask=pa.array(absent)
    )


def texts(values: Sequence[str | None], nul: str = "\0") -> pa.Array:
    """Text; NUL is refused because Postgres cannot hold it (nor in JSON, where it is escaped)."""
    if nul in "\n".join(filter(None, values)):
        row = next(row for row, value in enumerate(values) if value and nul in value)
        raise BadValue(row, values[row], "contains NUL", is_malformed=False)
    return pa.array(values, pa.string())


# Converting several columns at once.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Where the values of one column stand among those of all."""

    #: Rows of the column.
    count: int
    first: int
    last: int
    #: How often the one value that stands there is meant.
    repeats: int
    #: Which rows have a value, None where all have.
    valid: Mask | None


def _gathered(columns: Texts, *, may_repeat: bool) -> tuple[list[str], dict[str, _Span]]:
    """The values that are there, of all columns, one column after the other.

    Types, chain ids and outcomes are mostly the same in every row: of such a column one value is
    taken for all. A column that equals another (the price offered is mostly the price paid) shares
    the other's values.
    """
    values: list[str] = []
    spans: dict[str, _Span] = {}
    for name, column in columns.items():
        twin = next((other for other in spans if _is_equal(columns[other], column)), None)
        if twin is not None:
            spans[name] = spans[twin]
            continue
        valid = None
        dense: Sequence[Any] = column
        if not all(column):
            valid = np.fromiter(map(bool, column), np.bool_, len(column))
            dense = list(filter(None, column))
        is_one = may_repeat and _is_constant(dense)
        first = len(values)
        values.extend(dense[:1] if is_one else dense)
        spans[name] = _Span(
            count=len(column),
            first=first,
            last=len(values),
            repeats=len(dense) if is_one else 1,
            valid=valid,
        )
    return values, spans


def _converted(
    columns: Texts,
    kind: pa.DataType,
    convert: Callable[[Sequence[str]], NDArray[Any]],
    wrap: Callable[[NDArray[Any], Mask | None], pa.Array],
) -> Arrays:
    """Columns whose values all take the same room; zeros stand where a value is missing."""
    values, spans = _gathered(columns, may_repeat=True)
    try:
        rows = convert(values)
    except BadValue as bad:
        raise _placed(bad, spans) from None
    made: Arrays = {}
    for name, span in spans.items():
        if span.first == span.last:
            made[name] = pa.nulls(span.count, kind)
            continue
        own = rows[span.first : span.last]
        if span.repeats > 1:
            own = np.repeat(own, span.repeats, axis=0)
        if span.valid is not None:
            spread = np.zeros((span.count, *own.shape[1:]), own.dtype)
            spread[span.valid] = own
            own = spread
        made[name] = wrap(own, span.valid)
    return made


def _is_long(values: Sequence[str | None]) -> bool:
    return len(next(filter(None, values), "")) > _LONG


def _is_equal(left: Sequence[str | None], right: Sequence[str | None]) -> bool:
    """Whether two columns are the same; looks at the ends before it looks at all."""
    if not left or len(left) != len(right):
        return False
    return left[0] == right[0] and left[-1] == right[-1] and left == right


def _is_constant(values: Sequence[str]) -> bool:
    """Whether all values are the same; looks at a few before it looks at all."""
    count = len(values)
    return (
        count > _FEW
        and values[0] == values[-1] == values[count // 2]
        and values.count(values[0]) == count
    )


def _placed(bad: BadValue, spans: Mapping[str, _Span]) -> BadValue:
    """The same complaint with its column, and its row counted over missing values too."""
    for name, span in spans.items():
        if span.first <= bad.row < span.last:
            bad.column = name
            bad.row -= span.first
            if span.valid is not None:
                bad.row = int(np.flatnonzero(span.valid)[bad.row])
            return bad
    raise AssertionError("a bad value stands in one of the columns")


# Hex to bytes.


def _quantities(values: Sequence[str], size: int) -> Bytes:
    """Quantities as rows of `size` bytes, big-endian, zeros in front."""
    count = len(values)
    if count < _FEW:
        return _few_quantities(values, size)
    try:
        lengths = np.fromiter(map(len, values), np.int64, count)
        longest = int(lengths.max()) - 2
        width = longest + longest % 2
        if lengths.min() < 3:
            raise ValueError
        if width > 2 * size:
            return _few_quantities(values, size)  # Too large, or zeros in front: one by one.
        if longest > _LONG:
            return _long_quantities(values, size)
        text = np.frombuffer("".join(values).encode("ascii"), np.uint8)
        starts = np.cumsum(lengths) - lengths
        if (text[starts] != _ZERO).any() or (text[starts + 1] != _X).any():
            raise ValueError
        is_digit = np.ones(len(text), np.bool_)
        is_digit[starts] = False
        is_digit[starts + 1] = False
        digits = np.full((count, width), _ZERO, np.uint8)
        digits[np.arange(width) >= (width + 2 - lengths)[:, None]] = text[is_digit]
        dense = np.frombuffer(unhexlify(digits.tobytes()), np.uint8).reshape(count, -1)
    except ValueError:
        raise _first_bad_quantity(values, size) from None
    rows = np.zeros((count, size), np.uint8)
    rows[:, size - width // 2 :] = dense
    return rows


def _long_quantities(values: Sequence[str], size: int) -> Bytes:
    """Nearly every one has all its digits, so the few short ones are filled up."""
    full = 2 * size + 2
    return matrix(
        [v if len(v) == full else f"{v[:2]}{v[2:].rjust(full - 2, '0')}" for v in values], size
    )


def _few_quantities(values: Sequence[str], size: int) -> Bytes:
    try:
        if not all(map(_QUANTITY.fullmatch, values)):
            raise ValueError
        joined = b"".join([int(value, 16).to_bytes(size, "big") for value in values])
    except (ValueError, OverflowError):
        raise _first_bad_quantity(values, size) from None
    return np.frombuffer(joined, np.uint8).reshape(-1, size)


def _rows(joined: str, values: Iterable[str], size: int) -> Bytes:
    """Rows of a matrix from joined texts; `values` are looked at only to find a bad one."""
    width = 2 * size + 2
    try:
        text = np.frombuffer(joined.encode("ascii"), np.uint8).reshape(-1, width)
        if (text[:, 0] != _ZERO).any() or (text[:, 1] != _X).any():
            raise ValueError
        return np.frombuffer(unhexlify(text[:, 2:].tobytes()), np.uint8).reshape(-1, size)
    except ValueError:
        raise _first_bad(values, f"is not {size} bytes of hex", width=width) from None


def _bytes(values: Sequence[str]) -> tuple[NDArray[np.int32], Any]:
    """Lengths in bytes, and all bytes in a row."""
    lengths = np.fromiter(map(len, values), np.int32, len(values))
    try:
        if lengths.min() < 2 or (lengths & 1).any():
            raise ValueError
        sizes = (lengths >> 1) - 1
        if sizes.min() == sizes.max() > 0:
            return sizes, matrix(values, int(sizes[0])).data
        text = "".join([value.removeprefix("0x") for value in values])
        # Two characters went from every value, so every value had its prefix.
        if len(text) != 2 * sizes.sum():
            raise ValueError
        return sizes, unhexlify(text)
    except ValueError:
        raise _first_bad(values, "is not whole bytes of hex") from None


def _flat(lists: Sequence[Sequence[str]], size: int) -> tuple[NDArray[np.int64], Bytes]:
    """How many entries each list has, and all entries as rows of a matrix."""
    counts = np.fromiter(map(len, lists), np.int64, len(lists))
    try:
        # Joined list by list: the entries of one list lie close together in memory.
        joined = "".join(map("".join, lists))
        return counts, _rows(joined, chain.from_iterable(lists), size)
    except BadValue as bad:
        bad.row = int(np.searchsorted(np.cumsum(counts), bad.row, side="right"))
        raise


# Bytes to Arrow.


def _from_u256(rows: Bytes, valid: Mask | None) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(32), len(rows), [_bits(valid), pa.py_buffer(rows)])


def _binary(offsets: NDArray[np.int32], data: pa.Buffer, valid: Mask | None = None) -> pa.Array:
    buffers = [_bits(valid), pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _offsets(lengths: NDArray[Any]) -> NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _bits(valid: Mask | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


# Finding the culprit, once it is known that there is one.


def _first_bad(values: Iterable[str], why: str, width: int | None = None) -> BadValue:
    for row, value in enumerate(values):
        is_hex = value.startswith("0x") and len(value) % 2 == 0 and _is_hex(value[2:])
        if not is_hex or (width is not None and len(value) != width):
            return BadValue(row, value, why)
    raise AssertionError("a column was refused though every value of it is fine")


def _first_bad_quantity(values: Sequence[str], size: int) -> BadValue:
    for row, value in enumerate(values):
        if not value.startswith("0x") or len(value) < 3 or not _is_hex(value[2:]):
            return BadValue(row, value, "is not a hex quantity")
        if int(value, 16) >> (8 * size):
            return BadValue(row, value, f"has more than {8 * size} bits", is_malformed=False)
    raise AssertionError("a column was refused though every value of it is fine")


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)
