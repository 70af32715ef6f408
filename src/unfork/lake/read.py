"""Owns reading files of the lake with Spark, by its own Parquet reader.

Who reads has pinned what is current before he asked for it, so the files stay while he reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from unfork.chain import span as spans
from unfork.lake import files
from unfork.lake.pieces import Piece
from unfork.lake.storage import Storage


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
