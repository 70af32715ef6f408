"""Owns content hashes of rows in Spark: whether two sets of rows are the same, in one number.

The content is a sum of hashes, one a row, so it depends neither on the order of rows nor on how
they lie in files, and the contents of files add up to that of their version. A row has two 64-bit
hashes, begun differently; both are added up modulo 2^64. It tells rows that were damaged, lost,
doubled or swapped; against rows that somebody made up, blocks have their own proofs.

Every value counts with its place: what is null and how long a list is are hashed first.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from unfork.lake import file

#: The names of the sums: the two halves of the two hashes.
SUMS = ("a_high", "a_low", "b_high", "b_low")

_LOW = (1 << 32) - 1


def sums(schema: StructType) -> list[Column]:
    """What to aggregate over rows of a schema, named as in SUMS."""
    made: list[Column] = []
    for number, letter in enumerate("ab"):
        row = _hash(schema, number)
        made += [
            F.coalesce(F.sum(F.shiftrightunsigned(row, 32)), F.lit(0)).alias(f"{letter}_high"),
            F.coalesce(F.sum(row.bitwiseAND(F.lit(_LOW))), F.lit(0)).alias(f"{letter}_low"),
        ]
    return made


def of(found: Sequence[int]) -> int:
    """The content that the sums say, in the order of SUMS."""
    a_high, a_low, b_high, b_low = found
    return file.joined((a_high << 32) + a_low, (b_high << 32) + b_low)


def _hash(schema: StructType, number: int) -> Column:
    """One of the two hashes of a row."""
    assert len(schema.fields) < 63
    nulls: Column = F.lit(0).cast("long")
    lengths = []
    for place, field in enumerate(schema.fields):
        column = F.col(field.name)
        nulls = nulls + F.when(column.isNull(), F.lit(1 << place)).otherwise(F.lit(0))
        if isinstance(field.dataType, ArrayType):
            lengths.append(F.size(column))
    values = [F.col(field.name) for field in schema.fields]
    return F.xxhash64(F.lit(number), nulls, *lengths, *values)
