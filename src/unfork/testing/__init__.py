"""Shipped test tools: chains of a few lines of text, the oracles, the virtual clock.

For tests of jobs there are `chain`, and the fixture `spark_job` of `unfork.testing.plugin`; see
docs/testing.md.
"""

from unfork.testing.drawn import Chain, chain
from unfork.testing.script import Unreadable

__all__ = ["Chain", "Unreadable", "chain"]
