"""Owns columns that say what their bytes are: Postgres has numbers where Spark has bytes."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from unfork.datasets.dataset import Kind
from unfork.jobs.spark.schema import KIND
from unfork.jobs.transforms import word

#: Who sends what is minted and receives what is burnt.
NOBODY = bytes(20)


def typed(column: Column | str, name: str, kind: Kind) -> Column:
    """A column, or SQL for one, that says what its bytes are."""
    made = F.expr(column) if isinstance(column, str) else column
    return made.alias(name, metadata={KIND: kind.value})


def sum_of(name: str, as_name: str, *, limb_bytes: int = word.LIMB_BYTES) -> Column:
    """The sum of a column whose limbs were summed, zero where nothing was."""
    nothing = F.expr(f"X'{bytes(word.BYTES + word.LIMB_BYTES).hex()}'")
    return typed(F.coalesce(word.total(name, limb_bytes=limb_bytes), nothing), as_name, Kind.SIGNED)
