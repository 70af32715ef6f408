"""Owns what a plan consists of: runs, the steps before them, and why the others do not run.

A plan is data. The dispatcher takes its steps and claims its runs, `unfork plan` prints them; both
read the same values, so what is shown is what happens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode, Strategy
from unfork.jobs.state import Kind


class Reason(StrEnum):
    """Why a run is planned."""

    NEW_DATA = "new_data"
    INVALIDATION = "invalidation"
    BACKFILL = "backfill"
    CHANGED_CONFIG = "changed_config"


class Action(StrEnum):
    """What the commit of a run does with its rows."""

    #: Adds them after the watermark: the parent of the first block is the watermark.
    EXTEND = "extend"
    #: Adds them ahead of the watermark, which moves once the gap is closed.
    FILL = "fill"
    #: Puts them in the place of what is there: a span, a partition, or all of it.
    REPLACE = "replace"
    #: Undoes everything from the first block on, then adds them.
    REPLAY = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One computation: read the inputs over a span at one ref, write the output."""

    job: str
    dataset: str
    #: The build it writes; None where a step of the same plan makes it.
    generation: int | None
    mode: Mode
    strategy: Strategy
    action: Action
    kind: Kind
    span: Span
    #: Key of the partition, in mode partition.
    partition: str | None
    #: The block before the span where it is known; None below the refs and at the very first block.
    parent: BlockRef | None
    #: The last block of the span, which its inputs must contain; None below the refs.
    last: BlockRef | None
    reason: Reason
    #: The open rows (Outdated.id) that it settles.
    outdated: tuple[int, ...]
    config_hash: str
    #: What its lease carries (Fingerprint.trial).
    trial: str
    #: Rows it will write, about; None where nothing is known to guess by.
    rows_expected: int | None
    #: The failed lease to take over, None to insert one.
    lease: int | None
    #: How often that failed.
    attempt: int
    #: Why, for people.
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """Make the job, its first build and its table."""

    job: str
    dataset: str
    first: int
    config_hash: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """Begin a build beside the served one, in the place of an unfinished one."""

    job: str
    dataset: str
    first: int
    config_hash: str
    #: The unfinished build that can no longer be mended; None where it is another one, or none.
    broken: int | None = None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """Serve the build, retire the other."""

    job: str
    dataset: str
    #: The build to serve.
    generation: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandon:
    """Give up a build that nobody wants any more."""

    job: str
    dataset: str
    generation: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GoOn:
    """Let a build go on with the job's new configuration."""

    job: str
    dataset: str
    generation: int
    config_hash: str
    #: The first block that is computed with it.
    boundary: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """Remove leases that stand for something nobody wants any more."""

    job: str
    dataset: str
    generation: int
    leases: tuple[int, ...]
    why: str


Step = Register | Build | Swap | Abandon | GoOn | Forget


class Cause(StrEnum):
    """Why a job has nothing to run, or not all of it."""

    #: It includes everything its inputs have.
    CURRENT = "current"
    PAUSED = "paused"
    #: This release, or this chain's scope, does not have what it takes.
    UNAVAILABLE = "unavailable"
    #: Its inputs do not cover what it needs yet.
    WAITING = "waiting"
    #: Somebody computes it now.
    BUSY = "busy"
    #: It failed and is tried again later.
    BACKOFF = "backoff"
    #: It failed too often; a person or a new configuration releases it.
    POISONED = "poisoned"
    #: It ran less than min_interval ago.
    INTERVAL = "interval"
    #: Its code or settings changed, and it may not go on by itself.
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Why something of a job does not run now."""

    job: str
    cause: Cause
    #: The blocks it is about, None where it is about all.
    span: Span | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """Blocks of a served dataset that were computed with another configuration."""

    job: str
    dataset: str
    spans: tuple[Span, ...]
    #: The first block that is not stale after them; None where the job stopped.
    boundary: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """All there is to do for one build, planned in this plan or later."""

    job: str
    generation: int | None
    runs: int
    blocks: int
    #: About; None where nothing is known to guess by.
    rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do next, in order; steps come before runs, and a plan with steps is made again."""

    steps: tuple[Step, ...]
    runs: tuple[Run, ...]
    idle: tuple[Idle, ...]
    stale: tuple[Stale, ...]
    totals: tuple[Total, ...]
