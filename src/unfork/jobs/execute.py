"""Owns the execution of one run: read the inputs at one ref, compute, hand the rows over.

A run is about a span and ends at a block R, by hash. Every input is read in a state of its database
that holds R, so all of them are of one chain, whatever happens meanwhile; what was read is tied to
the chain by the parent of its first block and by R, and judged by them when it is committed.

A few blocks are read by the driver itself and handed to Spark as they are: that is done before
Spark would have made its tasks. More than that is read by Spark's own tasks, from one snapshot that
the run holds.

Few rows come back to the driver; many are staged by the tasks that made them. Nothing else is
written here: a run that dies leaves its lease, and perhaps a place in staging that is swept.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from unfork import errors
from unfork.app import refused, staging
from unfork.app import schema as app_schema
from unfork.app.generations import Generation
from unfork.app.refused import Refused
from unfork.app.staging import Staged
from unfork.app.versions import PartitionRead
from unfork.chain.block import BlockRef
from unfork.database.database import Database
from unfork.datasets.derivation import Mode
from unfork.jobs import judge, session
from unfork.jobs.answering import Answering
from unfork.jobs.around import Around
from unfork.jobs.calling import Caller
from unfork.jobs.declaration import Declarations
from unfork.jobs.finished import Finished
from unfork.jobs.inputs import LOCAL_BLOCKS_MAX, Inputs
from unfork.jobs.inputs import Moment as _Moment
from unfork.jobs.lease import Lease
from unfork.jobs.run import Run
from unfork.jobs.spark import (
    failures,
    joined,
    local,
    options,
    raw_reading,
    reading,
    schema,
    sink,
    snapshot,
)
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.place import Place
from unfork.jobs.spark.snapshot import Snapshots
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import Kind
from unfork.jobs.transform import NoTransform
from unfork.jobs.verdict import Anchor, AsRead

#: Rows that come back to the driver, at most about.
DRIVER_ROWS_MAX = 20_000

#: What Python says in a task that lacks a module.
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    """A run that is ours to do."""

    run: Run
    build: Generation
    lease: Lease


class InThread(Protocol):
    """Runs a blocking function where it may block."""

    def __call__(self, work: Callable[[], Finished]) -> Awaitable[Finished]:
        """What the function returns."""
        ...


class Executor:
    """Computes the runs of one chain's jobs."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        declarations: Declarations,
        *,
        raw: Database,
        app: Database,
        config: str | None,
        local_blocks_max: int = LOCAL_BLOCKS_MAX,
        caller: Caller | None = None,
    ) -> None:
        """`config` is the path by which tasks find the configuration, None for their own; `caller`
        is the node whose contracts are read, None where no job reads any.
        """
        self._spark = spark
        self._place = place
        self._declarations = declarations
        self._raw = raw
        self._app = app
        self._config = config
        self._local_blocks_max = local_blocks_max
        self._caller = caller

    async def execute(self, claimed: Claimed, in_thread: InThread) -> Finished:
        """The run with its rows; raises what kept it from them.

        A Retryable is no fault of the job: BlockReplaced and SnapshotLost ask for another plan.
        """
        started_at = datetime.now(UTC)
        if len(claimed.run.span) <= self._local_blocks_max:
            return await in_thread(lambda: self._compute(claimed, started_at, None))
        expected = claimed.run.rows_expected
        is_staged = expected is None or expected > DRIVER_ROWS_MAX
        if is_staged:
            await self._make_room(claimed)
        async with self._hold(claimed) as held:
            return await in_thread(
                lambda: self._compute(claimed, started_at, held, is_staged=is_staged)
            )

    def interrupt(self, lease: Lease) -> None:
        """Ends what Spark computes for a lease; safe where it computes nothing."""
        if self._caller is not None:
            self._caller.give_up(lease.token)
        self._spark.interruptTag(_tag(lease))

    async def _make_room(self, claimed: Claimed) -> None:
        """Makes the place where tasks put their rows."""
        queries = app_schema.bound(self._place.chain.name)
        async with self._app.session() as connected:
            await staging.create(connected, queries, claimed.build, claimed.lease.token)

    @asynccontextmanager
    async def _hold(self, claimed: Claimed) -> AsyncIterator[Snapshots]:
        """One state of each database that the run reads."""
        run, chain = claimed.run, self._place.chain.name
        given: dict[str, Any] = {
            "holder": f"{claimed.lease.worker}/{claimed.lease.token}",
            "first": run.span.first,
            "at": run.last,
            "max_s": float(self._place.config.spark.snapshot_max_s),
        }
        inputs = self._declarations.transforms[run.job].spec.awaited
        if any(self._declarations.is_derived(name) for name in inputs):
            async with snapshot.hold_both(self._raw, self._app, chain, **given) as both:
                yield both
        else:
            async with snapshot.hold(self._raw, chain, **given) as raw:
                yield Snapshots(raw=raw, app=None)

    def _compute(
        self,
        claimed: Claimed,
        started_at: datetime,
        held: Snapshots | None,
        *,
        is_staged: bool = False,
    ) -> Finished:
        run = claimed.run
        pool = "live" if run.kind is Kind.LIVE else "history"
        try:
            with session.running(self._spark, pool=pool, tag=_tag(claimed.lease)):
                moment = self._look(run, held)
                frame = self._frame(claimed, moment, held)
                rows: pa.Table | Staged
                warnings: tuple[str, ...] | None = None
                if self._declarations.transforms[run.job].spec.checks:
                    rows, refusals, warnings = self._checked(
                        claimed, moment, held, frame, is_staged=is_staged
                    )
                elif frame is None:
                    rows, refusals = claimed.build.dataset.schema.empty_table(), refused.NOTHING
                elif is_staged:
                    rows = self._staged(claimed, frame)
                    refusals = rows.refused
                else:
                    rows, refusals = refused.split(frame.toArrow())
        except errors.UnforkError:
            raise
        except Exception as error:
            raise _translated(error, run.job) from error
        return Finished(
            build=claimed.build,
            lease=claimed.lease,
            anchor=moment.anchor,
            as_read=moment.as_read,
            rows=rows,
            refused=refusals,
            may_refuse=bool(self._declarations.refusals[run.job]),
            warnings=warnings,
            partitions=_partitions(run, moment.anchor),
            config_hash=run.config_hash,
            reason=run.reason.value,
            invalidations=run.outdated,
            started_at=started_at,
        )

    def _look(self, run: Run, held: Snapshots | None) -> _Moment:
        """The two ends of the span as the raw store holds them; raises BlockReplaced."""
        span = run.span
        state = None if held is None else held.raw.name
        with self._place.raw() as connection, connection.one_state(state):
            row = connection.row(self._place.queries["read_ends"], span.first, span.last)
        hash = None if row is None else row["hash"]
        if row is None or hash is None or (run.last is not None and hash != run.last.hash):
            raise raw_reading.replaced(run.last or BlockRef(span.last, b""), hash, self._place)
        is_first = span.first == row["first_number"]
        return _Moment(
            anchor=Anchor(
                span=span,
                parent_hash=None if is_first else row["parent_hash"],
                last=BlockRef(span.last, hash),
            ),
            as_read=AsRead(epoch=row["epoch"], floor=row["floor_number"]),
        )

    def _checked(
        self,
        claimed: Claimed,
        moment: _Moment,
        held: Snapshots | None,
        frame: DataFrame | None,
        *,
        is_staged: bool,
    ) -> tuple[pa.Table | Staged, Refused, tuple[str, ...]]:
        """The rows, computed once and judged before anybody can see them; raises CheckFailed.

        Of a large run, tasks keep their rows, on disk where need be: what is judged is staged.
        Rows that are refused are not written, and are not judged.
        """
        build, spec = claimed.build, self._declarations.transforms[claimed.run.job].spec
        around = Around(
            place=self._place,
            inputs=Inputs(self._spark, self._place, self._declarations, config=self._config),
            held=held,
            run=claimed.run,
            build=build,
            at=moment,
        )

        def judged(rows: DataFrame) -> tuple[str, ...]:
            found = judge.judge(self._spark, spec, build.dataset, rows, around)
            return judge.refuse(spec, moment.anchor.span, found)

        if frame is not None and is_staged:
            kept = frame.persist()
            try:
                warnings = judged(judge.good(kept, build.dataset))
                staged = self._staged(claimed, kept)
            finally:
                kept.unpersist()
            return staged, staged.refused, warnings
        kind = schema.struct(build.dataset.columns)
        table, refusals = build.dataset.schema.empty_table(), refused.NOTHING
        if frame is not None:
            table, refusals = refused.split(frame.toArrow())
            kind = judge.good(frame, build.dataset).schema
        rows = self._spark.createDataFrame(reading.whole(table), kind).coalesce(1)
        return table, refusals, judged(rows)

    def _staged(self, claimed: Claimed, frame: DataFrame) -> Staged:
        return sink.stage(
            frame,
            claimed.build.dataset,
            token=claimed.lease.token,
            chain=self._place.chain.name,
            config=self._config,
        )

    def _frame(self, claimed: Claimed, moment: _Moment, held: Snapshots | None) -> DataFrame | None:
        """The rows of the run, not computed yet; None where it is known that there are none.

        Of a small run, contracts are asked at once.
        """
        job = claimed.run.job
        transform = self._declarations.transforms[job]
        dataset = self._declarations.datasets[job]
        spec = transform.spec
        frames = (
            self._local(spec, moment)
            if held is None
            else [self._remote(spec, name, moment, held) for name in spec.inputs]
        )
        if frames is None:
            return None
        if spec.reads:
            frames += self._answering(claimed, moment, held).frames(spec, frames)
        names = (*dataset.names, *self._declarations.refusals[job])
        return transform.apply(self._spark, frames).select(*names)

    def _answering(self, claimed: Claimed, moment: _Moment, held: Snapshots | None) -> Answering:
        assert self._caller is not None, "a job that asks contracts is not planned without a node"
        asks_here = held is None or not self._caller.is_found_by_tasks
        return Answering(
            spark=self._spark,
            place=self._place,
            declarations=self._declarations,
            config=self._config,
            calls=self._caller.lend(claimed.lease.token) if asks_here else None,
            build=claimed.build,
            anchor=moment.anchor,
            as_read=moment.as_read,
        )

    def _local(self, spec: JobSpec, moment: _Moment) -> list[DataFrame] | None:
        """The inputs as the driver reads them: each in its own state, but all of them hold R.

        None where the driving input holds nothing that matters.
        """
        read: list[local.Read] = []
        for name in spec.inputs:
            request = self._request(spec, name, moment)
            if name in spec.lookups:
                read.append(local.looked_up(request, spec.lookups[name], read[0]))
            else:
                read.append(local.rows(request, spec.only.get(name, {})))
            if read[0].table.num_rows == 0 and spec.inputs[0] in spec.only:
                return None
        return [
            # In one piece nothing has to be shuffled, which costs more than all the rest.
            self._spark.createDataFrame(one.table, schema.struct(one.columns)).coalesce(1)
            for one in read
        ]

    def _request(self, spec: JobSpec, name: str, moment: _Moment) -> Request:
        """What the driver asks for of an input."""
        span, as_read = moment.anchor.span, moment.as_read
        is_whole = self._declarations.is_state(name) or name in spec.lookups
        return Request(
            dataset=name,
            chain=self._place.chain.name,
            config=self._config,
            first=None if is_whole else span.first,
            last=span.last,
            columns=spec.columns.get(name, ()),
            at=moment.anchor.last,
            # What is looked up is found by an index: it is not worth several connections.
            tasks=1 if name in spec.lookups else None,
            floor=-1 if as_read.floor is None else as_read.floor,
            epoch=as_read.epoch,
        )

    def _remote(self, spec: JobSpec, name: str, moment: _Moment, held: Snapshots) -> DataFrame:
        """An input that tasks read, from the state that the run holds."""
        state = held.app if self._declarations.is_derived(name) else held.raw
        assert state is not None
        given = {**state.options(), "dataset": name, "last": str(moment.anchor.span.last)}
        if not self._declarations.is_state(name) and name not in spec.lookups:
            given["first"] = str(moment.anchor.span.first)
        if name in spec.columns:
            given["columns"] = ",".join(spec.columns[name])
        if name in spec.only:
            given["only"] = options.only(spec.only[name])
        if self._config is not None:
            given["config"] = self._config
        if not self._declarations.is_derived(name):
            return joined.frame(self._spark, self._place, given)
        return self._spark.read.format("unfork").options(**given).load()


def _partitions(run: Run, anchor: Anchor) -> tuple[PartitionRead, ...]:
    if run.mode is not Mode.PARTITION:
        return ()
    assert run.partition is not None
    return (
        PartitionRead(
            key=run.partition, span=anchor.span, parent_hash=anchor.parent_hash, last=anchor.last
        ),
    )


def _tag(lease: Lease) -> str:
    return f"unfork-{lease.token}"


def _translated(error: Exception, job: str) -> errors.UnforkError:
    """What went wrong while a job was computed, as the worker should treat it."""
    found = failures.typed(error)
    if found is not None:
        return found
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return errors.SparkUnavailable(f"Spark went away: {error}")
    missing = _MISSING.search(str(error)) if isinstance(error, PySparkException) else None
    if missing is not None:
        return errors.JobFailed(
            f"job `{job}` failed: Spark's tasks find no module `{missing.group(1)}`; install it "
            "where they run, or import it by its name in the project's own modules, which are sent",
            job=job,
        )
    why = str(error) if isinstance(error, NoTransform) else failures.reason(error)
    is_told = isinstance(error, PySparkException | NoTransform)
    return errors.JobFailed(f"job `{job}` {'failed:' if is_told else 'raised'} {why}", job=job)
