"""Goal: what Spark writes is measured as it lies in the files, and any change of a row is noticed.

Method: rows with awkward values, written by a real Spark in different orders and cuts, read back;
single values are changed one by one, and bytes of files are flipped.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from unfork import errors
from unfork.chain.span import Span
from unfork.lake import content, files, pieces, read
from unfork.lake.file import File, total
from unfork.lake.storage import Storage

SCHEMA = StructType(
    [
        StructField("block_number", LongType(), False),
        StructField("row_index", LongType(), False),
        StructField("moment", TimestampType(), False),
        StructField("left", BinaryType(), True),
        StructField("right", BinaryType(), True),
        StructField("words", ArrayType(BinaryType()), True),
        StructField("text", StringType(), True),
    ]
)
KEY = ("block_number", "row_index")


def rows(last: int = 19) -> list[tuple[Any, ...]]:
    """Rows of blocks 0 to `last`, three each, with values that are easily taken for another."""
    made: list[tuple[Any, ...]] = []
    for number in range(last + 1):
        moment = datetime(2024, 1, 1, second=number, microsecond=1, tzinfo=UTC)
        made += [
            (number, 0, moment, b"a", None, [b"", b"x"], ""),
            (number, 1, moment, None, b"a", [], None),
            (number, 2, moment, b"", b"ab" * number, None, "\x00'" * number),
        ]
    return made


def written(
    spark: SparkSession, storage: Storage, location: str, given: list[tuple[Any, ...]], **how: Any
) -> tuple[File, ...]:
    frame = spark.createDataFrame(given, SCHEMA).coalesce(how.pop("parts", 1))
    files.write(frame, storage.url(location), key=KEY, **how)
    return measured(spark, storage, location)


def measured(spark: SparkSession, storage: Storage, location: str) -> tuple[File, ...]:
    return files.measure(spark, storage, location, SCHEMA, number="block_number")


def contents_of(frames: Sequence[DataFrame]) -> list[int]:
    """The content of each, asked in one go."""
    named = [frame.withColumn("nr", F.lit(place)) for place, frame in enumerate(frames)]
    both = functools.reduce(lambda left, right: left.unionByName(right), named)
    found = both.groupBy("nr").agg(*content.sums(SCHEMA)).collect()
    by_number = {row["nr"]: content.of([row[name] for name in content.SUMS]) for row in found}
    return [by_number.get(place, 0) for place in range(len(frames))]


@pytest.mark.everywhere
def test_files_are_counted_hashed_and_sorted_as_they_lie_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    storage, given = Storage.at(str(tmp_path)), rows()
    one = written(spark, storage, "one", given)
    many = written(spark, storage, "many", given[::-1], parts=2, rows_max=20)
    assert [(file.rows, file.first, file.last) for file in one] == [(60, 0, 19)]
    assert len(many) == 4 and sum(file.rows for file in many) == 60
    assert total(file.content for file in many) == one[0].content
    assert [one[0].content] == contents_of([spark.createDataFrame(given, SCHEMA)])
    path = tmp_path / "one" / one[0].name
    assert one[0].size == path.stat().st_size
    assert one[0].sha256 == storage.sha256(f"one/{one[0].name}")
    found = parquet.read_table(path)
    assert found.select(KEY).to_pylist() == [dict(zip(KEY, row[:2], strict=True)) for row in given]
    assert str(found.schema.field("moment").type) == "timestamp[us, tz=UTC]"
    info = parquet.ParquetFile(path).metadata.row_group(0).column(0)
    assert info.compression == "ZSTD" and info.statistics.max == 19


def test_every_change_of_a_value_changes_the_content(spark: SparkSession) -> None:
    frame = spark.createDataFrame(rows(3), SCHEMA)
    changes = [
        ("block_number", F.col("block_number") + 1),
        ("moment", F.col("moment") + F.expr("INTERVAL 1 MICROSECOND")),
        ("left", F.col("right")),
        ("right", F.coalesce(F.col("right"), F.lit(b""))),
        ("words", F.coalesce(F.col("words"), F.array().cast("array<binary>"))),
        ("words", F.transform("words", lambda word: F.concat(word, F.lit(b"\0")))),
        ("text", F.coalesce(F.col("text"), F.lit(""))),
    ]
    variants = [frame, *(frame.withColumn(name, value) for name, value in changes)]
    variants.append(frame.withColumns({"left": F.col("right"), "right": F.col("left")}))
    variants += [frame.where("row_index > 0"), frame.union(frame), frame.where("false")]
    found = contents_of(variants)
    assert len(set(found)) == len(variants) and found[-1] == 0


@pytest.mark.everywhere
def test_rows_are_read_back_by_block_and_column_and_nothing_is_no_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    storage = Storage.at(str(tmp_path))
    made = written(spark, storage, "some", rows(), parts=2, rows_max=20)
    assert written(spark, storage, "none", []) == ()
    wanted = [pieces.Piece(path=f"some/{file.name}", span=Span(3, 15)) for file in made]
    two = StructType([SCHEMA["block_number"], SCHEMA["right"]])
    found = read.frame(spark, storage, two, wanted, number="block_number")
    assert sorted(row["block_number"] for row in found.collect()) == sorted(
        row[0] for row in rows() if 3 <= row[0] <= 15
    )
    assert found.columns == ["block_number", "right"]
    assert read.frame(spark, storage, two, [], number="block_number").count() == 0


def test_a_flipped_byte_anywhere_in_a_file_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    storage = Storage.at(str(tmp_path))
    made = written(spark, storage, "v", rows())[0]
    path = tmp_path / "v" / made.name
    whole = path.read_bytes()
    names = [f"v/{made.name}"]
    for place in (4, len(whole) // 2, len(whole) - 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert files.hashed(spark, storage, names)[names[0]] != made.sha256
    path.write_bytes(whole)
    assert files.hashed(spark, storage, [*names, "v/gone.parquet"]) == {names[0]: made.sha256}


def test_a_bucket_without_its_jars_is_refused_with_what_is_missing(spark: SparkSession) -> None:
    frame = spark.createDataFrame(rows(0), SCHEMA)
    with pytest.raises(errors.ToolMissing, match="hadoop-aws"):
        files.write(frame, Storage.at("s3://bucket/lake").url("v"), key=KEY)
