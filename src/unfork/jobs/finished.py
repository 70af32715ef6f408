"""Owns the finished run: what a run hands over to be committed, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from unfork.app.derived import WHOLE
from unfork.app.generations import Generation
from unfork.app.refused import NOTHING, Refused
from unfork.app.staging import Staged
from unfork.app.versions import PartitionRead
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.jobs.lease import Lease
from unfork.jobs.verdict import Anchor, AsRead, Why


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A run that has computed its rows."""

    build: Generation
    lease: Lease
    #: The blocks it has read, and what ties them to the chain.
    anchor: Anchor
    as_read: AsRead
    #: Its rows: Arrow where the driver has them, else where its tasks staged them.
    rows: pa.Table | Staged
    #: The rows that it could not make, which are told instead.
    refused: Refused = NOTHING
    #: Whether it may refuse any, so that there may be some to close.
    may_refuse: bool = False
    #: What checks that only warn have found; None where the job has no checks.
    warnings: tuple[str, ...] | None = None
    #: The partitions it has computed, in mode partition alone.
    partitions: tuple[PartitionRead, ...] = ()
    config_hash: str
    #: Why it ran.
    reason: str = "new data"
    #: The rows of invalidation_spans that it was planned with.
    invalidations: tuple[int, ...] = ()
    started_at: datetime | None = None

    @property
    def parts(self) -> tuple[PartitionRead, ...]:
        """The partitions it has computed; one for everything in mode full."""
        if self.build.dataset.mode is not Mode.FULL:
            return self.partitions
        anchor = self.anchor
        whole = PartitionRead(
            key=WHOLE, span=anchor.span, parent_hash=anchor.parent_hash, last=anchor.last
        )
        return (whole,)

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """Everything that must be of the chain."""
        parts = (
            Anchor(span=part.span, parent_hash=part.parent_hash, last=part.last)
            for part in self.partitions
        )
        return (self.anchor, *parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The run is in."""

    #: Rows written.
    rows: int
    #: The dataset's watermark now.
    watermark: BlockRef | None
    #: The blocks whose rows are other ones than whoever read them has seen.
    changed: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Discarded:
    """The run is not in, and nothing of it is left; its blocks are free to be planned again."""

    why: Why
    detail: str
