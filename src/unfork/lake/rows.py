"""Owns reading a file of the lake with Arrow: the rows of some blocks, a group of rows at a time.

It is how a Python process reads; Spark reads the same files with its own reader (read.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from unfork import errors
from unfork.chain.span import Span
from unfork.lake.pieces import Piece
from unfork.lake.storage import Storage


def batches(
    storage: Storage,
    piece: Piece,
    schema: pa.Schema,
    *,
    number: str,
    among: Mapping[str, Sequence[Any]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one file as Arrow, a row group at a time; only those of the wanted blocks.

    Of each column that is named in `among` only rows with one of the values are taken. Raises
    FilesRemoved where the file is gone.
    """
    system, path = storage.opened(piece.path)
    names = list(dict.fromkeys([*schema.names, number, *(among or {})]))
    try:
        with parquet.ParquetFile(path, filesystem=system) as opened:
            groups = _groups(opened, number, piece.span)
            for batch in opened.iter_batches(columns=names, row_groups=groups):
                numbers = batch.column(batch.schema.get_field_index(number))
                is_wanted = pc.and_(
                    pc.greater_equal(numbers, piece.span.first),
                    pc.less_equal(numbers, piece.span.last),
                )
                for name, values in (among or {}).items():
                    column = batch.column(batch.schema.get_field_index(name))
                    known = pa.array(values, column.type)
                    is_wanted = pc.and_(is_wanted, pc.is_in(column, value_set=known))
                kept = batch.filter(is_wanted)
                if kept.num_rows:
                    yield _cast(kept, schema)
    except FileNotFoundError as error:
        raise errors.FilesRemoved(
            f"{piece.path} was removed while it was read; read again, or raise lake.read_keep_s",
            path=piece.path,
        ) from error


def _groups(opened: parquet.ParquetFile, number: str, span: Span) -> list[int]:
    """The groups of rows that may hold blocks of a span."""
    column = opened.schema_arrow.names.index(number)
    found = []
    for group in range(opened.metadata.num_row_groups):
        # Columns before it are not nested, so its place is that of its leaf.
        bounds = opened.metadata.row_group(group).column(column).statistics
        if bounds is None or not bounds.has_min_max:
            found.append(group)
        elif bounds.min <= span.last and bounds.max >= span.first:
            found.append(group)
    return found


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        array = batch.column(batch.schema.get_field_index(field.name))
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
