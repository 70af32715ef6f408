"""Owns lookup files: in which block an id is, for blocks and transactions of one version.

They lie in a folder of their version and say no more than its rows do: id, block, position, moment.
Rows are sorted by id over all files and cut into small groups, so that Arrow finds an id by the
bounds of the groups and reads one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow.compute as pc
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from unfork.datasets.dataset import Dataset
from unfork.lake import files
from unfork.lake.file import File
from unfork.lake.storage import Storage
from unfork.lake.versions import Version

#: The folder of a version that lookup files are in.
FOLDER = "lookup"
#: Bytes of one group of rows, about: what one look reads of a file.
GROUP_BYTES = 256 * 1024

#: What is looked up of each dataset: the id, then the position within the block.
COLUMNS = {"blocks": ("hash", ()), "transactions": ("hash", ("transaction_index",))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an id is."""

    number: int
    #: The position in the block; None for the block itself.
    index: int | None
    timestamp: datetime


def write(
    spark: SparkSession,
    storage: Storage,
    location: str,
    dataset: Dataset,
    found: Sequence[File],
) -> tuple[File, ...]:
    """Writes the lookup of a version from its own files; none for a dataset that has no ids."""
    if dataset.name not in COLUMNS or not found:
        return ()
    id_column, position = COLUMNS[dataset.name]
    moment = "timestamp" if dataset.name == "blocks" else "block_timestamp"
    urls = [storage.url(f"{location}/{file.name}") for file in found]
    rows = spark.read.parquet(*urls).select(
        F.col(id_column).alias("id"),
        F.col(dataset.number_column).alias("block_number"),
        *position,
        F.col(moment).alias("timestamp"),
    )
    folder = f"{location}/{FOLDER}"
    files.write(
        rows.orderBy("id"),
        storage.url(folder),
        key=("id", "block_number", *position),
        options={"parquet.block.size": str(GROUP_BYTES)},
    )
    return files.measure(spark, storage, folder, rows.schema, number="block_number")


def find(storage: Storage, versions: Iterable[Version], id: bytes) -> list[Place]:
    """Every place of an id in some versions, by block: an id may stand in several blocks."""
    found = []
    for version in versions:
        for file in version.lookups:
            path = f"{version.location}/{FOLDER}/{file.name}"
            found += _in_file(storage, path, id)
    return sorted(found, key=lambda place: (place.number, place.index or 0))


def _in_file(storage: Storage, path: str, id: bytes) -> list[Place]:
    system, name = storage.opened(path)
    found: list[Place] = []
    with parquet.ParquetFile(name, filesystem=system) as opened:
        for number in range(opened.metadata.num_row_groups):
            bounds = opened.metadata.row_group(number).column(0).statistics
            if bounds is not None and bounds.has_min_max and not bounds.min <= id <= bounds.max:
                continue
            group = opened.read_row_group(number)
            for row in group.filter(pc.equal(group["id"], id)).to_pylist():
                found.append(
                    Place(
                        number=row["block_number"],
                        index=row.get("transaction_index"),
                        timestamp=row["timestamp"],
                    )
                )
    return found
