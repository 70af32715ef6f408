"""Owns the files of one version: written by Spark, then counted and hashed as they lie there.

What is published is what the files say when they are read back, never what was meant to be written.
Files hold rows in the order of their key, and say in the version which blocks they hold: a reader
asks for those it needs and Parquet's own statistics do the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from unfork import errors
from unfork.lake import content
from unfork.lake.file import File
from unfork.lake.storage import Storage, Stored

#: Rows in one file at most, about.
ROWS_MAX = 2_000_000


def write(
    frame: DataFrame,
    url: str,
    *,
    key: Sequence[str],
    rows_max: int = ROWS_MAX,
    options: Mapping[str, str] | None = None,
) -> None:
    """Writes rows into a new folder; each partition of the DataFrame by itself, sorted by key.

    `options` are further ones of Spark's Parquet writer. Raises ToolMissing where Spark lacks what
    the URL needs.
    """
    with_order = frame.sortWithinPartitions(*key)
    given = {
        "compression": "zstd",
        "maxRecordsPerFile": str(rows_max),
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        **(options or {}),
    }
    try:
        with_order.write.mode("error").options(**given).parquet(url)
    except Exception as error:
        raise_missing(error, url)
        raise


def measure(
    spark: SparkSession, storage: Storage, location: str, schema: StructType, *, number: str
) -> tuple[File, ...]:
    """The files of a folder as they are, by name; those without rows are left out."""
    sizes = {found.path.rpartition("/")[2]: found.bytes for found in _parquet(storage, location)}
    if not sizes:
        return ()
    counted = _counted(spark, storage, location, schema, number)
    # Rows in a file that nobody listed, or a file that was listed and cannot be read.
    assert set(counted) <= set(sizes)
    digests = hashed(spark, storage, [f"{location}/{name}" for name in counted])
    return tuple(
        File(
            name=name,
            size=sizes[name],
            rows=row["row_count"],
            content=content.of([row[name] for name in content.SUMS]),
            sha256=digests[f"{location}/{name}"],
            first=row["first"],
            last=row["last"],
        )
        for name, row in sorted(counted.items())
    )


def hashed(spark: SparkSession, storage: Storage, paths: Iterable[str]) -> dict[str, bytes]:
    """The SHA-256 of files, by name, computed where tasks run; one that is gone is left out."""
    wanted = sorted(paths)
    if not wanted:
        return {}

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = []
            for path in batch.column(0).to_pylist():
                try:
                    found.append((path, storage.sha256(path)))
                except FileNotFoundError:
                    continue
            yield pa.RecordBatch.from_pydict(
                {
                    "path": pa.array([path for path, _ in found], pa.string()),
                    "sha256": pa.array([digest for _, digest in found], pa.binary()),
                }
            )

    names = spark.createDataFrame([(path,) for path in wanted], "path string")
    rows = names.mapInArrow(each, "path string, sha256 binary").collect()
    return {row["path"]: bytes(row["sha256"]) for row in rows}


def raise_missing(error: Exception, url: str) -> None:
    """Raises ToolMissing where Spark says that it has no file system for a URL."""
    said, scheme = str(error), url.split(":")[0]
    is_missing = "ClassNotFoundException" in said or "No FileSystem for scheme" in said
    if is_missing and scheme != "file":
        package = {"s3a": "hadoop-aws", "gs": "gcs-connector"}.get(scheme, scheme)
        raise errors.ToolMissing(
            f"lake.url: this Spark cannot reach {scheme}://, it lacks the jars of {package}; name "
            "them in spark.conf under spark.jars or spark.jars.packages, in the version of "
            "Spark's own Hadoop"
        ) from error


def _counted(
    spark: SparkSession, storage: Storage, location: str, schema: StructType, number: str
) -> dict[str, dict[str, Any]]:
    """Rows, content and blocks of each file that has rows, by name."""
    url = storage.url(location)
    try:
        rows = (
            spark.read.schema(schema)
            .option("pathGlobFilter", "*.parquet")
            .parquet(url)
            .groupBy(F.col("_metadata.file_name").alias("name"))
            .agg(
                F.count(F.lit(1)).alias("row_count"),
                *content.sums(schema),
                F.min(number).alias("first"),
                F.max(number).alias("last"),
            )
            .collect()
        )
    except Exception as error:
        raise_missing(error, url)
        raise
    return {row["name"]: row.asDict() for row in rows}


def _parquet(storage: Storage, location: str) -> Iterator[Stored]:
    """The Parquet files right in a folder, without those of folders below it."""
    for found in storage.files(location):
        rest = found.path[len(location) + 1 :]
        if "/" not in rest and rest.endswith(".parquet"):
            yield found
