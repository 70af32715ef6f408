"""Owns the names of a chain's app schema: its migrations and its queries."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from unfork.database import migrate, queries

_HERE = Path(__file__).parent


def name(chain: str) -> str:
    """The schema of everything derived from a chain."""
    return f"{chain}_app"


def migrations(chain: str) -> migrate.Migrations:
    """The migrations of a chain's app schema."""
    return migrate.Migrations(_HERE / "migrations", name(chain), {"app": name(chain)})


def bound(chain: str) -> queries.Queries:
    """The queries of the app side, for one chain."""
    # Tasks of Spark need them too, where the package may lie in a zip file.
    return queries.Queries(resources.files(__package__) / "queries", {"app": name(chain)})
