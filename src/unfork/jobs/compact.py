"""Owns compaction: what is final and complete goes from the hot tables into the lake.

It looks by itself, a partition at a time, the lowest blocks first; the version that it claims is
its lease, so any number of workers may do the same. Only whole partitions at or below the floor are
taken, and only so deep below the head as the threshold says.

Invariants:
- Rows are read at one epoch, at or below the floor: whoever reads later reads the same. The epoch
  and the ends of the partition are looked at before and after.
- What lies in the files is what the hot table holds: rows are counted on both sides.
- A partition whose parent is not the last block of the partition below it is never published: a
  fork came after that was compacted, and only `unfork lake repair` goes on (I5).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from unfork import errors, telemetry
from unfork.app import indexing_errors
from unfork.app import schema as app_schema
from unfork.app.refs import Refs
from unfork.app.state import Follower
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.config import tree
from unfork.database.database import Database
from unfork.datasets.dataset import Dataset
from unfork.hot import pins
from unfork.hot import schema as raw_schema
from unfork.jobs import session, thread
from unfork.jobs.builtin import COMPACTION
from unfork.jobs.compaction import Settings
from unfork.jobs.spark import failures, options, raw_reading
from unfork.jobs.spark.place import Place
from unfork.lake import files, layout, links, lookup, publish
from unfork.lake.file import File
from unfork.lake.storage import Storage
from unfork.lake.versions import Claim, Lost, Target, Version, Versions, Written

log = telemetry.logger(__name__)

#: Seconds between two looks while nothing happens.
LOOK_S = 5.0
#: Seconds before a dataset that failed is tried again, at first and at most.
BACKOFF_S, BACKOFF_S_MAX = 5.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """A partition that came into the lake."""

    dataset: str
    span: Span
    version: Version
    #: From the claim to the end.
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """The chain around a partition, as the raw store has it."""

    first_hash: bytes
    parent_hash: bytes | None
    last: BlockRef
    epoch: int
    floor: int
    rows: int
    #: What was asked of the source for its blocks.
    scopes: tuple[str, ...]


class Compaction:
    """Compacts one chain."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        settings: Settings,
        *,
        raw: Database,
        app: Database,
        refs: Refs,
        versions: Versions,
        worker: str,
        config: str | None,
        listener: Callable[[Compacted], None] = lambda compacted: None,
    ) -> None:
        """`config` is the path by which tasks find the configuration, None for their own."""
        self._spark = spark
        self._place = place
        self._settings = settings
        self._raw = raw
        self._app = app
        self._refs = refs
        self._versions = versions
        self._storage = Storage.of(place.config)
        self._worker = worker
        self._config = config
        self._listener = listener
        known = {one.name: one for one in raw_schema.datasets(place.chain.family)}
        names = settings.datasets or _of_scope(place)
        self._datasets = {name: known[name] for name in names}
        #: When a dataset that failed may be tried again, and the pause after its next failure.
        self._put_off: dict[str, tuple[float, float]] = {}
        #: Whether the last look found nothing to do.
        self.rests = False

    async def work(self, stopping: asyncio.Event) -> None:
        """Compacts until it is told to stop; raises SparkUnavailable."""
        while not stopping.is_set():
            try:
                if await self.step() is not None:
                    continue
            except errors.SparkUnavailable:
                raise
            except errors.Retryable as error:
                telemetry.event(log, "compaction_waits", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stopping.wait()

    async def step(self) -> Compacted | None:
        """Compacts the lowest partition that is due; None where none is, or others have them."""
        state = await self._refs.state()
        for dataset, target, below in await self._due(state):
            compacted = await self._compact(dataset, target, below)
            if compacted is not None:
                self.rests = False
                self._listener(compacted)
                return compacted
        self.rests = True
        return None

    async def _due(self, state: Follower) -> list[tuple[Dataset, Target, BlockRef | None]]:
        """The next partition of each dataset, with the block below it, the lowest first."""
        if state.first is None or state.position is None or state.floor is None:
            return []
        limit = min(state.floor.number, state.position.number - self._settings.finality_threshold)
        ends = await self._versions.ends(state.first)
        found = []
        for name, dataset in self._datasets.items():
            end = ends.get(name)
            below = end.last if end is not None else None
            first = state.first if below is None else below.number + 1
            span = layout.following(first, self._place.config.lake.partition_blocks)
            if end is not None and end.next_first is not None:
                span = Span(first, min(span.last, end.next_first - 1))
            until, _ = self._put_off.get(name, (0.0, 0.0))
            if span.last <= limit and until <= time.monotonic():
                found.append((dataset, _target(self._place.chain, dataset, span), below))
        return sorted(found, key=lambda due: due[1].span.first)

    async def _compact(
        self, dataset: Dataset, target: Target, below: BlockRef | None
    ) -> Compacted | None:
        started, span = time.monotonic(), target.span
        lease_s = self._place.config.work.lease_s
        try:
            async with self._pinned(span):
                outcome = await publish.publish(
                    self._versions,
                    target,
                    lambda claim: self._write(dataset, claim, below),
                    worker=self._worker,
                    lease_s=lease_s,
                    in_thread=thread.run,
                )
        except asyncio.CancelledError:
            await self._interrupt(dataset.name)
            raise
        except errors.Retryable:
            raise
        except errors.UnforkError as error:
            await self._failed(dataset.name, span, error)
            return None
        if isinstance(outcome, Lost):
            telemetry.event(log, "compaction_lost", dataset=dataset.name, why=outcome.why)
            return None
        await self._succeeded(dataset.name, span)
        return Compacted(
            dataset=dataset.name,
            span=span,
            version=outcome,
            seconds=time.monotonic() - started,
        )

    def _pinned(self, span: Span) -> Any:
        """Keeps the hot partitions that are read."""
        return pins.held(
            self._raw,
            raw_schema.bound(self._place.chain.name),
            holder=f"{self._worker}/{COMPACTION}",
            first=span.first,
            keep_s=self._place.config.work.run_max_s,
        )

    def _write(self, dataset: Dataset, claim: Claim, below: BlockRef | None) -> Written:
        """Writes and measures a version; blocks."""
        span = claim.target.span
        try:
            with session.running(self._spark, pool="history", tag=_tag(dataset.name)):
                look = self._look(dataset, span)
                _require_link(dataset, span, look, below)
                frame = self._frame(dataset, span, look)
                url = self._storage.url(claim.location)
                files.write(frame, url, key=dataset.key)
                found = files.measure(
                    self._spark,
                    self._storage,
                    claim.location,
                    frame.schema,
                    number=dataset.number_column,
                )
                self._require_rows(dataset, span, look, found)
                lookups = lookup.write(self._spark, self._storage, claim.location, dataset, found)
                if dataset.name == "blocks":
                    self._require_chain(claim, found)
                if self._look(dataset, span) != look:
                    raise errors.BlockReplaced(
                        f"{self._place.chain.name} has changed below its floor while {span} of "
                        f"{dataset.name} was compacted; it is compacted again"
                    )
        except errors.UnforkError:
            raise
        except Exception as error:
            raise _translated(error) from error
        return Written(
            files=found,
            lookups=lookups,
            first_hash=look.first_hash,
            parent_hash=look.parent_hash,
            last=look.last,
            epoch=look.epoch,
        )

    def _frame(self, dataset: Dataset, span: Span, look: _Look) -> DataFrame:
        """The rows of the hot table, payloads whole."""
        given = {
            "dataset": dataset.name,
            "chain": self._place.chain.name,
            "first": str(span.first),
            "last": str(span.last),
            "at": options.text(look.last),
            "floor": str(look.floor),
            "epoch": str(look.epoch),
            "store": "hot",
        }
        if self._config is not None:
            given["config"] = self._config
        return self._spark.read.format("unfork").options(**given).load()

    def _look(self, dataset: Dataset, span: Span) -> _Look:
        """The chain around the partition, in one state; raises BlockReplaced, ConfigInvalid."""
        place = self._place
        count = place.queries.of(
            "lake_count",
            dataset.name,
            table=dataset.name,
            number=dataset.number_column,
            first=span.first,
            last=span.last,
        )
        with place.raw() as connection, connection.one_state():
            ends = connection.row(place.queries["read_ends"], span.first, span.last)
            counted = connection.row(count)
            scopes = connection.table(place.queries["read_scopes"], span.first, span.last)
            if ends is not None:
                raw_reading.require_scope(connection, place, dataset, span, ends["first_number"])
        assert counted is not None
        is_there = ends is not None and ends["hash"] is not None and ends["first_hash"] is not None
        if ends is None or not is_there or (ends["floor_number"] or -1) < span.last:
            raise raw_reading.replaced(BlockRef(span.last, b""), None, place)
        return _Look(
            first_hash=ends["first_hash"],
            # What lies before the first block of the store is not known to anybody here.
            parent_hash=None if span.first == 0 else ends["parent_hash"],
            last=BlockRef(span.last, ends["hash"]),
            epoch=ends["epoch"],
            floor=ends["floor_number"],
            rows=counted["row_count"],
            scopes=tuple(sorted(row["scope"] for row in scopes.to_pylist())),
        )

    def _require_rows(
        self, dataset: Dataset, span: Span, look: _Look, found: tuple[File, ...]
    ) -> None:
        """Raises JobFailed unless the files hold as many rows as the hot table, and whole spans."""
        rows = sum(file.rows for file in found)
        is_whole = dataset.name != "blocks" or rows == len(span)
        if rows != look.rows or not is_whole:
            raise errors.JobFailed(
                f"{rows:,} rows of {dataset.name} were written for blocks {span}, where the hot "
                f"table holds {look.rows:,}; nothing was published",
                job=COMPACTION,
            )

    def _require_chain(self, claim: Claim, found: tuple[File, ...]) -> None:
        """Raises LakeUnlinked unless each block in the files names the one below as its parent."""
        urls = [self._storage.url(f"{claim.location}/{file.name}") for file in found]
        broken = links.first_broken(self._spark, urls)
        if broken is not None:
            raise errors.LakeUnlinked(
                f"block {broken} does not name the block below it as its parent; `unfork verify` "
                "tells more; nothing was published",
                span=str(claim.target.span),
            )

    async def _failed(self, dataset: str, span: Span, error: errors.UnforkError) -> None:
        """Records a failure, and lets the dataset rest for a while."""
        _, pause_s = self._put_off.get(dataset, (0.0, BACKOFF_S))
        self._put_off[dataset] = (time.monotonic() + pause_s, min(2 * pause_s, BACKOFF_S_MAX))
        telemetry.event(log, "compaction_failed", dataset=dataset, span=span, error=str(error))
        is_fatal = isinstance(error, errors.Inconsistent)
        async with self._app.session() as connected:
            await indexing_errors.record(
                connected,
                app_schema.bound(self._place.chain.name),
                worker_name=f"{COMPACTION}:{dataset}",
                block_number=span.first,
                severity="FATAL" if is_fatal else "WARN",
                message=f"blocks {span} of {dataset}: {error.message}",
            )

    async def _succeeded(self, dataset: str, span: Span) -> None:
        self._put_off.pop(dataset, None)
        async with self._app.session() as connected:
            await connected.run(
                app_schema.bound(self._place.chain.name)["errors_resolve"],
                worker_name=f"{COMPACTION}:{dataset}",
                first=span.first,
                last=span.last,
            )

    async def _interrupt(self, dataset: str) -> None:
        with suppress(Exception):
            await thread.run(lambda: self._spark.interruptTag(_tag(dataset)))


def _config_hash(chain: tree.Chain) -> str:
    """A short stable name of what files are made with: their format, and what is fetched."""
    text = json.dumps([layout.FORMAT, chain.scope.model_dump(mode="json"), chain.traces])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _target(chain: tree.Chain, dataset: Dataset, span: Span) -> Target:
    return Target(
        dataset=dataset.name,
        key=layout.key(span),
        span=span,
        config_hash=_config_hash(chain),
        schema_hash=layout.schema_hash(dataset),
    )


def _of_scope(place: Place) -> tuple[str, ...]:
    """The datasets that the configuration asks for."""
    chain = place.chain
    if chain.scope.kind == "logs":
        return ("blocks", "logs")
    whole = ("blocks", "transactions", "logs", "withdrawals")
    return (*whole, "traces") if chain.traces else whole


def _require_link(dataset: Dataset, span: Span, look: _Look, below: BlockRef | None) -> None:
    """Raises LakeUnlinked where the chain below the partition is not the one in the lake."""
    if below is None or below.hash == look.parent_hash:
        return
    raise errors.LakeUnlinked(
        f"the lake holds {dataset.name} up to block {below}, where the chain has another block: a "
        f"fork came after it was compacted; blocks {span} are not; `unfork lake repair` puts it "
        "right",
        dataset=dataset.name,
        span=str(span),
    )


def _tag(dataset: str) -> str:
    return f"unfork-{COMPACTION}-{dataset}"


def _translated(error: Exception) -> errors.UnforkError:
    """What went wrong while Spark worked."""
    found = failures.typed(error)
    if found is not None:
        return found
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return errors.SparkUnavailable(f"Spark went away: {text}")
    return errors.JobFailed(f"job `{COMPACTION}` failed: {text}", job=COMPACTION)
