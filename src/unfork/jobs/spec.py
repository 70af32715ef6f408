"""Owns the job specification: what a job reads, writes and promises, as one frozen value.

A specification is checked against the others before it exists (catalog.py), so whoever holds one
may rely on it: the inputs are datasets that are written by someone, the mode fits the strategy, and
there is something to run, or a sentence that says why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from unfork.datasets.derivation import (
    ByBlocks,
    ByDay,
    Lookup,
    Mode,
    Partitioning,
    Rule,
    Strategy,
)
from unfork.jobs.check import Check, Relation
from unfork.jobs.read import Read

#: Columns that place a row on the chain; `number` and `hash` are those of the dataset `blocks`.
NUMBER_COLUMNS = ("block_number", "number")
HASH_COLUMNS = ("block_hash", "hash")


class OnChange(StrEnum):
    """What a job does once its code or settings differ from those its rows were made with."""

    #: Nothing, until a person asks for a backfill.
    STOP = "stop"
    #: Goes on with the next block; the block at which the change took place is recorded.
    CONTINUE = "continue"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job."""

    name: str
    #: The datasets it reads, in the order its transform takes them; the first drives it.
    inputs: tuple[str, ...]
    #: The same inputs as the file names them (`hot_logs` for `logs`): the names SQL reads from.
    input_names: tuple[str, ...]
    #: The dataset it writes.
    output: str
    mode: Mode
    strategy: Strategy
    #: The columns that identify a row; empty where the file gives none.
    unique_key: tuple[str, ...] = ()
    #: How it cuts the chain, in mode partition alone.
    partitioning: Partitioning | None = None
    #: Seconds between two runs over what still grows, in modes partition and full.
    min_interval_s: float = 0.0
    #: `package.module:function`, or None where SQL says what to compute.
    transform: str | None = None
    #: The file with the SELECT, or None where a function says what to compute.
    sql: Path | None = None
    #: How merge folds each column; a column that is not named is set.
    rules: Mapping[str, Rule] = field(default_factory=dict)
    #: What the transform is told.
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    on_change: OnChange = OnChange.STOP
    #: The columns that the transform reads, by input; all of an input that is not named.
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: What it asks contracts; the transform takes the answers after its inputs.
    reads: tuple[Read, ...] = ()
    #: The inputs of which rows of all earlier blocks are read too, by what is found in them.
    lookups: Mapping[str, Lookup] = field(default_factory=dict)
    #: What a row of an input must hold to matter to the transform, by input and column: one of
    #: these values. Where no row of the driving input does, there are none to return.
    only: Mapping[str, Mapping[str, tuple[bytes, ...]]] = field(default_factory=dict)
    #: What its rows must fulfil before they are published.
    checks: tuple[Check, ...] = ()
    #: Inputs that a chain may lack: they are read as if nothing had happened in them.
    optional: tuple[str, ...] = ()
    #: Further indexes of its table; a column may say ` DESC`.
    indexes: tuple[tuple[str, ...], ...] = ()
    #: Block numbers per physical partition of its table; None for a table in one piece.
    table_blocks: int | None = None
    #: Whether it is raw ingestion itself, declared as a job: shown, never planned.
    is_source: bool = False
    #: Whether it fills the lake: it writes no dataset, and is not planned but looks by itself.
    is_compaction: bool = False
    #: Why this release cannot run it; None where it can.
    unavailable: str | None = None
    #: Where it was written, for messages: by key, the job itself by the empty text.
    origins: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What the transform takes, in order, as the file names it."""
        return (*self.input_names, *(read.name for read in self.reads))

    @property
    def is_serial(self) -> bool:
        """Whether a range can only be computed after all blocks below it are.

        So it is where a row gathers what came from several blocks: merge, and append whose key
        lacks the block.
        """
        if self.strategy is Strategy.MERGE:
            return True
        has_block = not set(self.unique_key).isdisjoint(NUMBER_COLUMNS + HASH_COLUMNS)
        return self.strategy is Strategy.APPEND and not has_block

    @property
    def is_state(self) -> bool:
        """Whether its rows say how things stand at the watermark, not what a block brought.

        Such a dataset cannot be read by span: it is what it is at its own ref.
        """
        return self.strategy is Strategy.MERGE or self.mode is Mode.FULL

    @property
    def awaited(self) -> tuple[str, ...]:
        """The datasets that must be there before a run: its inputs, and what checks look into."""
        looked = [c.condition.dataset for c in self.checks if isinstance(c.condition, Relation)]
        return tuple(dict.fromkeys([*self.inputs, *looked]))

    @property
    def is_planned(self) -> bool:
        """Whether there are runs of it."""
        return not (self.is_source or self.is_compaction) and self.unavailable is None

    def where(self, key: str = "") -> str:
        """Where a key of it was written, or the job as a whole."""
        return self.origins.get(key) or self.origins.get("", "configuration")


def missing_columns(spec: JobSpec, returned: Mapping[str, str]) -> tuple[str, ...]:
    """What is wrong with the columns a transform returns (name to type), a sentence each.

    Called by whoever can ask Spark for the schema of a transform without running it.
    """
    problems = []
    for key, column, why in _needed(spec):
        if column not in returned:
            known = ", ".join(sorted(returned)) or "none"
            problems.append(
                f"{spec.where(key)}: job `{spec.name}` does not return the column `{column}`, "
                f"{why}; it returns {known}"
            )
    return tuple(problems)


def _needed(spec: JobSpec) -> list[tuple[str, str, str]]:
    """Every column a job must return: the key that asks for it, its name and why."""
    needed = [("unique_key", column, "which is in its unique_key") for column in spec.unique_key]
    needed += [("merge", column, "which has a merge rule") for column in spec.rules]
    if spec.mode is Mode.CURSOR:
        needed.append(("", "block_number", "which says to which block a row belongs"))
        if spec.strategy is not Strategy.MERGE:
            needed.append(("", "block_hash", "which says to which fork a row belongs"))
    match spec.partitioning:
        case ByBlocks():
            why = "which says to which partition a row belongs"
            needed.append(("incremental", "block_number", why))
        case ByDay(column):
            needed.append(("incremental", column, "which says to which day a row belongs"))
    return needed
