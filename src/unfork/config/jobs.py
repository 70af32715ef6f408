"""Owns the branches of the configuration that declare work: jobs, schedules, planning.

Here each key is checked by itself. What one job means for another (inputs, cycles, writers) is
checked over the whole file by the jobs layer, which also knows the built-in jobs: a key left out
of a built-in job takes the value that job declares for itself.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from unfork.config import cron, interval
from unfork.config.branch import NUMBER_MAX, PARTITION_SIZE_MAX, WAIT_S_MAX, Branch
from unfork.config.checks import Check

#: What a dataset, and so a table and a view, may be called.
NAME = r"^[a-z][a-z0-9_]{0,39}$"
COLUMN = r"[A-Za-z_][A-Za-z0-9_]{0,62}"

Rule = Literal["set", "add", "min", "max", "set-if-null"]


class Incremental(Branch):
    """What one run of a job recomputes."""

    mode: Literal["cursor", "partition", "full"] | None = None
    """cursor: rows after the watermark, block by block. partition: whole partitions. full: all of
    it, again and again."""
    cursor_column: str | None = None
    """The column that the watermark counts: block_number."""
    unique_key: tuple[str, ...] = ()
    """The columns that identify a row; append and merge need them."""
    partition: int | str | None = None
    """Blocks per partition, or day for one partition a UTC day; 10000 when left out."""
    min_interval: float | None = None
    """Seconds between two runs over what is still growing at least, or 30s, 10m, 2h, 1d; for mode
    full (60 when left out) and partition (0)."""

    @field_validator("unique_key")
    @classmethod
    def _are_columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _columns(columns)

    @field_validator("partition", mode="before")
    @classmethod
    def _is_partition(cls, value: Any) -> Any:
        if isinstance(value, str) and value.isdigit():
            value = int(value)
        is_size = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if value is not None and value != "day" and not is_size:
            raise ValueError("must be a number of blocks, at least 1, or day")
        if is_size and value > PARTITION_SIZE_MAX:
            raise ValueError(f"must be at most {PARTITION_SIZE_MAX:,} blocks")
        return value

    @field_validator("min_interval", mode="before")
    @classmethod
    def _is_interval(cls, value: Any) -> Any:
        return None if value is None else interval.seconds(value)


class Read(Branch):
    """What a job asks contracts."""

    name: str = Field(pattern=NAME)
    """Names the answers: a table for SQL, one more argument of a transform."""
    of: str
    """The input whose rows ask, each in the state after its own block."""
    address: str
    """Its column with the contract."""
    function: str
    """What is asked: name(types of arguments)(types it returns), with names or without."""
    arguments: tuple[str, ...] = ()
    """Its columns with the arguments, in order."""
    immutable: bool = False
    """Promises that an answer never changes while the contract's code stays the same."""


class Lookup(Branch):
    """How rows of one input are found by values of the driving one."""

    column: str = Field(pattern=f"^{COLUMN}$")
    """The column of the lookup that is searched."""
    by: str = Field(pattern=f"^{COLUMN}$")
    """The column of the driving input whose values are searched for."""


