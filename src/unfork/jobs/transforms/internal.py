"""Owns the dataset `internal_transactions`: what contracts did with Ether and with other contracts.

A trace is one of them where it moves Ether, creates a contract or ends one, and was not the
transaction itself, which `transactions` has. A call by delegation runs with the value of its caller
and moves none, so only plain calls count. Those that failed, or were undone with the call around
them, are there with `status` 0, as a failed transaction is in `transactions`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unfork.jobs.transforms import topics, word
from unfork.jobs.transforms.names import TRACES

_NOTHING = topics.literal(bytes(word.BYTES))


def internal_transactions(traces: DataFrame) -> DataFrame:
    """One row a trace within a transaction that moves Ether, creates a contract or ends one."""
    is_within = "transaction_index IS NOT NULL AND trace_address <> ''"
    is_paying = f"trace_type = 'call' AND call_type = 'call' AND value <> {_NOTHING}"
    is_life = "trace_type IN ('create', 'suicide')"
    found = traces.select(*TRACES).where(f"{is_within} AND (({is_paying}) OR {is_life})")
    # What is within a transaction has one; Spark cannot know.
    always = {"transaction_hash": "X''", "transaction_index": "-1L"}
    return found.select(
        *(
            F.expr(f"coalesce({name}, {always[name]}) AS {name}") if name in always else name
            for name in TRACES
        )
    )
