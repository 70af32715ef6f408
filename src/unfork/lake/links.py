"""Owns the check that blocks in files name each other as parents."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window


def first_broken(spark: SparkSession, urls: Sequence[str]) -> int | None:
    """The lowest block that does not name the one below it as its parent; None where all do.

    A block whose number does not follow the one below it is broken too.
    """
    above = Window.orderBy("number")
    row = (
        spark.read.parquet(*urls)
        .select(
            "number",
            "parent_hash",
            F.lag("hash").over(above).alias("below_hash"),
            F.lag("number").over(above).alias("below_number"),
        )
        .where("below_hash <> parent_hash OR below_number + 1 <> number")
        .agg(F.min("number").alias("number"))
        .collect()[0]
    )
    found: int | None = row["number"]
    return found
