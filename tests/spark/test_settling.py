"""Spark's Python processes leave what they imported out of the garbage that they look for.

Spark collects garbage in them after every request. What is counted here is what the collector
passes over, in a process of Spark and in this one; nothing is timed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from unfork.jobs.spark import settling


def test_a_process_of_spark_passes_over_what_it_imported(spark: SparkSession) -> None:
    def settled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        list(batches)
        is_settled = settling.settle()
        frozen = gc.get_freeze_count()
        settling.settle()
        yield pa.RecordBatch.from_pydict(
            {"is_settled": [is_settled], "frozen": [frozen], "again": [gc.get_freeze_count()]}
        )

    found = (
        spark.range(1)
        .coalesce(1)
        .mapInArrow(settled, "is_settled boolean, frozen bigint, again bigint")
    )
    row = found.toArrow().to_pylist()[0]
    assert row["is_settled"] is True
    # Thousands of objects belong to what was imported; the second word changes nothing.
    assert row["frozen"] > 10_000
    assert row["again"] == row["frozen"]


def test_a_program_that_imports_us_is_left_alone() -> None:
    before = gc.get_freeze_count()
    assert settling.settle() is False
    assert gc.get_freeze_count() == before
