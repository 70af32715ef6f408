"""Owns the encoding of Arrow tables as binary COPY data, without a Python object a field.

A row is a count of fields, then for each field its length (-1 for NULL) and its bytes. Whatever has
the same length in every row of a batch is laid out by numpy as one block of bytes a row; what has
not is left as an Arrow column; Arrow then joins the pieces row by row. So the cost is a few memory
copies, whatever the number of columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from unfork.database import numeric, rowwise

HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
TRAILER = b"\xff\xff"

#: Rows encoded at once: keeps every buffer in the caches and far below Arrow's 2 GiB.
ROWS_AT_ONCE = 8192

#: Rows below which they are encoded value by value.
ROWS_FEW = 40

#: A block of bytes a row.
_Block = npt.NDArray[np.uint8]
#: One piece of every row: the same bytes in each, a block, or an Arrow column without NULLs.
_Piece = bytes | _Block | Any


def encode(table: pa.Table, types: Sequence[str]) -> Iterator[bytes]:
    """COPY data for the table, in pieces; `types` are the Postgres types of its columns, in order.

    Known types: bigint, bytea, text, boolean, timestamptz, date, numeric(78,0) from 32 bytes
    big-endian, numeric from two's complement bytes big-endian, bytea[], and jsonb from text.
    """
    pieces = encode_all([table], types)
    if table.num_rows > ROWS_AT_ONCE:
        yield from pieces
    else:
        yield b"".join(pieces)


def encode_all(tables: Iterable[pa.Table], types: Sequence[str]) -> Iterator[bytes]:
    """COPY data for the rows of several tables of one schema, each taken when it is needed."""
    yield HEADER
    for table in tables:
        yield from _pieces(table, types)
    yield TRAILER


def _pieces(table: pa.Table, types: Sequence[str]) -> Iterator[bytes]:
    """The rows of a table, some at once."""
    assert len(types) == table.num_columns
    for first in range(0, table.num_rows, ROWS_AT_ONCE):
        part = table.slice(first, ROWS_AT_ONCE)
        columns = [whole(column) for column in part.columns]
        is_few = part.num_rows < ROWS_FEW
        yield rowwise.rows(columns, types) if is_few else _rows(columns, types, part.num_rows)


def _rows(columns: Sequence[pa.Array], types: Sequence[str], rows: int) -> bytes:
    pieces: list[_Piece] = [len(columns).to_bytes(2, "big")]
    for column, kind in zip(columns, types, strict=True):
        pieces += [rowwise.NULL] if column.null_count == rows else _ENCODERS[kind](column)
    merged = _merged(pieces, rows)
    if len(merged) == 1 and isinstance(merged[0], np.ndarray):
        return merged[0].tobytes()
    arrays = [_binary(piece) if isinstance(piece, np.ndarray) else piece for piece in merged]
    joined = pc.binary_join_element_wise(*arrays, _EMPTY)
    assert joined.null_count == 0 and joined.offset == 0
    return bytes_of(joined)[0].tobytes()


def _merged(pieces: Sequence[_Piece], rows: int) -> list[_Piece]:
    """The same pieces, those of one width laid side by side in one block."""
    merged: list[_Piece] = []
    side: list[bytes | _Block] = []
    for piece in pieces:
        if isinstance(piece, bytes | np.ndarray):
            side.append(piece)
            continue
        if side:
            merged.append(_side_by_side(side, rows))
            side = []
        merged.append(piece)
    if side:
        merged.append(_side_by_side(side, rows))
    return merged


def _side_by_side(pieces: Sequence[bytes | _Block], rows: int) -> _Block:
    widths = [len(piece) if isinstance(piece, bytes) else piece.shape[1] for piece in pieces]
    block = np.empty((rows, sum(widths)), np.uint8)
    at = 0
    for piece, width in zip(pieces, widths, strict=True):
        same = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
        block[:, at : at + width] = same
        at += width
    return block


def _int(column: pa.Array) -> list[_Piece]:
    return _fixed(column, _numbers(column, np.int64).byteswap().view(np.uint8).reshape(-1, 8))


def _time(column: pa.Array) -> list[_Piece]:
    moments = _numbers(column, np.int64) - rowwise.EPOCH_US
    return _fixed(column, moments.byteswap().view(np.uint8).reshape(-1, 8))


def _date(column: pa.Array) -> list[_Piece]:
    days = _numbers(column, np.int32) - np.int32(rowwise.EPOCH_DAYS)
    return _fixed(column, days.byteswap().view(np.uint8).reshape(-1, 4))


def _bool(column: pa.Array) -> list[_Piece]:
    return _fixed(column, _bits(column.buffers()[1], column).reshape(-1, 1))


def _bytes(column: pa.Array) -> list[_Piece]:
    """Bytes and text: a length before each value, and the values as Arrow holds them."""
    data, offsets = bytes_of(column)
    lengths = offsets[1:] - offsets[:-1]
    if column.null_count == 0:
        if (lengths == lengths[0]).all():
            width = int(lengths[0])
            return [width.to_bytes(4, "big"), data.reshape(len(column), width)]
        return [_lengths(lengths), _variable(offsets - offsets[0], data)]
    valid = _valid(column)
    if lengths[~valid].any():
        # Arrow allows bytes under a NULL; they must not be sent.
        data = data[np.repeat(valid, lengths)]
        lengths = np.where(valid, lengths, 0)
        offsets = _offsets(lengths)
    return [_lengths(np.where(valid, lengths, -1)), _variable(offsets - offsets[0], data)]


def _json(column: pa.Array) -> list[_Piece]:
    """jsonb: the version of its format, then the text."""
    return _bytes(pc.binary_join_element_wise(_JSONB, column.cast(pa.binary()), _EMPTY))


def _bytes_list(column: pa.Array) -> list[_Piece]:
    """bytea[]: rare and short, so row by row."""
    values = [None if items is None else rowwise.array(items) for items in column.to_pylist()]
    return _bytes(pa.array(values, pa.binary()))


def _numeric(column: pa.Array) -> list[_Piece]:
    """256-bit numbers: as many digits as the largest of the column needs, for every row."""
    rows = len(column)
    data = np.frombuffer(column.buffers()[1], ">u2", rows * 16, column.offset * 32)
    limbs = data.reshape(rows, 16).astype(np.float64)
    if column.null_count:
        # What lies under a NULL is anything; it must not make the others wider.
        limbs[~_valid(column)] = 0
    return _fixed(column, numeric.fields(limbs))


def _signed(column: pa.Array) -> list[_Piece]:
    """Signed numbers of any size: of one size by the column, else value by value."""
    data, offsets = bytes_of(column)
    lengths = offsets[1:] - offsets[:-1]
    width = int(lengths[0])
    if column.null_count or width == 0 or width > numeric.WIDTH_MAX or (lengths != width).any():
        values = [None if v is None else rowwise.signed(v) for v in column.to_pylist()]
        return _bytes(pa.array(values, pa.binary()))
    return _fixed(column, numeric.signed_fields(data.reshape(len(column), width)))


_EMPTY = pa.scalar(b"", pa.binary())
_JSONB = pa.scalar(b"\x01", pa.binary())


def _fixed(column: pa.Array, data: _Block) -> list[_Piece]:
    """A column of one width: a block where no value is NULL, else the values that are there."""
    width = data.shape[1]
    if column.null_count == 0:
        return [width.to_bytes(4, "big"), data]
    valid = _valid(column)
    offsets = _offsets(np.where(valid, width, 0))
    return [_lengths(np.where(valid, width, -1)), _variable(offsets, data[valid])]


def _lengths(lengths: npt.NDArray[Any]) -> _Block:
    return lengths.astype(">i4").view(np.uint8).reshape(-1, 4)


def _offsets(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _binary(block: _Block) -> pa.Array:
    """A block as an Arrow column."""
    rows, width = block.shape
    return _variable(np.arange(rows + 1, dtype=np.int32) * np.int32(width), block)


def _variable(offsets: npt.NDArray[np.int32], data: _Block) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def bytes_of(column: pa.Array) -> tuple[_Block, npt.NDArray[np.int32]]:
    """The bytes of a column of bytes or text, and where in its buffer each value begins."""
    _, offsets_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(column) + 1, column.offset * 4)
    if data_buffer is None:
        return np.empty(0, np.uint8), offsets
    return np.frombuffer(data_buffer, np.uint8)[offsets[0] : offsets[-1]], offsets


def _numbers(column: pa.Array, kind: Any) -> npt.NDArray[Any]:
    """The values of a column of numbers; anything where it is NULL."""
    size = np.dtype(kind).itemsize
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * size)


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    return _bits(column.buffers()[0], column).view(np.bool_)


def _bits(buffer: Any, column: pa.Array) -> npt.NDArray[np.uint8]:
    """The bits of a bitmap that belong to the column, one a byte."""
    first = column.offset // 8
    packed = np.frombuffer(buffer, np.uint8)[first : (column.offset + len(column) + 7) // 8]
    bits = np.unpackbits(packed, bitorder="little")
    return bits[column.offset - 8 * first :][: len(column)]


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


_ENCODERS = {
    "bigint": _int,
    "bytea": _bytes,
    "text": _bytes,
    "boolean": _bool,
    "timestamptz": _time,
    "date": _date,
    "numeric(78,0)": _numeric,
    "numeric": _signed,
    "bytea[]": _bytes_list,
    "jsonb": _json,
}
