"""A worker for tests of derived data: claims, computes toy datasets in plain Python, commits.

Each phase can be called by itself, so that a test can let the chain move in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from tests import toy
from tests.places import Place
from unfork.app import invalidations, staging, versions
from unfork.app import schema as app_schema
from unfork.app.derived import WHOLE, DerivedDataset
from unfork.app.generations import Generation, Generations
from unfork.app.refs import Refs, Upstream
from unfork.app.staging import Attempt, Staged
from unfork.app.versions import PartitionRead
from unfork.chain.block import BlockRef
from unfork.chain.span import Span, aligned
from unfork.database import copy
from unfork.database.session import Probe
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Strategy
from unfork.jobs.commit import Commits
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.lease import Lease, Leases, Policy
from unfork.jobs.state import Kind
from unfork.jobs.verdict import Anchor, AsRead

CONFIG = "config-1"


@dataclass
class TestTime:
    """Time as a test wants it."""

    __test__ = False

    now: datetime = datetime(2024, 6, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@dataclass
class Worker:
    """The app side of a place, and one worker of it."""

    place: Place
    upstream: Upstream
    name: str = "worker-1"
    time: TestTime = field(default_factory=TestTime)
    probe: Probe | None = None
    policy: Policy = field(default_factory=Policy)

    def __post_init__(self) -> None:
        database = self.place.app_database(probe=self.probe)
        chain = self.place.name
        self.database = database
        self.queries = app_schema.bound(chain)
        self.refs = Refs(chain, database, self.upstream)
        self.generations = Generations(chain, database, lock_timeout_ms=5000)
        self.leases = Leases(chain, database, policy=self.policy, now=self.time)
        self.commits = Commits(chain, database, now=self.time)

    async def register(
        self, *datasets: DerivedDataset, first: int = 1, config_hash: str = CONFIG
    ) -> list[Generation]:
        return [
            await self.generations.register(dataset, config_hash=config_hash, first=first)
            for dataset in datasets
        ]

    async def follow(self) -> None:
        """Applies what happened to the chain, to the end."""
        while await self.refs.step() is not None:
            pass

    async def build(self, dataset: DerivedDataset, state: str = "served") -> Generation:
        every = await self.generations.all()
        return next(b for b in every if b.dataset.name == dataset.name and b.state == state)

    async def claim(
        self, build: Generation, span: Span, *, kind: Kind = Kind.LIVE, config_hash: str = CONFIG
    ) -> Lease | None:
        return await self.leases.claim(
            build, span, kind=kind, worker=self.name, config_hash=config_hash
        )

    async def compute(
        self,
        build: Generation,
        lease: Lease,
        blocks: Sequence[BlockRef],
        *,
        parent: BlockRef | None,
        rows: Sequence[dict[str, Any]] | None = None,
        contents: toy.Contents = toy.transfers,
        earlier: Sequence[BlockRef] = (),
        as_read: AsRead | None = None,
        seen: Sequence[int] = (),
        partitions: tuple[PartitionRead, ...] = (),
        config_hash: str = CONFIG,
    ) -> Finished:
        """A run that has read these blocks, with the refs as they are now unless told."""
        dataset = build.dataset
        if rows is None:
            rows = toy.computed(dataset, blocks, contents, earlier=earlier)
        if as_read is None:
            chain = await self.refs.state()
            as_read = AsRead(epoch=chain.epoch, floor=chain.floor.number if chain.floor else None)
        return Finished(
            build=build,
            lease=lease,
            anchor=Anchor(
                span=Span(blocks[0].number, blocks[-1].number),
                parent_hash=parent.hash if parent else None,
                last=blocks[-1],
            ),
            as_read=as_read,
            rows=toy.arrow(dataset, rows),
            partitions=partitions,
            config_hash=config_hash,
            invalidations=tuple(seen),
        )

    async def stage(self, run: Finished, *, tasks: int = 1, dead: bool = False) -> Finished:
        """The same run with its rows where its tasks left them; a dead attempt leaves some too."""
        assert isinstance(run.rows, pa.Table)
        build, token = run.build, run.lease.token
        async with self.database.session() as session:
            await staging.create(session, self.queries, build, token)
        attempts = []
        for task in range(tasks):
            share = run.rows.take(pa.array(range(task, run.rows.num_rows, tasks), pa.int64()))
            if dead:
                await self.put(build.dataset, token, share, task=task, attempt=10 + task)
            attempts.append(await self.put(build.dataset, token, share, task=task, attempt=task))
        return replace(run, rows=Staged(token=token, attempts=tuple(attempts)))

    async def put(
        self, dataset: DerivedDataset, token: int, rows: pa.Table, *, task: int, attempt: int
    ) -> Attempt:
        """What one attempt of a task does: it sends its rows and says how many."""
        for name, value in zip(staging.EXTRA, (task, attempt), strict=True):
            rows = rows.append_column(name, pa.array(np.full(rows.num_rows, value)))
        async with self.database.session() as session:
            query = staging.copy_query(self.queries, dataset, token)
            await session.copy(query, copy.encode(rows, staging.types(dataset)))
        return Attempt(task=task, attempt=attempt, rows=rows.num_rows)

    async def run(
        self,
        dataset: DerivedDataset,
        chain: Sequence[BlockRef],
        *,
        last: int | None = None,
        kind: Kind = Kind.LIVE,
        span: Span | None = None,
    ) -> Committed | Discarded | None:
        """Runs a job in mode cursor after its watermark, over the chain given; None for nothing."""
        build = await self.build(dataset)
        known = {ref.number: ref for ref in chain}
        if span is None:
            end = min(last if last is not None else 2**62, max(known, default=-1))
            if end < build.next:
                return None
            span = Span(build.next, end)
        lease = await self.claim(build, span, kind=kind)
        if lease is None:
            return None
        blocks = [known[number] for number in range(span.first, span.last + 1)]
        run = await self.compute(
            build,
            lease,
            blocks,
            parent=known.get(span.first - 1),
            earlier=[ref for ref in chain if ref.number < span.first],
            seen=await self.open_ids(build, span),
        )
        return await self.commits.commit(run)

    async def run_partitions(
        self, dataset: DerivedDataset, chain: Sequence[BlockRef]
    ) -> Committed | Discarded | None:
        """Computes every partition that is missing, outdated or behind, in one run."""
        build = await self.build(dataset)
        wanted = [part for part in partitions(dataset, chain) if await self._is_wanted(build, part)]
        if not wanted:
            return None
        span = Span(wanted[0].span.first, wanted[-1].span.last)
        lease = await self.claim(build, span, kind=Kind.RECOMPUTE)
        if lease is None:
            return None
        known = {ref.number: ref for ref in chain}
        blocks = [
            known[number]
            for part in wanted
            for number in range(part.span.first, part.span.last + 1)
        ]
        run = await self.compute(
            build,
            lease,
            blocks,
            parent=known.get(span.first - 1),
            partitions=() if dataset.mode is Mode.FULL else tuple(wanted),
            seen=await self.open_ids(build, span),
        )
        return await self.commits.commit(run)

    async def _is_wanted(self, build: Generation, part: PartitionRead) -> bool:
        async with self.database.session() as session:
            found = await versions.current(session, self.queries)
        for version in found:
            if version.generation_id == build.id and version.key == part.key:
                return not version.is_valid or version.last != part.last
        return True

    async def open_ids(self, build: Generation, span: Span) -> list[int]:
        """The invalidations that a run over a span is planned with."""
        return [one.id for one in await self.unprocessed() if one.generation_id == build.id]

    async def unprocessed(self) -> list[invalidations.Outdated]:
        async with self.database.session() as session:
            return await invalidations.unprocessed(session, self.queries)

    async def held(self, dataset: DerivedDataset, *, text: str = "") -> list[dict[str, Any]]:
        """What is read under the dataset's name, as plain values; orphaned rows left out."""
        rows = await self.place.app_rows(f'SELECT * FROM {{app}}."{dataset.name}" {text}')
        if dataset.strategy is Strategy.APPEND:
            rows = [row for row in rows if not row.pop("is_orphaned")]
        return toy.plain(rows)


def partitions(dataset: DerivedDataset, chain: Sequence[BlockRef]) -> list[PartitionRead]:
    """The partitions of a chain as a run reads them now."""
    known = {ref.number: ref for ref in chain}
    groups: dict[str, list[BlockRef]] = {}
    for ref in chain:
        match dataset.partitioning:
            case ByBlocks(size):
                bounds = aligned(ref.number, size)
                key = f"{bounds.first}-{bounds.last}"
            case ByDay():
                key = toy.time(ref).date().isoformat()
            case None:
                key = WHOLE
        groups.setdefault(key, []).append(ref)
    found = []
    for key, blocks in groups.items():
        parent = known.get(blocks[0].number - 1)
        found.append(
            PartitionRead(
                key=key,
                span=Span(blocks[0].number, blocks[-1].number),
                parent_hash=parent.hash if parent else None,
                last=blocks[-1],
            )
        )
    return found


def committed(outcome: Committed | Discarded | None) -> Committed:
    """The outcome, which must be a commit."""
    assert isinstance(outcome, Committed), outcome
    return outcome


def with_token(lease: Lease, token: int) -> Lease:
    """The lease as somebody would have it who guesses."""
    return replace(lease, token=token)
