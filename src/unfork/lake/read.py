"""Owns reading versions: which files hold rows of a span, and the rows in them.

Who reads has pinned what is current before he asked for it, so the files stay while he reads. On
Spark they are read by its own Parquet reader; a Python process reads them with Arrow's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from unfork import errors
from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.lake import files
from unfork.lake.storage import Storage
from unfork.lake.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A file, and the blocks that are wanted of it."""

    #: Its name below the root.
    path: str
    span: Span


def pieces(versions: Iterable[Version], span: Span) -> list[Piece]:
    """The files that hold rows of a span, by block; versions without rows have none."""
    found = []
    for version in versions:
        wanted = spans.intersect(version.span, span) if version.span.overlaps(span) else None
        for file in version.files if wanted is not None else ():
            if wanted is not None and wanted.overlaps(Span(file.first, file.last)):
                found.append(Piece(path=f"{version.location}/{file.name}", span=wanted))
    return sorted(found, key=lambda piece: (piece.span, piece.path))


def frame(
    spark: SparkSession,
    storage: Storage,
    schema: StructType,
    wanted: Sequence[Piece],
    *,
    number: str,
) -> DataFrame:
    """The rows of files as a DataFrame, pruned by block and column by Spark's own reader."""
    if not wanted:
        return spark.createDataFrame([], schema)
    urls = [storage.url(piece.path) for piece in wanted]
    merged = spans.merge(piece.span for piece in wanted)
    within = F.lit(False)
    for span in merged:
        within = within | F.col(number).between(span.first, span.last)
    try:
        return spark.read.schema(schema).parquet(*urls).where(within)
    except Exception as error:
        files.raise_missing(error, storage.root)
        raise


def batches(
    storage: Storage, piece: Piece, schema: pa.Schema, *, number: str
) -> Iterator[pa.RecordBatch]:
    """The rows of one file as Arrow, a row group at a time; only those of the wanted blocks.

    Raises FilesRemoved where the file is gone.
    """
    system, path = storage.opened(piece.path)
    names = list(dict.fromkeys([*schema.names, number]))
    try:
        with parquet.ParquetFile(path, filesystem=system) as opened:
            for batch in opened.iter_batches(columns=names):
                numbers = batch.column(batch.schema.get_field_index(number))
                is_wanted = pc.and_(
                    pc.greater_equal(numbers, piece.span.first),
                    pc.less_equal(numbers, piece.span.last),
                )
                kept = batch.filter(is_wanted)
                if kept.num_rows:
                    yield _cast(kept, schema)
    except FileNotFoundError as error:
        raise errors.FilesRemoved(
            f"{piece.path} was removed while it was read; read again, or raise lake.read_keep_s",
            path=piece.path,
        ) from error


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        array = batch.column(batch.schema.get_field_index(field.name))
        arrays.append(array if array.type == field.type else array.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
