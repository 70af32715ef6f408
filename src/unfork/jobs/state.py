"""Owns what the planner looks at: the chain, the builds of datasets and the work around them.

One value, taken at one moment, holds all of it. Whoever plans sees no database, no clock and no
chain but this, so that the same state always gives the same plan.

Invariants: refs are contiguous from the floor to the head; versions of a build are ascending and do
not overlap; a dataset has at most one served build and one that is building.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from unfork.chain.advance import Day
from unfork.chain.block import BlockRef
from unfork.chain.span import Span

#: What separates the two hashes that a lease carries.
CHECKED = "+"


class Kind(StrEnum):
    """What a lease stands for."""

    #: Blocks at the head that come to be covered; one open a build.
    LIVE = "live"
    #: Blocks of history that come to be covered.
    BACKFILL = "backfill"
    #: Blocks that are covered already, done again.
    RECOMPUTE = "recompute"


class Status(StrEnum):
    """How a lease stands."""

    ACTIVE = "ACTIVE"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A part of a build that was computed: a partition, or blocks of a cursor job."""

    #: The partition's key.
    key: str
    #: Lowest block it was computed from.
    first: int
    #: Highest block it was computed from.
    last: int
    #: Hash of that block; None where it was final already.
    last_hash: bytes | None
    #: What it was computed with.
    config_hash: str
    #: False once a block or a row it was computed from is no longer what it was.
    is_valid: bool
    rows: int | None
    #: When it was published.
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One build of a dataset."""

    id: int
    dataset: str
    #: Its place among the builds of the dataset, from 1.
    number: int
    #: The first block it is computed from.
    first: int
    config_hash: str
    schema_hash: str
    #: Whether it is read under the dataset's name; else it is being built beside that one.
    is_served: bool
    #: The last block up to which it is complete; None while nothing is.
    watermark: BlockRef | None
    #: Changes of blocks at or below this cannot be undone; None where all can.
    history_floor: int | None = None
    #: Its current versions, ascending.
    versions: tuple[Version, ...] = ()

    @property
    def next(self) -> int:
        """The first block that it does not include yet."""
        return self.first if self.watermark is None else self.watermark.number + 1

    @property
    def is_empty(self) -> bool:
        """Whether nothing was computed into it."""
        return self.watermark is None and not self.versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """Blocks that one build has to do again, or for the first time after a fork."""

    #: Names the row; a run that was planned with it marks what it has done of it.
    id: int
    #: The build's id.
    generation: int
    span: Span
    #: Why: reorg, correction, manual or schema_change.
    reason: str
    #: The dataset that something happened to.
    dataset: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A span that somebody computes, or did."""

    id: int
    #: The build's id.
    generation: int
    kind: Kind
    span: Span
    status: Status
    #: How often it failed.
    attempt: int
    #: When a failed one may be claimed again.
    not_before: datetime | None
    #: What it was tried with last (Fingerprint.trial).
    config_hash: str
    #: Of a completed one: the hash of its last block.
    last_hash: bytes | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What a job would compute with now."""

    config_hash: str
    #: None where nobody asked Spark: then only the configuration is compared.
    schema_hash: str | None = None
    #: What the rows must fulfil to be published; empty for nothing.
    checks_hash: str = ""

    @property
    def trial(self) -> str:
        """What blocks are tried with: whoever failed with another one may be tried again."""
        return (
            f"{self.config_hash}{CHECKED}{self.checks_hash}"
            if self.checks_hash
            else self.config_hash
        )


def config_of(trial: str) -> str:
    """The configuration that blocks were tried with, whatever the checks were."""
    return trial.partition(CHECKED)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Everything a plan depends on, for one chain, at one moment."""

    now: datetime
    #: The first block of the chain that there is; None while there is none.
    first: int | None
    #: The last block that the app side knows, which raw datasets include; None while there is none.
    head: BlockRef | None
    floor: BlockRef | None
    #: The blocks of the chain from the floor to the head, ascending.
    refs: tuple[BlockRef, ...]
    #: The UTC days of the chain, ascending.
    days: tuple[Day, ...] = ()
    #: The raw datasets that this chain's scope fetches.
    held: frozenset[str] = frozenset()
    #: Whether there is a node whose contracts can be read.
    has_calls: bool = True
    #: Builds that are served or being built.
    generations: tuple[Generation, ...] = ()
    outdated: tuple[Outdated, ...] = ()
    leases: tuple[Lease, ...] = ()
    #: Names of the jobs that a person paused.
    paused: frozenset[str] = frozenset()
    #: By job.
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)
