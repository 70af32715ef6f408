"""Owns content hashes: whether two sets of rows are the same, without comparing them one by one.

The content of rows is the sum of their hashes: it does not depend on their order, and rows can be
added and taken away. Two sums of 128-bit parts of SHA-256 are not equal by chance.
"""

from __future__ import annotations

from unfork.app.derived import DerivedDataset
from unfork.database.queries import Queries, Query, joined


def digest(queries: Queries, dataset: DerivedDataset) -> Query:
    """The hash of a row that a query calls `held`."""
    columns = joined(queries.fragment("content_column", column=column) for column in dataset.names)
    return queries.fragment("content_digest", columns=columns)


def total(queries: Queries) -> Query:
    """The content of all rows whose hash a query calls `digest`."""
    return queries.fragment("content_sum")
