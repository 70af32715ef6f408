"""Owns the decoding of what SQL cannot: strings, bytes, arrays and tuples in the data of logs.

It works on Arrow columns. Strings and bytes, which are most of it, are cut out of a whole column at
once by numpy. Arrays and tuples are walked row by row, by functions that are made once a type, and
become JSON text as they are read.

Data is a stranger's. Nothing of it is believed before it is checked: an offset leads beyond the
offsets and into the data, a length fits what is there, padding is zero, a word is a value of its
type. Parts may overlap, which makes a few bytes stand for a lot; so what is read of one value is
bounded by a multiple of the data that it lies in.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unfork.database.copy import bytes_of
from unfork.jobs.decode import types
from unfork.jobs.decode.types import WORD, Form, Type

#: Bytes that may be read of one value, as a multiple of its log's data and above it.
READ_FACTOR, READ_MORE = 4, 4096

#: Bytes of one column that are gathered at once; what is more is read row by row.
GATHERED_MAX = 1 << 26

#: The name of the field that says why a row cannot be decoded.
ERROR = "error"

#: Reads a value at a place; the list holds the bytes that may still be read.
_Reader = Callable[[bytes, int, list[int]], str]


class Malformed(Exception):
    """Data that is no value of its type; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A value that is to be read."""

    #: As people know it.
    name: str
    type: Type
    #: Where in the data its head stands.
    at: int
    #: Where the heads end.
    heads: int


def decoder(
    parts: Sequence[tuple[str, dict[str, Any], int, int]],
) -> Callable[[pa.Array], pa.Array]:
    """What a task does with data; it travels to where the task runs.

    Parts are told by name, document of their type, and the places of heads.
    """
    # By its text a task finds the functions that it has made for the parts already.
    document = json.dumps([list(part) for part in parts], sort_keys=True)

    def decoded(data: pa.Array) -> pa.Array:
        return decode(_parts(document), data)

    return decoded


def decode(parts: Sequence[Part], data: pa.Array) -> pa.Array:
    """One struct a row: why it cannot be decoded, or the parts in their order."""
    errors: list[str | None] = [None] * len(data)
    held = _Held(data)
    found = [_column(part, held, errors) for part in parts]
    names = [ERROR, *(f"part{index}" for index in range(len(parts)))]
    return pa.StructArray.from_arrays([pa.array(errors, pa.string()), *found], names)


def text(value: bytes) -> str:
    """A string as a column of text can hold it.

    What is UTF-8 without NUL is itself. Anything else is told byte by byte where it has to be:
    `\\x00`, `\\xff`; a backslash is doubled then, so that it can be read back.
    """
    try:
        plain = value.decode()
    except UnicodeDecodeError:
        plain = None
    if plain is not None and "\0" not in plain:
        return plain
    told = value.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")
    return told.replace("\0", "\\x00")


class _Held:
    """The data of some logs, as bytes side by side."""

    def __init__(self, data: pa.Array) -> None:
        if data.type == pa.large_binary():
            data = data.cast(pa.binary())
        self.rows = len(data)
        self.block, offsets = bytes_of(data)
        # Counted from the first row, as the block is; wide, for sums with what data says.
        self.starts: npt.NDArray[np.int64] = (offsets[:-1] - offsets[0]).astype(np.int64)
        self.lengths: npt.NDArray[np.int64] = np.diff(offsets).astype(np.int64)

    def row(self, index: int) -> bytes:
        """The data of one row."""
        start = int(self.starts[index])
        return self.block[start : start + int(self.lengths[index])].tobytes()

    def words(self, rows: npt.NDArray[np.int64], at: Any) -> npt.NDArray[np.uint8]:
        """The words that begin at a place in each of some rows, which must hold them."""
        places = (self.starts[rows] + at)[:, None] + np.arange(WORD)
        words: npt.NDArray[np.uint8] = self.block[places]
        return words


def _column(part: Part, held: _Held, errors: list[str | None]) -> pa.Array:
    if part.type.form in (Form.STRING, Form.BYTES):
        return _bytes_column(part, held, errors)
    read = _reader(part.type)
    values: list[str | None] = [None] * held.rows
    for index in range(held.rows):
        if errors[index] is None:
            data = held.row(index)
            try:
                values[index] = _one(part, read, data)
            except Malformed as error:
                errors[index] = f"argument {part.name}: {error}"
    return pa.array(values, pa.string())


def _one(part: Part, read: _Reader, data: bytes) -> str:
    """One value, from its head on."""
    left = [READ_FACTOR * len(data) + READ_MORE]
    if not part.type.is_dynamic:
        return read(data, part.at, left)
    return read(data, _target(data, part.at, 0, part.heads), left)


def _bytes_column(part: Part, held: _Held, errors: list[str | None]) -> pa.Array:
    """Strings or bytes, of all rows at once; rows of which that fails are looked at singly."""
    starts, lengths, good = _spans(part, held)
    for index in np.flatnonzero(~good).tolist():
        if errors[index] is None:
            errors[index] = f"argument {part.name}: {_why(part, held.row(index))}"
    lengths = np.where(good, lengths, 0)
    total = int(lengths.sum())
    offsets = np.zeros(held.rows + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if total > GATHERED_MAX:
        every = [held.block[a : a + n].tobytes() for a, n in zip(starts, lengths, strict=True)]
        gathered = pa.array(every, pa.binary())
    else:
        places = np.repeat(starts - offsets[:-1], lengths) + np.arange(total)
        block = np.ascontiguousarray(held.block[places])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(block)]
        gathered = pa.Array.from_buffers(pa.binary(), held.rows, buffers)
    return _texts(gathered) if part.type.form is Form.STRING else gathered


def _spans(
    part: Part, held: _Held
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Where the content of each row begins, how long it is, and whether it is well-formed."""
    starts = np.zeros(held.rows, dtype=np.int64)
    lengths = np.zeros(held.rows, dtype=np.int64)
    good = np.zeros(held.rows, dtype=np.bool_)
    # Each step goes on with the rows that are fine so far.
    rows = np.flatnonzero(held.lengths >= part.heads)
    offset, fits = _small(held.words(rows, part.at))
    fits &= (offset >= part.heads) & (offset + WORD <= held.lengths[rows])
    rows, offset = rows[fits], offset[fits]
    length, fits = _small(held.words(rows, offset))
    ends = offset + WORD + -(-length // WORD) * WORD
    fits &= ends <= held.lengths[rows]
    rows, offset, length, ends = rows[fits], offset[fits], length[fits], ends[fits]
    # Beyond the content the last word is zero. Of no content the word before it is looked at, of
    # which nothing counts as padding.
    tails = held.words(rows, ends - WORD)
    padding = np.arange(WORD) >= np.where(length % WORD == 0, WORD, length % WORD)[:, None]
    fits = ~np.any(tails * padding, axis=1)
    rows, offset, length = rows[fits], offset[fits], length[fits]
    starts[rows] = held.starts[rows] + offset + WORD
    lengths[rows] = length
    good[rows] = True
    return starts, lengths, good


def _small(words: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Words as numbers, and whether they are so small that they may be a place in data."""
    fits: npt.NDArray[np.bool_] = np.equal(words[:, : WORD - 4].max(axis=1, initial=0), 0)
    numbers = np.ascontiguousarray(words[:, WORD - 4 :]).view(">u4").ravel().astype(np.int64)
    return np.where(fits, numbers, 0), fits


def _why(part: Part, data: bytes) -> str:
    """What is wrong with a value that is not well-formed."""
    try:
        _one(part, _reader(part.type), data)
    except Malformed as error:
        return str(error)
    raise AssertionError("two readings of one value differ")


def _texts(column: pa.Array) -> pa.Array:
    """Bytes as text, at once where all of it is."""
    block, _ = bytes_of(column)
    if not (block == 0).any():
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            pass
    return pa.array([text(value) for value in column.to_pylist()], pa.string())


@functools.lru_cache(maxsize=256)
def _parts(document: str) -> tuple[Part, ...]:
    return tuple(
        Part(name=name, type=types.read(type_), at=at, heads=heads)
        for name, type_, at, heads in json.loads(document)
    )


@functools.lru_cache(maxsize=1024)
def _reader(type_: Type) -> _Reader:
    """The function that reads a value of a type, at its place or at what its offset leads to."""
    match type_.form:
        case Form.STRING | Form.BYTES:
            return _bytes_reader(is_text=type_.form is Form.STRING)
        case Form.ARRAY:
            return _array_reader(type_)
        case Form.TUPLE:
            return _tuple_reader(type_)
    return _word_reader(type_)


def _word_reader(type_: Type) -> _Reader:
    show = _shown(type_)

    def read(data: bytes, at: int, left: list[int]) -> str:
        word = data[at : at + WORD]
        if len(word) < WORD:
            raise _short(data, at)
        return show(word)

    return read


def _shown(type_: Type) -> Callable[[bytes], str]:
    """The function that tells a word as JSON; raises Malformed where it is no value."""
    size, name = type_.size, type_.canonical
    wrong = f"a word is no {name}"

    def number(word: bytes) -> str:
        found = int.from_bytes(word, "big")
        if found >> size:
            raise Malformed(wrong)
        return f'"{found}"'

    def signed(word: bytes) -> str:
        found = int.from_bytes(word, "big", signed=True)
        if not -(1 << (size - 1)) <= found < 1 << (size - 1):
            raise Malformed(wrong)
        return f'"{found}"'

    def address(word: bytes) -> str:
        if word[:12] != _ZEROS[:12]:
            raise Malformed(wrong)
        return f'"0x{word[12:].hex()}"'

    def boolean(word: bytes) -> str:
        found = int.from_bytes(word, "big")
        if found > 1:
            raise Malformed(wrong)
        return "true" if found else "false"

    def fixed(word: bytes) -> str:
        if word[size:] != _ZEROS[size:]:
            raise Malformed(wrong)
        return f'"0x{word[:size].hex()}"'

    match type_.form:
        case Form.UINT:
            return number
        case Form.INT:
            return signed
        case Form.ADDRESS:
            return address
        case Form.BOOL:
            return boolean
    return fixed


def _bytes_reader(*, is_text: bool) -> _Reader:
    def read(data: bytes, at: int, left: list[int]) -> str:
        length = _number(data, at)
        begin = at + WORD
        end = begin + length
        padded = begin + -(-length // WORD) * WORD
        if padded > len(data):
            raise _short(data, begin)
        if any(data[end:padded]):
            raise Malformed(f"what fills up the word at byte {padded - WORD} is not zero")
        _take(left, padded - at)
        value = data[begin:end]
        return json.dumps(text(value), ensure_ascii=False) if is_text else f'"0x{value.hex()}"'

    return read


def _array_reader(type_: Type) -> _Reader:
    assert type_.item is not None
    item, size = type_.item, type_.size
    step, read_item = item.head, _reader(item)
    show = _shown(item) if item.is_word else None

    def read(data: bytes, at: int, left: list[int]) -> str:
        count, begin = size, at
        if not size:
            count, begin = _number(data, at), at + WORD
        end = begin + count * step
        if end > len(data):
            raise _short(data, begin)
        _take(left, end - at)
        if show is not None:
            every = [show(data[place : place + WORD]) for place in range(begin, end, WORD)]
        elif item.is_dynamic:
            every = [
                read_item(data, _target(data, place, begin, end), left)
                for place in range(begin, end, WORD)
            ]
        else:
            every = [read_item(data, place, left) for place in range(begin, end, step)]
        return f"[{','.join(every)}]"

    return read


def _tuple_reader(type_: Type) -> _Reader:
    names = [name for name, _ in type_.components]
    has_names = all(names) and len(set(names)) == len(names)
    fields: list[tuple[str, int, bool, _Reader]] = []
    at = 0
    for name, component in type_.components:
        label = f"{json.dumps(name)}:" if has_names else ""
        fields.append((label, at, component.is_dynamic, _reader(component)))
        at += component.head
    heads = at
    opening, closing = "{}" if has_names else "[]"

    def read(data: bytes, at: int, left: list[int]) -> str:
        end = at + heads
        if end > len(data):
            raise _short(data, at)
        _take(left, heads)
        every = []
        for label, place, is_dynamic, read_field in fields:
            begin = _target(data, at + place, at, end) if is_dynamic else at + place
            every.append(label + read_field(data, begin, left))
        return f"{opening}{','.join(every)}{closing}"

    return read


def _target(data: bytes, at: int, frame: int, heads_end: int) -> int:
    """Where the offset at a place leads to; it counts from the frame that it stands in."""
    word = data[at : at + WORD]
    if len(word) < WORD:
        raise _short(data, at)
    found = frame + int.from_bytes(word, "big")
    if found < heads_end:
        raise Malformed(f"the offset at byte {at} leads back into the offsets")
    if found >= len(data):
        raise Malformed(f"the offset at byte {at} leads beyond the data, of {len(data)} bytes")
    return found


def _number(data: bytes, at: int) -> int:
    """The length that stands at a place."""
    word = data[at : at + WORD]
    if len(word) < WORD:
        raise _short(data, at)
    found = int.from_bytes(word, "big")
    if found > len(data):
        raise Malformed(f"the length at byte {at} is more than the data, of {len(data)} bytes")
    return found


def _take(left: list[int], count: int) -> None:
    left[0] -= count
    if left[0] < 0:
        raise Malformed("parts of it overlap so often that it stands for far more than it is")


def _short(data: bytes, at: int) -> Malformed:
    return Malformed(f"the data ends after {len(data)} bytes, within what begins at byte {at}")


_ZEROS = bytes(WORD)
