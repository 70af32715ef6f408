"""Owns the work on one build: what its inputs allow, which leases are in the way, how a run looks.

The three modes differ in what they want computed; cursor.py, partitioned.py and whole.py each say
that for one of them. What they share is here: a lease that is active, resting or poisoned keeps its
blocks from being planned; a failed one that may be tried again is taken over as it is, so that its
attempts are counted; one that nobody wants any more is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.jobs.run import Action, Cause, Forget, Idle, Reason, Run, Step, Total
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import (
    Fingerprint,
    Generation,
    Kind,
    Lease,
    Outdated,
    Status,
    config_of,
)
from unfork.jobs.view import Readable, View

#: Failures after which a span waits for a person or for a new configuration.
ATTEMPTS_MAX = 5

#: A block number beyond every chain's.
NUMBER_MAX = 2**62

#: Versions that the guess of rows is made from.
VERSIONS_SEEN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How work is cut into runs."""

    #: Blocks in one run over history; runs begin at multiples of it.
    range_size: int = 50_000
    #: Blocks in one run at the head at most.
    live_blocks_max: int = 100
    #: Runs of one build in one plan at most.
    runs_max: int = 64

    def __post_init__(self) -> None:
        assert min(self.range_size, self.live_blocks_max, self.runs_max) >= 1


@dataclass(slots=True)
class Part:
    """What a plan says of one job."""

    steps: list[Step] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    idle: list[Idle] = field(default_factory=list)
    totals: list[Total] = field(default_factory=list)


