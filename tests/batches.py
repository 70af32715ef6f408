"""Batches for tests of the store, made from devnet blocks by way of the oracle's expected rows."""

from unfork.testing.batches import WHOLE, batch, ref, table

__all__ = ["WHOLE", "batch", "ref", "table"]
