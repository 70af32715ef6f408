"""A world small enough to hold in a dictionary: a chain that forks, datasets, leases and commits.

It does what the app side and the workers do, without a database and without Spark: it makes the
state that the planner looks at, carries out the plan, and refuses what a real commit would refuse.
Values are whole numbers; what each job computes from them is a line of Python, and the oracle
computes the same from scratch.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from unfork.chain import span as spans
from unfork.chain.advance import Day
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.derivation import ByBlocks, ByDay, Lookup, Mode, Strategy
from unfork.jobs import backfill
from unfork.jobs.backfill import Anew, InPlace
from unfork.jobs.lineage import Lineage
from unfork.jobs.partition import Grid
from unfork.jobs.plan import plan
from unfork.jobs.run import Abandon, Action, Build, Forget, GoOn, Plan, Register, Run, Step, Swap
from unfork.jobs.spec import JobSpec, OnChange
from unfork.jobs.state import (
    Fingerprint,
    Generation,
    Kind,
    Lease,
    Outdated,
    State,
    Status,
    Version,
)
from unfork.jobs.work import Limits

RAW = frozenset({"blocks", "logs"})
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
LIMITS = Limits(range_size=20, live_blocks_max=4, runs_max=5)

#: What a row of each job is, from the rows of its inputs in one scope, and its setting.
Rows = list[Any]
COMPUTE: dict[str, Callable[..., Rows]] = {
    "transfers": lambda setting, logs: [(n, h, v * setting) for n, h, v in logs if v % 3],
    "doubled": lambda setting, rows, blocks: [(n, h, 2 * v + setting) for n, h, v in rows],
    "alerts": lambda setting, logs: [(n, h, v) for n, h, v in logs if v % 5 == setting % 5],
    "seen": lambda setting, logs, known: [
        (n, h, sum(m <= n and w % 4 == v % 4 for m, _, w in known) + setting) for n, h, v in logs
    ],
    "balances": lambda setting, transfers: [(n, v % 4, v + setting) for n, h, v in transfers],
    "tens": lambda setting, transfers: [(len({v for _, _, v in transfers}), setting)],
    "twenties": lambda setting, tens, blocks: [(sorted(tens), len(blocks), setting)],
    "daily": lambda setting, blocks: [(len(blocks), sum(v for _, _, v in blocks) + setting)],
    "totals": lambda setting, balances, blocks: [(sorted(balances), len(blocks), setting)],
}


def job(name: str, *inputs: str, **more: Any) -> JobSpec:
    """A job of the world; it writes a dataset of its own name."""
    mode = more.pop("mode", Mode.CURSOR)
    strategy = more.pop("strategy", Strategy.REPLACE)
    return JobSpec(
        name=name, inputs=inputs, input_names=inputs, output=name, mode=mode, strategy=strategy,
        transform="m:f", **more,
    )  # fmt: skip


JOBS = (
    job("transfers", "logs", on_change=OnChange.CONTINUE),
    job("doubled", "transfers", "blocks"),
    job("alerts", "logs", strategy=Strategy.APPEND, unique_key=("block_hash", "v")),
    job("seen", "logs", "doubled", lookups={"doubled": Lookup("v", "v")}),
    job("balances", "transfers", strategy=Strategy.MERGE, unique_key=("key",)),
    job("tens", "transfers", mode=Mode.PARTITION, partitioning=ByBlocks(10)),
    job("twenties", "tens", "blocks", mode=Mode.PARTITION, partitioning=ByBlocks(20),
        on_change=OnChange.CONTINUE),
    job("daily", "blocks", mode=Mode.PARTITION, partitioning=ByDay(), min_interval_s=30.0),
    job("totals", "balances", "blocks", mode=Mode.FULL, min_interval_s=60.0),
)  # fmt: skip


@dataclass(slots=True)
class Block:
    """One block: its rows are its values."""

    ref: BlockRef
    day: date
    value: int


@dataclass(slots=True)
class Built:
    """One build of a dataset, with its rows."""

    id: int
    spec: JobSpec
    number: int
    first: int
    setting: int
    schema: int
    is_served: bool
    watermark: BlockRef | None = None
    history_floor: int | None = None
    #: Mode cursor: rows by block, with the setting they were made with.
    rows: dict[int, tuple[int, Rows]] = field(default_factory=dict)
    #: Strategy merge: the state after each block that can still be returned to.
    states: dict[int, dict[int, int]] = field(default_factory=dict)
    #: Modes partition and full: what was published, by key.
    versions: dict[str, tuple[Version, Rows]] = field(default_factory=dict)

    @property
    def next(self) -> int:
        return self.first if self.watermark is None else self.watermark.number + 1


@dataclass(slots=True)
class Flight:
    """A run that was claimed and has read its inputs."""

    run: Run
    lease: int
    result: Any


class World:
    """The chain, everything that was derived from it, and the work under way."""

    def __init__(self, *, start: int = 0, jobs: tuple[JobSpec, ...] = JOBS) -> None:
        self.lineage = Lineage(jobs)
        self.settings = {spec.name: 1 for spec in jobs}
        self.schemas = {spec.name: 1 for spec in jobs}
        self.start = start
        self.chain: list[Block] = []
        self.floor = -1
        self.now = EPOCH
        self.built: dict[int, Built] = {}
        self.outdated: dict[int, Outdated] = {}
        self.leases: dict[int, Lease] = {}
        self.flights: list[Flight] = []
        self.paused: set[str] = set()
        self.counter = 0

    # The chain.

    def extend(self, values: Iterable[int], *, day: int = 0) -> None:
        """Adds blocks; `day` moves them on by so many days."""
        for value in values:
            number = self.start + len(self.chain)
            last = self.chain[-1].day if self.chain else EPOCH.date()
            ref = BlockRef(number, b"%d/%d" % (number, self._count()))
            self.chain.append(Block(ref, last + timedelta(days=day), value))
            day = 0

    def fork(self, depth: int, values: Iterable[int], *, day: int = 0) -> None:
        """Replaces the last blocks, never the final ones, and unwinds everything."""
        keep = max(len(self.chain) - depth, self.floor - self.start + 1, 1)
        self.chain = self.chain[:keep]
        target = self.chain[-1].ref
        for built in self.built.values():
            self._unwind(built, target)
        for lease in list(self.leases.values()):
            if lease.span.last > target.number:
                del self.leases[lease.id]
        self.extend(values, day=day)

    def finalize(self, number: int) -> None:
        """Raises the floor, and forgets what can no longer be needed for undoing."""
        if number < self.start:
            return
        self.floor = max(self.floor, min(number, self.head.number))
        for built in self.built.values():
            if built.spec.strategy is Strategy.MERGE and built.watermark is not None:
                self._prune(built)

    def correct(self, number: int, value: int) -> None:
        """Changes the rows of a block that stays what it is."""
        self.chain[number - self.start].value = value
        for dataset in ("logs", "blocks"):
            self._cascade(dataset, [Span(number, number)], "correction")

    # What the planner sees.

    @property
    def head(self) -> BlockRef:
        return self.chain[-1].ref

    def days(self) -> tuple[Day, ...]:
        found: dict[date, list[int]] = {}
        for block in self.chain:
            found.setdefault(block.day, []).append(block.ref.number)
        return tuple(Day(day, numbers[0], numbers[-1]) for day, numbers in found.items())

    def state(self) -> State:
        refs = tuple(block.ref for block in self.chain if block.ref.number >= self.floor)
        return State(
            now=self.now,
            first=self.start if self.chain else None,
            head=self.head if self.chain else None,
            floor=None if self.floor < 0 else self.chain[self.floor - self.start].ref,
            refs=refs,
            days=self.days(),
            held=RAW,
            generations=tuple(self._generation(built) for built in self.built.values()),
            outdated=tuple(self.outdated.values()),
            leases=tuple(self.leases.values()),
            paused=frozenset(self.paused),
            fingerprints={
                name: Fingerprint(str(setting), str(self.schemas[name]))
                for name, setting in self.settings.items()
            },
        )

    def plan(self) -> Plan:
        return plan(self.lineage, self.state(), LIMITS)

    def _generation(self, built: Built) -> Generation:
        if built.spec.mode is Mode.CURSOR:
            versions = tuple(self._cursor_versions(built))
        else:
            found = [version for version, _ in built.versions.values()]
            versions = tuple(sorted(found, key=lambda version: version.first))
        return Generation(
            id=built.id,
            dataset=built.spec.output,
            number=built.number,
            first=built.first,
            config_hash=str(built.setting),
            schema_hash=str(built.schema),
            is_served=built.is_served,
            watermark=built.watermark,
            history_floor=built.history_floor,
            versions=versions,
        )

    def _cursor_versions(self, built: Built) -> Iterable[Version]:
        """Blocks in a row that were computed with the same setting."""
        numbers = range(built.first, built.next)
        for setting, group in itertools.groupby(numbers, lambda number: built.rows[number][0]):
            made = list(group)
            yield Version(
                key=str(made[0]), first=made[0], last=made[-1], last_hash=None,
                config_hash=str(setting), is_valid=True, at=self.now,
                rows=sum(len(built.rows[number][1]) for number in made),
            )  # fmt: skip

    # What a dispatcher and its workers do.

    def step(self, step: Step) -> None:
        """Carries out one step of a plan."""
        match step:
            case Register() | Build():
                spec = self.lineage.jobs[step.job]
                for built in self._builds(spec.output):
                    assert isinstance(step, Build)
                    if not built.is_served:
                        self._retire(built)
                is_served = isinstance(step, Register)
                self._make(spec, is_served=is_served)
            case Swap():
                self._swap(self.built[step.generation])
            case Abandon():
                self._retire(self.built[step.generation])
            case GoOn():
                self.built[step.generation].setting = int(step.config_hash)
            case Forget():
                for lease in step.leases:
                    assert self.leases[lease].status is not Status.ACTIVE
                    del self.leases[lease]

    def claim(self, run: Run) -> Flight:
        """Leases a run and reads its inputs; fails where a real claim or read would."""
        assert run.generation is not None
        built = self.built[run.generation]
        self._check(run, built)
        if run.lease is not None:
            old = self.leases.pop(run.lease)
            assert (old.span, old.kind) == (run.span, run.kind)
        for lease in self.leases.values():
            if lease.generation == built.id and lease.span.overlaps(run.span):
                is_covered = Kind.RECOMPUTE not in (lease.kind, run.kind)
                assert not is_covered, "blocks are covered once"
                assert lease.status is Status.COMPLETED, "blocks are open once"
            if lease.generation == built.id and lease.status is Status.ACTIVE:
                assert not (lease.kind is run.kind is Kind.LIVE), "one live run is open"
                assert not built.spec.is_serial, "a serial build has one open run"
        lease = Lease(
            id=self._count(), generation=built.id, kind=run.kind, span=run.span,
            status=Status.ACTIVE, attempt=run.attempt, not_before=None,
            config_hash=run.config_hash,
        )  # fmt: skip
        self.leases[lease.id] = lease
        flight = Flight(run, lease.id, self._compute(run))
        self.flights.append(flight)
        return flight

    def fail(self, flight: Flight) -> None:
        """Lets a run fail; it may be tried again after a while."""
        self.flights.remove(flight)
        lease = self.leases.get(flight.lease)
        if lease is not None:
            self.leases[lease.id] = dataclasses.replace(
                lease,
                status=Status.FAILED,
                attempt=lease.attempt + 1,
                not_before=self.now + timedelta(seconds=10),
            )

    def commit(self, flight: Flight) -> bool:
        """Commits a run, or discards it where the world moved on meanwhile."""
        self.flights.remove(flight)
        run, lease = flight.run, self.leases.get(flight.lease)
        built = self.built.get(run.generation or 0)
        if lease is None or built is None:
            return False
        if run.last is not None and not self._holds(run.last):
            return False
        if run.action in (Action.EXTEND,) and run.span.first != built.next:
            raise AssertionError("the watermark moved under a lease")
        before = self._content(built, run.span)
        match run.mode:
            case Mode.CURSOR:
                self._commit_rows(built, run, flight.result)
            case _:
                self._commit_version(built, run, flight.result)
        self._settle(run)
        completed = dataclasses.replace(
            lease,
            status=Status.COMPLETED,
            last_hash=None if run.last is None else run.last.hash,
        )
        self.leases[lease.id] = completed
        self._advance(built)
        if run.action in (Action.REPLACE, Action.REPLAY) and built.is_served:
            after = self._content(built, run.span)
            if before is not None and before != after:
                self._cascade(built.spec.output, [run.span], "correction")
        return True

    def ask_backfill(self, name: str, wanted: list[Span] | None) -> None:
        """What `unfork backfill` does after showing its proposal."""
        spec, state = self.lineage.jobs[name], self.state()
        match backfill.propose(spec, state, wanted):
            case Anew():
                for built in self._builds(spec.output):
                    if not built.is_served:
                        self._retire(built)
                self._make(spec, is_served=False)
            case InPlace(spans=parts):
                served = self._served(spec.output)
                assert served is not None
                for part in parts:
                    self._outdate(served, part, "manual", spec.output)
                    for version, rows in list(served.versions.values()):
                        if part.overlaps(Span(version.first, version.last)):
                            wrong = dataclasses.replace(version, is_valid=False)
                            served.versions[version.key] = (wrong, rows)
                self._advance(served)

    def settle(self, *, steps_max: int = 2000) -> None:
        """Carries out plans, one run at a time, until nothing is left to do."""
        for flight in list(self.flights):
            self.commit(flight)
        for _ in range(steps_max):
            self.now += timedelta(seconds=100)
            made = self.plan()
            for step in made.steps:
                self.step(step)
            if made.steps:
                continue
            if not made.runs:
                return
            self.commit(self.claim(made.runs[0]))
        raise AssertionError(f"not settled after {steps_max} plans: {self.plan()}")

    # The oracle.

    def expected(self, name: str) -> Any:
        """A job's dataset, computed from scratch over the whole chain with its setting of now."""
        spec = self.lineage.jobs[name]
        last = self.head.number
        match spec.mode:
            case Mode.CURSOR if spec.strategy is Strategy.MERGE:
                return _folded({}, self._fresh(name, Span(self.start, last)))
            case Mode.CURSOR:
                return self._fresh(name, Span(self.start, last))
            case Mode.FULL:
                return self._fresh(name, Span(self.start, last))
            case Mode.PARTITION:
                grid = self._grid(spec, last)
                return {part.key: self._fresh(name, part.span) for part in grid}

    def found(self, name: str) -> Any:
        """The same as it is served."""
        built = self._served(name)
        assert built is not None
        match built.spec.mode:
            case Mode.CURSOR if built.spec.strategy is Strategy.MERGE:
                return {} if built.watermark is None else built.states[built.watermark.number]
            case Mode.CURSOR:
                return [row for n in range(built.first, built.next) for row in built.rows[n][1]]
            case Mode.FULL:
                return built.versions["all"][1]
            case Mode.PARTITION:
                return {key: rows for key, (_, rows) in built.versions.items()}

    def _fresh(self, name: str, span: Span) -> Rows:
        spec = self.lineage.jobs[name]
        given = [
            self._fresh_input(dataset, self._read_of(spec, dataset, span))
            for dataset in spec.inputs
        ]
        return COMPUTE[name](self.settings[name], *given)

    def _fresh_input(self, dataset: str, span: Span) -> Rows:
        writer = self.lineage.writer(dataset)
        if writer is None:
            return self._raw(span)
        if writer.strategy is Strategy.MERGE:
            rows = self._fresh(dataset, Span(self.start, span.last))
            return sorted(_folded({}, rows).items())
        if writer.partitioning is not None:
            parts = self._grid(writer, span.last).within(span.first, span.last)
            return [row for part in parts for row in self._fresh(dataset, part.span)]
        return self._fresh(dataset, span)

    # Inside.

    def _read_of(self, spec: JobSpec, dataset: str, span: Span) -> Span:
        """The blocks of an input that a run over a span reads."""
        return Span(self.start, span.last) if dataset in spec.lookups else span

    def _raw(self, span: Span) -> Rows:
        return [
            (block.ref.number, block.ref.hash, block.value)
            for block in self.chain[span.first - self.start : span.last - self.start + 1]
        ]

    def _compute(self, run: Run) -> Any:
        spec = self.lineage.jobs[run.job]
        if run.mode is Mode.CURSOR:
            # Block by block and all at once are the same: that is what block-local means.
            given = [
                self._stored(dataset, self._read_of(spec, dataset, run.span))
                for dataset in spec.inputs
            ]
            return COMPUTE[run.job](int(run.config_hash), *given)
        given = [self._stored(dataset, run.span) for dataset in spec.inputs]
        return COMPUTE[run.job](int(run.config_hash), *given)

    def _stored(self, dataset: str, span: Span) -> Rows:
        """An input as it is stored, over a span."""
        writer = self.lineage.writer(dataset)
        if writer is None:
            return self._raw(span)
        built = self._served(dataset)
        assert built is not None
        if writer.strategy is Strategy.MERGE:
            return sorted(built.states[span.last].items())
        if writer.partitioning is not None:
            parts = self._grid(writer, span.last).within(span.first, span.last)
            return [row for part in parts for row in built.versions[part.key][1]]
        return [row for n in range(span.first, span.last + 1) for row in built.rows[n][1]]

    def _check(self, run: Run, built: Built) -> None:
        """A run never comes before its inputs, nor reads two forks, nor exceeds its bounds."""
        last = run.span.last
        assert self.start <= run.span.first and last <= self.head.number
        assert run.last is None or self._holds(run.last)
        assert last < self.floor or run.last is not None
        for dataset in built.spec.inputs:
            writer = self.lineage.writer(dataset)
            if writer is None:
                continue
            source = self._served(dataset)
            assert source is not None, f"{dataset} does not exist yet"
            open_ = [row.span for row in self.outdated.values() if row.generation == source.id]
            if writer.partitioning is not None:
                for part in self._grid(writer, last).within(run.span.first, last):
                    version = source.versions[part.key][0]
                    assert version.is_valid and (version.first, version.last) == (
                        part.first, part.last,
                    ), "an input partition is not what the run would read"  # fmt: skip
            else:
                assert source.watermark is not None and source.watermark.number >= last
                assert self._holds(source.watermark)
                read = self._read_of(built.spec, dataset, run.span)
                assert not any(span.overlaps(read) for span in open_)
                if writer.is_state:
                    assert source.watermark.number == last, "a state is read at its own block"
        match run.kind, run.mode:
            case Kind.LIVE, Mode.CURSOR:
                assert len(run.span) <= LIMITS.live_blocks_max
                assert run.span.first == built.next
            case Kind.BACKFILL, Mode.CURSOR:
                size = LIMITS.range_size
                assert run.span.first // size == run.span.last // size, "aligned"
                assert run.span.last <= self.floor, "history is final"
                assert not built.spec.is_serial or run.span.first == built.next
            case Kind.RECOMPUTE, Mode.CURSOR:
                assert run.span.last < built.next
            case _, Mode.PARTITION:
                grid = self._grid(built.spec, self.head.number)
                assert grid.at(run.span.first).key == run.partition

    def _commit_rows(self, built: Built, run: Run, rows: Rows) -> None:
        setting = int(run.config_hash)
        by_block: dict[int, Rows] = {number: [] for number in _numbers(run.span)}
        for row in rows:
            by_block[row[0]].append(row)
        if built.spec.strategy is Strategy.MERGE:
            state = dict(built.states.get(run.span.first - 1, {}))
            if run.span.first > built.first:
                assert run.span.first - 1 in built.states, "there is nothing to undo to"
            for number in [n for n in built.states if n >= run.span.first]:
                del built.states[number]
            for number in _numbers(run.span):
                state = _folded(state, by_block[number])
                built.states[number] = state
            last = run.last or BlockRef(run.span.last, b"final")
            built.watermark = last
            for number in _numbers(run.span):
                built.rows[number] = (setting, by_block[number])
            self._prune(built)
            return
        for number in _numbers(run.span):
            built.rows[number] = (setting, by_block[number])

    def _prune(self, built: Built) -> None:
        """Keeps the states that can be returned to: those at and above the floor, and the last."""
        assert built.watermark is not None
        for number in [n for n in built.states if n < self.floor and n != built.watermark.number]:
            del built.states[number]
        if self.floor >= built.first:
            final = min(self.floor, built.watermark.number)
            built.history_floor = max(final, built.history_floor or 0)

    def _commit_version(self, built: Built, run: Run, rows: Rows) -> None:
        key = run.partition or "all"
        version = Version(
            key=key, first=run.span.first, last=run.span.last,
            last_hash=None if run.last is None else run.last.hash,
            config_hash=run.config_hash, is_valid=True, rows=len(rows), at=self.now,
        )  # fmt: skip
        built.versions[key] = (version, rows)

    def _settle(self, run: Run) -> None:
        """Marks what a run has done of the rows it was planned with."""
        for id in run.outdated:
            row = self.outdated.pop(id, None)
            for rest in spans.subtract([row.span], [run.span]) if row is not None else ():
                assert row is not None
                new = dataclasses.replace(row, id=self._count(), span=rest)
                self.outdated[new.id] = new

    def _advance(self, built: Built) -> None:
        """Moves the watermark over what is complete without a gap."""
        if built.spec.mode is Mode.CURSOR:
            leases = [one for one in self.leases.values() if one.generation == built.id]
            ahead = sorted(
                (one for one in leases if one.status is Status.COMPLETED),
                key=lambda one: one.span.first,
            )
            for lease in ahead:
                if lease.kind is not Kind.RECOMPUTE and lease.span.first == built.next:
                    number = lease.span.last
                    built.watermark = self.chain[number - self.start].ref
            if built.watermark is not None and built.spec.strategy is Strategy.MERGE:
                built.watermark = self.chain[built.watermark.number - self.start].ref
        else:
            at = built.first
            found = sorted((v for v, _ in built.versions.values()), key=lambda v: v.first)
            for version in found:
                if not version.is_valid or version.first != at:
                    break
                at = version.last + 1
            built.watermark = None if at == built.first else self.chain[at - 1 - self.start].ref
        for lease in list(self.leases.values()):
            is_behind = lease.span.last < built.next or lease.kind is Kind.RECOMPUTE
            if lease.generation == built.id and lease.status is Status.COMPLETED and is_behind:
                del self.leases[lease.id]

    def _unwind(self, built: Built, target: BlockRef) -> None:
        mark = built.watermark
        if built.spec.mode is Mode.CURSOR:
            for number in [n for n in built.rows if n > target.number]:
                del built.rows[number]
            if mark is not None and mark.number > target.number:
                is_left = target.number >= built.first
                built.watermark = target if is_left else None
                for number in [n for n in built.states if n > target.number]:
                    del built.states[number]
                self._outdate(built, Span(target.number + 1, mark.number), "reorg", "blocks")
            return
        for version, rows in list(built.versions.values()):
            if version.first > target.number:
                del built.versions[version.key]
            elif version.last > target.number:
                wrong = dataclasses.replace(version, is_valid=False)
                built.versions[version.key] = (wrong, rows)
                span = Span(version.first, version.last)
                self._outdate(built, span, "reorg", "blocks")
        self._advance(built)

    def _cascade(self, dataset: str, changed: list[Span], reason: str) -> None:
        """Invalidates what was computed from these blocks, in the builds that read them."""
        for built in list(self.built.values()):
            if dataset not in built.spec.inputs:
                continue
            struck = changed
            if dataset in built.spec.lookups and changed:
                struck = [Span(min(span.first for span in changed), 2**40)]
            # A run under way has read the old rows, or may have: it must not commit.
            for lease in list(self.leases.values()):
                is_struck = any(lease.span.overlaps(span) for span in struck)
                if lease.generation == built.id and is_struck:
                    del self.leases[lease.id]
            for span in struck:
                if built.spec.mode is Mode.CURSOR:
                    covered = Span(built.first, built.next - 1) if built.watermark else None
                    part = spans.intersect(span, covered) if covered else None
                    if part is not None:
                        self._outdate(built, part, reason, dataset)
                    continue
                for version, rows in list(built.versions.values()):
                    whole = Span(version.first, version.last)
                    if span.overlaps(whole):
                        wrong = dataclasses.replace(version, is_valid=False)
                        built.versions[version.key] = (wrong, rows)
                        self._outdate(built, whole, reason, dataset)
            if built.spec.mode is not Mode.CURSOR:
                self._advance(built)

    def _swap(self, built: Built) -> None:
        served = self._served(built.spec.output)
        assert served is not None and built.next >= served.next
        self._retire(served)
        built.is_served = True
        # Not only up to the watermarks: readers may have seen versions above a gap.
        whole = Span(built.first, self.head.number)
        self._cascade(built.spec.output, [whole], "correction")

    def _retire(self, built: Built) -> None:
        del self.built[built.id]
        self.leases = {k: v for k, v in self.leases.items() if v.generation != built.id}
        self.outdated = {k: v for k, v in self.outdated.items() if v.generation != built.id}

    def _make(self, spec: JobSpec, *, is_served: bool) -> Built:
        built = Built(
            id=self._count(), spec=spec, number=1, first=self.start,
            setting=self.settings[spec.name], schema=self.schemas[spec.name], is_served=is_served,
        )  # fmt: skip
        self.built[built.id] = built
        return built

    def _outdate(self, built: Built, span: Span, reason: str, dataset: str) -> None:
        row = Outdated(
            id=self._count(), generation=built.id, span=span, reason=reason, dataset=dataset
        )
        self.outdated[row.id] = row

    def _content(self, built: Built, span: Span) -> Any:
        """What there is in the scope of a run, for the early cut-off."""
        if built.spec.strategy is Strategy.MERGE:
            return None if built.watermark is None else built.states.get(built.watermark.number)
        if built.spec.mode is Mode.CURSOR:
            return [built.rows.get(number, (0, None))[1] for number in _numbers(span)]
        found = [rows for version, rows in built.versions.values() if version.first == span.first]
        return found[0] if found else None

    def _builds(self, dataset: str) -> list[Built]:
        return [built for built in self.built.values() if built.spec.output == dataset]

    def _served(self, dataset: str) -> Built | None:
        return next((built for built in self._builds(dataset) if built.is_served), None)

    def _holds(self, ref: BlockRef) -> bool:
        place = ref.number - self.start
        return 0 <= place < len(self.chain) and self.chain[place].ref == ref

    def _grid(self, spec: JobSpec, last: int) -> Grid:
        assert spec.partitioning is not None
        return Grid(spec.partitioning, first=self.start, last=last, days=self.days())

    def _count(self) -> int:
        self.counter += 1
        return self.counter


def _folded(state: dict[int, int], rows: Rows) -> dict[int, int]:
    new = dict(state)
    for _, key, amount in rows:
        new[key] = new.get(key, 0) + amount
    return new


def _numbers(span: Span) -> range:
    return range(span.first, span.last + 1)