class Job(Branch):
    """One dataset computed from others."""

    name: str = Field(pattern=NAME)
    """Names the job; a built-in job needs nothing else."""
    input_datasets: tuple[str, ...] = ()
    """The datasets it reads, in the order its transform takes them; the first one drives it."""
    output_dataset: str | None = Field(default=None, pattern=NAME)
    """The dataset it writes; the job's own name when left out."""
    lookups: dict[str, Lookup] = Field(default={})
    """Inputs of which rows of earlier blocks are read as well, by what is found in them; mode
    cursor."""
    incremental: Incremental = Incremental()
    """What one run recomputes."""
    unique_key: tuple[str, ...] = ()
    """The same as incremental.unique_key."""
    update_strategy: Literal["replace", "append", "merge"] | None = None
    """replace: delete the scope, write it. append: insert what is new by unique_key. merge: fold
    changes into one row a key."""
    indexes: tuple[tuple[str, ...], ...] = ()
    """Further indexes of its table, each a list of columns; `block_number DESC` for the newest
    first."""
    merge: dict[str, Rule] = Field(default={})
    """How merge folds each column: set (when left out), add, min, max, set-if-null."""
    transform: str | None = Field(default=None, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """The function DataFrame to DataFrame, as package.module:function of this folder or of what is
    installed."""
    sql: str | None = None
    """A file with one SELECT over the names of its inputs, instead of a transform."""
    reads: tuple[Read, ...] = ()
    """What it asks contracts (eth_call), exact through forks."""
    config: dict[str, Any] = Field(default={}, repr=False)
    """Whatever the transform wants to be told; it gets this mapping as it is."""
    on_change: Literal["stop", "continue"] = "stop"
    """When code or settings change, stop until a backfill, or continue from the next block on."""
    checks: tuple[Check, ...] = ()
    """What the rows of a run must fulfil before they are published."""

    @field_validator("unique_key")
    @classmethod
    def _are_columns(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        return _columns(columns)

    @field_validator("indexes")
    @classmethod
    def _are_indexes(cls, indexes: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        for index in indexes:
            if not index:
                raise ValueError("an index needs a column")
            _columns(tuple(column.removesuffix(" DESC") for column in index))
        if len(set(indexes)) != len(indexes):
            raise ValueError("names an index twice")
        return indexes

    @field_validator("merge")
    @classmethod
    def _rules_are_for_columns(cls, rules: dict[str, Rule]) -> dict[str, Rule]:
        _columns(tuple(rules))
        return rules

    @model_validator(mode="after")
    def _says_each_thing_once(self) -> Job:
        if self.transform is not None and self.sql is not None:
            raise ValueError("transform and sql cannot be given both")
        nested = self.incremental.unique_key
        if self.unique_key and nested and self.unique_key != nested:
            raise ValueError("unique_key and incremental.unique_key differ; give one of them")
        return self


class Schedule(Branch):
    """Something that runs by the clock."""

    task: Literal["repair", "verify", "maintenance"]
    """What runs: repair and verify as the commands do; maintenance prunes what is no longer
    needed."""
    cron: str
    """When it runs: minute hour day month weekday, in UTC."""

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, text: str) -> str:
        cron.parse(text)
        return text


class Planning(Branch):
    """How work is cut into runs."""

    range_size: int = Field(default=50_000, ge=1, le=PARTITION_SIZE_MAX)
    """Blocks in one run over history; runs begin at multiples of it (RANGE_SIZE)."""
    live_blocks_max: int = Field(default=100, ge=1, le=NUMBER_MAX)
    """Blocks in one run at the head at most; what lies further behind, and is final, is history."""
    runs_max: int = Field(default=64, ge=1)
    """Runs of one job planned at once; the others are counted and planned later."""


class Work(Branch):
    """How much a worker does at once."""

    live_runs_max: int = Field(default=4, ge=1, le=NUMBER_MAX)
    """Runs at the head at once."""
    history_runs_max: int = Field(default=2, ge=1, le=NUMBER_MAX)
    """Runs over history at once."""
    lease_s: float = Field(default=60.0, gt=0, le=WAIT_S_MAX)
    """Seconds after which the blocks of a worker that does not answer are given to another
    (LEASE_S)."""
    run_max_s: float = Field(default=3600.0, gt=0, le=WAIT_S_MAX)
    """Seconds one run may take before it counts as failed (RUN_MAX_S)."""


def default_jobs() -> tuple[Job, ...]:
    """The built-in jobs, which there are where nobody declares any."""
    return tuple(
        Job(name=name)
        for name in (
            "token_transfers",
            "approvals",
            "internal_transactions",
            "enrich_transfers",
            "address_transactions",
            "address_stats",
            "token_balances",
            "tokens",
            "daily_summary",
        )
    )


def _columns(columns: tuple[str, ...]) -> tuple[str, ...]:
    for column in columns:
        if not re.fullmatch(COLUMN, column):
            raise ValueError(f"{column!r} is not the name of a column")
    if len(set(columns)) != len(columns):
        raise ValueError("names a column twice")
    return columns
