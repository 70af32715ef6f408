"""Owns the report of a verification: counts per check, and the damaged blocks by name.

The report is bounded however much is damaged: past the limits blocks are counted, not named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.proof.columns import COVERED, UNCOMMITTED
from unfork.proof.finding import Check, Finding, Outcome

#: Damaged blocks that are named with their findings.
DAMAGED_MAX = 100
#: Spans of damaged blocks that are kept apart.
SPANS_MAX = 1000

_DATASETS = tuple(sorted({name.partition(".")[0] for part in COVERED.values() for name in part}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many blocks a check proved, failed and could not prove."""

    proven: int = 0
    failed: int = 0
    unproven: int = 0
    #: The first reason why a block could not be proven, with its number; None where all could.
    unproven_first: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unproven:
    """A column that was not proven in some blocks: a value changed there may have gone unseen."""

    #: How many blocks.
    blocks: int
    #: The first of them.
    number: int
    #: Why it could not be proven there.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A block that failed at least one check."""

    ref: BlockRef
    #: The findings that failed.
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a verification found."""

    chain: str
    #: The blocks that were looked at, None where nothing is stored.
    span: Span | None
    #: How many blocks of the span are stored.
    blocks: int
    #: Every check that was made at least once.
    checks: dict[Check, Counts]
    #: The first damaged blocks, ascending.
    damaged: tuple[Damage, ...]
    #: How many blocks are damaged, named or not.
    damaged_count: int
    #: Where the damage lies, missing blocks included, as the fewest spans.
    damaged_spans: tuple[Span, ...]
    #: What is wrong with the store as a whole rather than with one block.
    problems: tuple[Finding, ...] = ()
    #: The columns that were not proven everywhere, as "dataset.column"; all others were.
    unproven_columns: Mapping[str, Unproven] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts; what is unproven does not count against it."""
        return not self.damaged_count and not self.problems

    @property
    def proven(self) -> bool:
        """Whether every check of every block held, but for what no block commits to.

        Such columns are among `unproven_columns`: about them nothing was claimed either.
        """
        return self.ok and not any(
            counts.unproven for check, counts in self.checks.items() if check not in UNCOMMITTED
        )

    def document(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {
            "chain": self.chain,
            "ok": self.ok,
            "span": None if self.span is None else [self.span.first, self.span.last],
            "blocks": self.blocks,
            "checks": {check.value: _counts(found) for check, found in self.checks.items()},
            "unproven_columns": {
                name: {"blocks": part.blocks, "number": part.number, "reason": part.reason}
                for name, part in self.unproven_columns.items()
            },
            "damaged_count": self.damaged_count,
            "damaged_spans": [[part.first, part.last] for part in self.damaged_spans],
            "damaged": [
                {
                    "number": damage.ref.number,
                    "hash": "0x" + damage.ref.hash.hex(),
                    "findings": [finding.document() for finding in damage.findings],
                }
                for damage in self.damaged
            ],
            "problems": [finding.document() for finding in self.problems],
        }

    def lines(self) -> list[str]:
        """The report for people, one line per check, then what is damaged."""
        if self.span is None:
            return [f"{self.chain}: nothing is stored", *_shown(self.problems)]
        found = [f"{self.chain}: {self.blocks} blocks, {self.span}"]
        for check, counts in self.checks.items():
            line = f"  {check.value:20} proven {counts.proven:>8}  failed {counts.failed:>6}"
            line += f"  unproven {counts.unproven:>6}"
            if counts.unproven_first is not None:
                line += f"  (first at {counts.unproven_first[0]}: {counts.unproven_first[1]})"
            found.append(line)
        found.extend(_columns(self.unproven_columns))
        found.extend(_shown(self.problems))
        if self.damaged_count:
            where = ", ".join(str(part) for part in self.damaged_spans[:10])
            found.append(f"  damaged: {self.damaged_count} blocks in {where}")
        for damage in self.damaged[:20]:
            found.extend(f"  {damage.ref} {line.strip()}" for line in _shown(damage.findings))
        return found


class Tally:
    """Adds up findings, block by block, ascending."""

    def __init__(self) -> None:
        self.blocks = 0
        self.damaged_count = 0
        self._counts: dict[Check, list[int]] = {}
        #: How often the same checks were unproven together.
        self._unproven = Counter[tuple[Check, ...]]()
        #: The datasets that have rows.
        self._held: set[str] = set()
        self._unproven_first: dict[Check, tuple[int, str]] = {}
        self._damaged: dict[int, Damage] = {}
        self._spans: list[Span] = []

    def add(
        self, ref: BlockRef, findings: Iterable[Finding], held: Iterable[str] = _DATASETS
    ) -> None:
        """Counts one block; `held` are the datasets that have rows of it."""
        self.blocks += 1
        self._held.update(held)
        self._judge(ref, findings)

    def also(self, ref: BlockRef, finding: Finding) -> None:
        """Counts one more finding on a block that was added before."""
        self._judge(ref, (finding,))

    def missing(self, span: Span) -> None:
        """Marks blocks that are not stored at all as damage."""
        self._mark(span)

    def report(self, chain: str, span: Span | None, problems: Iterable[Finding] = ()) -> Report:
        """The report so far."""
        return Report(
            chain=chain,
            span=span,
            blocks=self.blocks,
            checks={
                check: Counts(
                    proven=counts[0],
                    failed=counts[1],
                    unproven=counts[2],
                    unproven_first=self._unproven_first.get(check),
                )
                for check, counts in self._counts.items()
            },
            damaged=tuple(self._damaged[number] for number in sorted(self._damaged)),
            damaged_count=self.damaged_count,
            damaged_spans=spans.merge(self._spans),
            problems=tuple(problems),
            unproven_columns=self._columns(),
        )

    def _columns(self) -> dict[str, Unproven]:
        blocks = Counter[str]()
        for checks, count in self._unproven.items():
            for column in {column for check in checks for column in COVERED.get(check, ())}:
                blocks[column] += count
        first: dict[str, tuple[int, str]] = {}
        for check, columns in COVERED.items():
            reason = self._unproven_first.get(check)
            for column in columns if reason is not None else ():
                assert reason is not None
                first[column] = min(first.get(column, reason), reason)
        return {
            column: Unproven(blocks=blocks[column], number=number, reason=reason)
            for column, (number, reason) in first.items()
            if column.partition(".")[0] in self._held
        }

    def _judge(self, ref: BlockRef, findings: Iterable[Finding]) -> None:
        wrong: list[Finding] = []
        doubts: list[Check] = []
        # Some 25 findings on every block: what is looked up once is not looked up for each.
        known, is_proven, is_failed = self._counts, Outcome.PROVEN, Outcome.FAILED
        for finding in findings:
            counts = known.get(finding.check)
            if counts is None:
                counts = known[finding.check] = [0, 0, 0]
            if finding.outcome is is_proven:
                counts[0] += 1
            elif finding.outcome is is_failed:
                counts[1] += 1
                wrong.append(finding)
            else:
                counts[2] += 1
                doubts.append(finding.check)
                self._unproven_first.setdefault(finding.check, (ref.number, finding.reason))
        if doubts:
            self._unproven[tuple(doubts)] += 1
        if wrong:
            self._damage(ref, tuple(wrong))

    def _damage(self, ref: BlockRef, findings: tuple[Finding, ...]) -> None:
        known = self._damaged.get(ref.number)
        if known is not None:
            self._damaged[ref.number] = Damage(ref=ref, findings=known.findings + findings)
            return
        here = Span(ref.number, ref.number)
        # A block may be judged twice (with a source at the end); it is damaged once.
        if not any(ref.number in part for part in self._spans):
            self.damaged_count += 1
        self._mark(here)
        if len(self._damaged) < DAMAGED_MAX:
            self._damaged[ref.number] = Damage(ref=ref, findings=findings)

    def _mark(self, span: Span) -> None:
        if self._spans and self._spans[-1].touches(span):
            self._spans[-1] = spans.merge((self._spans[-1], span))[0]
        elif len(self._spans) < SPANS_MAX:
            self._spans.append(span)


def _counts(counts: Counts) -> dict[str, Any]:
    first = counts.unproven_first
    return {
        "proven": counts.proven,
        "failed": counts.failed,
        "unproven": counts.unproven,
        "unproven_first": None if first is None else {"number": first[0], "reason": first[1]},
    }


def _columns(unproven: Mapping[str, Unproven]) -> list[str]:
    """One line for all columns that are unproven for the same reason in the same blocks."""
    alike: dict[Unproven, list[str]] = {}
    for name, part in unproven.items():
        alike.setdefault(part, []).append(name)
    return [
        f"  not proven in {part.blocks} blocks: {', '.join(names)} "
        f"(first at {part.number}: {part.reason})"
        for part, names in alike.items()
    ]


def _shown(findings: Iterable[Finding]) -> list[str]:
    found = []
    for finding in findings:
        line = f"  {finding.check.value}: {finding.reason}"
        if finding.expected is not None or finding.actual is not None:
            line += f" (expected {finding.expected}, got {finding.actual})"
        found.append(line)
    return found
