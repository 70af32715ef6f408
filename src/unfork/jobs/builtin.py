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
from unfork.jobs.transforms import names, topics

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
    #: The dataset it writes; the job's own name when left out.
    output: str | None = None
    #: Inputs that a chain may lack: they are read as if nothing had happened in them.
    optional: tuple[str, ...] = ()
    #: What a row of an input must hold to matter, by input and column: one of these values.
    only: Mapping[str, Mapping[str, tuple[bytes, ...]]] = field(default_factory=dict)
    #: Further indexes of the table.
    indexes: tuple[tuple[str, ...], ...] = ()
    #: Block numbers per physical partition of the table; None for a table in one piece.
    table_blocks: int | None = None


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


def _by_log(*more: str) -> tuple[str, ...]:
    return ("block_number", "log_index", *more)


#: A million blocks: what people look into stays small enough to be indexed, moved and dropped.
_GROWING = 1_000_000

BUILTINS: Mapping[str, Builtin] = {
    "token_transfers": Builtin(
        transform="unfork.jobs.transforms.transfers:token_transfers",
        inputs=("logs",),
        mode=Mode.CURSOR,
        strategy=Strategy.REPLACE,
        columns={"logs": names.LOGS},
        only={"logs": {"topic0": topics.TRANSFERS}},
        unique_key=_by_log("batch_ordinal"),
        indexes=(
            ("from_address", "block_number"),
            ("to_address", "block_number"),
            ("token_address", "block_number"),
        ),
        table_blocks=_GROWING,
    ),
    "approvals": Builtin(
        transform="unfork.jobs.transforms.approvals:approvals",
        inputs=("logs",),
        mode=Mode.CURSOR,
        strategy=Strategy.REPLACE,
        columns={"logs": names.LOGS},
        only={"logs": {"topic0": topics.APPROVALS}},
        unique_key=_by_log(),
        indexes=(
            ("owner_address", "block_number"),
            ("spender_address", "block_number"),
            ("token_address", "block_number"),
        ),
        table_blocks=_GROWING,
    ),
    "internal_transactions": Builtin(
        transform="unfork.jobs.transforms.internal:internal_transactions",
        inputs=("traces",),
        mode=Mode.CURSOR,
        strategy=Strategy.REPLACE,
        unique_key=("block_number", "trace_index"),
        columns={"traces": names.TRACES},
        indexes=(("from_address", "block_number"), ("to_address", "block_number")),
        table_blocks=_GROWING,
    ),
    "enrich_transfers": Builtin(
        transform="unfork.jobs.transforms.enriched:enrich_transfers",
        inputs=("logs", "transactions", "blocks"),
        output="enriched_transfers",
        mode=Mode.CURSOR,
        strategy=Strategy.REPLACE,
        unique_key=_by_log("batch_ordinal"),
        columns=names.ENRICHED,
        only={"logs": {"topic0": topics.TRANSFERS}},
        indexes=(
            ("from_address", "block_number"),
            ("to_address", "block_number"),
            ("token_address", "block_number"),
        ),
        table_blocks=_GROWING,
    ),
    "address_transactions": Builtin(
        transform="unfork.jobs.transforms.participation:address_transactions",
        inputs=("transactions", "token_transfers", "traces"),
        optional=("traces",),
        mode=Mode.CURSOR,
        strategy=Strategy.REPLACE,
        unique_key=("address", "block_number", "transaction_index"),
        columns=names.PARTICIPATION,
        indexes=(("address", "block_number DESC"),),
        table_blocks=_GROWING,
    ),
    "address_stats": Builtin(
        transform="unfork.jobs.transforms.stats:address_stats",
        inputs=("transactions", "token_transfers", "traces"),
        optional=("traces",),
        mode=Mode.CURSOR,
        strategy=Strategy.MERGE,
        unique_key=("address",),
        rules={
            "first_block_number": Rule.MIN,
            "first_block_timestamp": Rule.MIN,
            **dict.fromkeys(
                (*names.COUNTS, "value_sent", "value_received", "gas_used", "gas_spent"), Rule.ADD
            ),
        },
        columns=names.STATS,
    ),
    "token_balances": Builtin(
        transform="unfork.jobs.transforms.balances:token_balances",
        inputs=("token_transfers",),
        mode=Mode.CURSOR,
        strategy=Strategy.MERGE,
        unique_key=("token_address", "address", "standard", "token_id"),
        rules={"balance": Rule.ADD},
        columns=names.BALANCES,
        indexes=(("address", "token_address"),),
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
        transform="unfork.jobs.transforms.days:daily_summary",
        inputs=("blocks", "transactions"),
        mode=Mode.PARTITION,
        strategy=Strategy.REPLACE,
        partitioning=ByDay(),
        unique_key=("day",),
        columns=names.DAYS,
    ),
}

#: Built-in jobs that a file may name already and that come with a later release.
LATER = ("alert_evaluate",)


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
