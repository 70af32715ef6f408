"""Owns the queries of the lake, over the tables that the app schema of a chain keeps for it.

The tables live there so that a fork undoes refs, datasets and pointers in one transaction.
"""

from __future__ import annotations

from importlib import resources

from unfork.database import queries


def bound(app: str) -> queries.Queries:
    """The queries of the lake, for the app schema of one chain."""
    return queries.Queries(resources.files(__package__) / "queries", {"app": app})
