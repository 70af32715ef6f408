"""Owns the lookup tables: where a block or a transaction is found by its id alone.

Partitioned tables have no index over all partitions; a lookup answers with the number first, and
the number finds the partition. Lookups are written and removed in the transaction of their rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """One lookup table, column by column taken from a dataset."""

    #: The lookup table.
    table: str
    #: The dataset whose ids it finds.
    dataset: str
    #: The columns that identify one of its rows.
    key: tuple[str, ...]
    #: Columns of the lookup and, for each, the dataset's column and its Postgres type.
    columns: Mapping[str, tuple[str, str]]

    def rows(self, table: pa.Table) -> pa.Table:
        """The lookup rows for rows of the dataset."""
        taken = table.select([column for column, _ in self.columns.values()])
        return taken.rename_columns(list(self.columns))

    @property
    def types(self) -> list[str]:
        """The Postgres types of the columns."""
        return [kind for _, kind in self.columns.values()]


TX_LOOKUP = Lookup(
    table="tx_lookup",
    dataset="transactions",
    key=("id", "block_number", "transaction_index"),
    columns={
        "id": ("hash", "bytea"),
        "block_number": ("block_number", "bigint"),
        "transaction_index": ("transaction_index", "bigint"),
        "timestamp": ("block_timestamp", "timestamptz"),
    },
)

BLOCK_LOOKUP = Lookup(
    table="block_lookup",
    dataset="blocks",
    key=("id",),
    columns={
        "id": ("hash", "bytea"),
        "block_number": ("number", "bigint"),
        "timestamp": ("timestamp", "timestamptz"),
    },
)

LOOKUPS = (TX_LOOKUP, BLOCK_LOOKUP)
