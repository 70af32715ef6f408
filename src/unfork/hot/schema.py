"""Owns the names of a chain's raw schema: its migrations, its queries and its physical columns."""

from __future__ import annotations

from pathlib import Path

from unfork.database import migrate, queries
from unfork.datasets import evm
from unfork.datasets.dataset import Dataset

_HERE = Path(__file__).parent

#: Columns of the hot tables that no dataset declares.
_OWN = {"blocks": ("journal_seq",), "transactions": ("events",)}


def name(chain: str) -> str:
    """The schema of a chain's raw tables."""
    return f"{chain}_raw"


def migrations(chain: str) -> migrate.Migrations:
    """The migrations of a chain's raw schema."""
    return migrate.Migrations(_HERE / "migrations", name(chain), {"raw": name(chain)})


def bound(chain: str) -> queries.Queries:
    """The queries of the hot store, for one chain."""
    return queries.Queries(_HERE / "queries", {"raw": name(chain)})


def datasets(family: str) -> tuple[Dataset, ...]:
    """The raw datasets of a family of chains."""
    return {"evm": evm.DATASETS}[family]


def columns(dataset: Dataset) -> tuple[str, ...]:
    """Every column of a dataset's hot table: what is declared, then what only the store knows."""
    declared = tuple(column.name for column in dataset.columns)
    offloaded = tuple(
        name for payload in dataset.payloads for name in (payload.hash_column, payload.ref_column)
    )
    return declared + offloaded + _OWN.get(dataset.name, ())
