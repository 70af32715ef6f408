"""Owns the registry of built-in jobs: what a job declares for itself when the file only names it.

A job of the file that has the name of a built-in one, and neither transform nor sql, is that
built-in job; the file may still say otherwise about everything but what the transform needs.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from unfork.config.jobs import Job
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import ByDay, Mode, Partitioning, Rule, Strategy
from unfork.jobs.read import Asking, Read

#: Names under which a file may list raw ingestion itself, as the seeds do.
SOURCES = ("block_follower", "raw_ingester")

#: The job that puts what is final into the lake.
COMPACTION = "parquet_compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """One built-in job."""

    #: `package.module:function`.
    transform: str
    #: What the transform takes, in order.
    inputs: tuple[str, ...]
    mode: Mode
    strategy: Strategy
    unique_key: tuple[str, ...] = ()
    partitioning: Partitioning | None = None
    rules: Mapping[str, Rule] = field(default_factory=dict)
    #: The columns that the transform selects first, by input; the others need not be read.
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: What it asks contracts.
    reads: tuple[Read, ...] = ()


def _token_reads() -> tuple[Read, ...]:
    """What every token is asked, where it is new."""
    asking = Asking(
        function="unfork.jobs.transforms.tokens:asked",
        keys=(("token_transfers", "token_address"), ("transactions", "contract_address")),
        known=("address", "standard"),
        carried=(
            Column("block_timestamp", Kind.TIME),
            Column("standard", Kind.TEXT, nullable=True),
        ),
    )
    functions = {
        "name": "name()(text)",
        "symbol": "symbol()(text)",
        "decimals": "decimals()(uint8)",
    }
    return tuple(
        Read(name=name, of="token_transfers", address="", function=function, asking=asking)
        for name, function in functions.items()
    )


BUILTINS: Mapping[str, Builtin] = {
    "token_transfers": Builtin(
        transform="unfork.jobs.transforms.evm:token_transfers",
        inputs=("logs",),
        mode=Mode.CURSOR,
        strategy=Strategy.REPLACE,
    ),
    "token_balances": Builtin(
        transform="unfork.jobs.transforms.evm:token_balances",
        inputs=("token_transfers",),
        mode=Mode.CURSOR,
        strategy=Strategy.MERGE,
        unique_key=("token_address", "address"),
        rules={"balance": Rule.ADD},
    ),
    "tokens": Builtin(
        transform="unfork.jobs.transforms.tokens:tokens",
        inputs=("token_transfers", "transactions"),
        mode=Mode.CURSOR,
        strategy=Strategy.MERGE,
        unique_key=("address",),
        columns={
            "token_transfers": (
                "block_number",
                "block_hash",
                "block_timestamp",
                "log_index",
                "batch_ordinal",
                "standard",
                "token_address",
            ),
            "transactions": (
                "block_number",
                "block_hash",
                "block_timestamp",
                "status",
                "contract_address",
            ),
        },
        reads=_token_reads(),
    ),
    "daily_summary": Builtin(
        transform="unfork.jobs.transforms.evm:daily_summary",
        inputs=("blocks", "transactions"),
        mode=Mode.PARTITION,
        strategy=Strategy.REPLACE,
        partitioning=ByDay(),
        columns={
            "blocks": ("number", "hash", "timestamp", "gas_used"),
            "transactions": (
                "block_number",
                "block_timestamp",
                "from_address",
                "status",
                "value",
            ),
        },
    ),
}

#: Built-in jobs that a file may name already and that come with a later release.
LATER = (
    "address_stats",
    "address_transactions",
    "alert_evaluate",
    "approvals",
    "enrich_transfers",
    "internal_transactions",
)


def unknown(job: Job) -> str | None:
    """What is wrong with a job that only has a name, where that is not the name of a built-in."""
    known = (*BUILTINS, *LATER, COMPACTION, *(SOURCES if not job.input_datasets else ()))
    if job.transform is not None or job.sql is not None or job.name in known:
        return None
    near = difflib.get_close_matches(
        job.name, sorted([*BUILTINS, *LATER, COMPACTION]), n=1, cutoff=0.75
    )
    hint = f"did you mean the built-in job `{near[0]}`?" if near else "add one of them"
    return f"job `{job.name}` has neither transform nor sql; {hint}"