class Work:
    """One build of one job, and what is planned for it."""

    def __init__(
        self,
        view: View,
        spec: JobSpec,
        generation: Generation,
        *,
        fingerprint: Fingerprint,
        limits: Limits,
        cause: tuple[Reason, str] | None = None,
    ) -> None:
        self.view = view
        self.spec = spec
        self.generation = generation
        self.fingerprint = fingerprint
        self.limits = limits
        #: Why the build is made, where it is not the served one.
        self.cause = cause
        self.part = Part()
        self.is_cursor = spec.mode is Mode.CURSOR
        self.outdated: list[Outdated] = view.outdated(generation.id)
        #: Blocks that somebody else has, or that must rest.
        self.blocked: list[Span] = []
        #: Blocks that are computed ahead of the watermark.
        self.done: list[Span] = []
        leases = view.leases(generation.id)
        #: Whether somebody has a lease of it now.
        self.is_busy: bool = any(lease.status is Status.ACTIVE for lease in leases)
        #: Whether the one live run that a build may have is taken.
        self.is_live: bool = any(
            lease.status is Status.ACTIVE and lease.kind is Kind.LIVE for lease in leases
        )
        self._rows_per_block = _rows_per_block(view, generation)

    def inputs(self) -> list[Readable] | None:
        """The inputs as far as they can be read, None (and said why) where one cannot at all."""
        found = []
        for name in self.spec.awaited:
            readable = self.view.readable(name)
            if readable is None or readable.last < self.generation.first:
                self.rest(Cause.WAITING, None, f"waits for `{name}`, of which nothing is there yet")
                return None
            found.append(_looked_up(readable) if name in self.spec.lookups else readable)
        return found

    def take_leases(
        self,
        is_wanted: Callable[[Lease], bool],
        action: Callable[[Lease], Action],
        partition: Callable[[Lease], str | None] = lambda lease: None,
    ) -> None:
        """Looks at every lease of the build: plans what can be tried again, notes what cannot.

        What is completed counts in mode cursor alone; elsewhere versions say what there is.
        """
        forgotten: list[int] = []
        for lease in self.view.leases(self.generation.id):
            if lease.status is Status.ACTIVE:
                self.blocked.append(lease.span)
            elif lease.status is Status.COMPLETED:
                is_ahead = lease.span.last >= self.generation.next
                if lease.kind is Kind.RECOMPUTE or (not is_ahead and self.is_cursor):
                    continue
                if self.is_cursor and self._is_still_good(lease):
                    self.done.append(lease.span)
                else:
                    forgotten.append(lease.id)
            elif is_wanted(lease):
                self._try_again(lease, action(lease), partition(lease))
            else:
                forgotten.append(lease.id)
        if forgotten:
            step = Forget(
                job=self.spec.name,
                dataset=self.spec.output,
                generation=self.generation.id,
                leases=tuple(forgotten),
                why="they stand for blocks that are no longer wanted as they are",
            )
            self.part.steps.append(step)

    def _is_still_good(self, lease: Lease) -> bool:
        """Whether what was computed ahead is what would be computed now."""
        return (
            config_of(lease.config_hash) == self.fingerprint.config_hash
            and self.view.is_canonical(lease.span.last, lease.last_hash)
            and not any(row.span.overlaps(lease.span) for row in self.outdated)
        )

    def _try_again(self, lease: Lease, action: Action, partition: str | None) -> None:
        self.blocked.append(lease.span)
        is_released = lease.config_hash != self.fingerprint.trial
        if not is_released and lease.attempt >= ATTEMPTS_MAX:
            why = f"failed {lease.attempt} times; `unfork jobs release {self.spec.name}` frees it"
            self.rest(Cause.POISONED, lease.span, why)
        elif not is_released and lease.not_before and lease.not_before > self.view.state.now:
            moment = lease.not_before.isoformat(timespec="seconds")
            why = f"failed {lease.attempt} times; tried again at {moment}"
            self.rest(Cause.BACKOFF, lease.span, why)
        elif lease.kind is Kind.LIVE and self.is_live:
            self.rest(Cause.BUSY, lease.span, "waits for the other live run")
        else:
            self.plan(
                lease.span,
                action=action,
                kind=lease.kind,
                partition=partition,
                lease=lease,
                attempt=0 if is_released else lease.attempt,
            )

    def plan(
        self,
        span: Span,
        *,
        action: Action,
        kind: Kind,
        partition: str | None = None,
        rows: int | None = None,
        lease: Lease | None = None,
        attempt: int = 0,
    ) -> None:
        """Adds a run over a span, with the reason that its blocks give."""
        self.is_live = self.is_live or kind is Kind.LIVE
        rows_ = [row for row in self.outdated if row.span.overlaps(span)]
        reason, why = self._reason(span, rows_, action)
        if attempt:
            why += f"; attempt {attempt + 1}"
        run = Run(
            job=self.spec.name,
            dataset=self.spec.output,
            generation=self.generation.id or None,
            mode=self.spec.mode,
            strategy=self.spec.strategy,
            action=action,
            kind=kind,
            span=span,
            partition=partition,
            parent=self.view.at(span.first - 1),
            last=self.view.at(span.last),
            reason=reason,
            outdated=tuple(row.id for row in rows_),
            config_hash=self.fingerprint.config_hash,
            trial=self.fingerprint.trial,
            rows_expected=self.guess(span) if rows is None else rows,
            lease=None if lease is None else lease.id,
            attempt=attempt,
            why=why,
        )
        self.part.runs.append(run)

    def count(self, pieces: Iterable[Span], *, runs: int) -> None:
        """Says how much there is to do in all, planned now or later."""
        pieces = list(pieces)
        if runs:
            guesses = [self.guess(span) for span in pieces]
            self.part.totals.append(
                Total(
                    job=self.spec.name,
                    generation=self.generation.id or None,
                    runs=runs,
                    blocks=sum(len(span) for span in pieces),
                    rows=None if None in guesses else sum(guess or 0 for guess in guesses),
                )
            )

    def rest(self, cause: Cause, span: Span | None, why: str) -> None:
        """Says why something does not run now."""
        self.part.idle.append(Idle(job=self.spec.name, cause=cause, span=span, why=why))

    def guess(self, span: Span) -> int | None:
        """Rows that a span will have, about."""
        known = self._rows_per_block
        return None if known is None else round(known * len(span))

    def _reason(self, span: Span, rows: list[Outdated], action: Action) -> tuple[Reason, str]:
        if rows:
            asked = [row for row in rows if row.reason == "manual"]
            if len(asked) == len(rows):
                return Reason.BACKFILL, "a person asked for it"
            names = ", ".join(sorted({f"{row.reason} of {row.dataset}" for row in rows}))
            return Reason.INVALIDATION, names
        if self.cause is not None:
            return self.cause
        versions = self.generation.versions
        is_new = bool(versions) and versions[-1].config_hash != self.fingerprint.config_hash
        if is_new and action is Action.EXTEND:
            return Reason.CHANGED_CONFIG, f"block {span.first} is the first with the new code"
        return Reason.NEW_DATA, "its inputs have more blocks"


def holes_of(inputs: Iterable[Readable]) -> tuple[Span, ...]:
    """Blocks that at least one input is to compute again first."""
    return spans.merge(hole for readable in inputs for hole in readable.holes)


def _looked_up(readable: Readable) -> Readable:
    """What can be read of a lookup: rows of every earlier block are, so none behind a hole can."""
    if not readable.holes:
        return readable
    return replace(readable, holes=(Span(readable.holes[0].first, max(readable.last, NUMBER_MAX)),))


def _rows_per_block(view: View, generation: Generation) -> float | None:
    """What the latest versions had, or those of the served build while this one is empty."""
    for built in (generation, view.served(generation.dataset)):
        seen = [v for v in (built.versions if built else ())[-VERSIONS_SEEN:] if v.rows is not None]
        if seen:
            blocks = sum(version.last - version.first + 1 for version in seen)
            return sum(version.rows or 0 for version in seen) / blocks
    return None
