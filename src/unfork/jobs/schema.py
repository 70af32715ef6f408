"""Owns the queries of the jobs layer, over the tables of the app side."""

from __future__ import annotations

from pathlib import Path

from unfork.app import schema
from unfork.database import queries

_HERE = Path(__file__).parent


def bound(chain: str) -> queries.Queries:
    """The queries of leases and runs, for one chain."""
    return queries.Queries(_HERE / "queries", {"app": schema.name(chain)})
