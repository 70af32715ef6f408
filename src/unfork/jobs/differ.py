"""Owns the comparison of rows that would be written with those that are stored.

Rows are compared whole, however often each is there; two that differ and share the key are one that
changed. All of it is one grouping, whatever the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.app.derived import DerivedDataset
from unfork.chain.span import Span
from unfork.datasets.dataset import Kind

#: The columns by which a row is known where a dataset has no key.
PLACES = (
    "block_number",
    "block_hash",
    "transaction_hash",
    "transaction_index",
    "log_index",
    "trace_index",
    "batch_ordinal",
)

_NEW, _OLD = "unfork_new", "unfork_old"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A row that is there on one side alone, or more often."""

    #: Whether it would be written; else it is stored and would go.
    is_new: bool
    row: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How what would be written differs from what is stored."""

    #: The blocks that were compared.
    span: Span
    same: int
    added: int
    removed: int
    #: Rows that are on both sides under one key, with other values.
    changed: int
    #: Columns that are only on one side, which were not compared.
    columns_added: tuple[str, ...]
    columns_removed: tuple[str, ...]
    #: Some of the rows that differ, those of one key side by side.
    changes: tuple[Change, ...]

    @property
    def is_none(self) -> bool:
        """Whether nothing differs."""
        counted = self.added + self.removed + self.changed
        return not (counted or self.columns_added or self.columns_removed)


def differ(
    dataset: DerivedDataset, new: DataFrame, old: DataFrame, *, span: Span, limit: int
) -> Difference:
    """How rows differ from stored ones, with up to so many of those that do."""
    shared = [name for name in dataset.names if name in old.columns]
    places = dataset.key or PLACES
    key = [name for name in places if name in shared] or shared
    tagged = _tagged(new, shared, 1, 0).unionAll(_tagged(old, shared, 0, 1))
    rows = tagged.groupBy(*shared).agg(F.sum(_NEW).alias(_NEW), F.sum(_OLD).alias(_OLD))
    kept = rows.persist()
    try:
        is_other = F.col(_NEW) != F.col(_OLD)
        more, less = (
            F.greatest(F.col(a) - F.col(b), F.lit(0)) for a, b in ((_NEW, _OLD), (_OLD, _NEW))
        )
        by_key = kept.groupBy(*key).agg(
            F.sum(more).alias("added"),
            F.sum(less).alias("removed"),
            F.sum(F.least(_NEW, _OLD)).alias("same"),
        )
        changed = F.least("added", "removed")
        counts = by_key.agg(
            F.sum("same").alias("same"),
            F.sum(F.col("added") - changed).alias("added"),
            F.sum(F.col("removed") - changed).alias("removed"),
            F.sum(changed).alias("changed"),
        ).toArrow()
        few = kept.where(is_other).orderBy(*key, F.col(_NEW)).limit(2 * limit).toArrow()
    finally:
        kept.unpersist()
    counted = {name: value or 0 for name, value in counts.to_pylist()[0].items()}
    return Difference(
        span=span,
        **counted,
        columns_added=tuple(name for name in dataset.names if name not in old.columns),
        columns_removed=tuple(name for name in old.columns if name not in dataset.names),
        changes=tuple(_change(dataset, row) for row in few.to_pylist()),
    )


def _tagged(frame: DataFrame, columns: list[str], new: int, old: int) -> DataFrame:
    return frame.select(*columns, F.lit(new).alias(_NEW), F.lit(old).alias(_OLD))


def _change(dataset: DerivedDataset, row: dict[str, Any]) -> Change:
    is_new = row.pop(_NEW) > row.pop(_OLD)
    return Change(is_new=is_new, row=plain(dataset, row))


def plain(dataset: DerivedDataset, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as plain values: bytes stay bytes, 256-bit numbers are the numbers they are."""
    kinds = {column.name: column.kind for column in dataset.columns}
    return {name: _plain(kinds.get(name), value) for name, value in row.items()}


def _plain(kind: Kind | None, value: Any) -> Any:
    if value is None or kind not in (Kind.U256, Kind.SIGNED):
        return value
    return int.from_bytes(value, "big", signed=kind is Kind.SIGNED)
