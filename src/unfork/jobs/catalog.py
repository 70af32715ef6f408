"""Owns the way from the configuration's `jobs:` to job specifications, checked as a whole.

Nothing runs before everything is checked, and everything that is wrong is said at once, with the
line it was written on. Names of the seeds are understood: `hot_logs` and `cold_logs` are `logs`,
`block_follower` is raw ingestion itself, and a built-in job that comes with a later release is
listed as not available instead of failing the file.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from unfork.config import jobs as declared
from unfork.config.draft import Problem
from unfork.config.load import Loaded, refusal
from unfork.datasets import evm
from unfork.datasets.derivation import (
    ByBlocks,
    ByDay,
    Lookup,
    Mode,
    Partitioning,
    Rule,
    Strategy,
)
from unfork.jobs import check, code, compaction, locality, sql
from unfork.jobs import read as contract_reads
from unfork.jobs.builtin import BUILTINS, COMPACTION, LATER, SOURCES, Builtin, unknown
from unfork.jobs.check import Check
from unfork.jobs.decode import listed as decoding
from unfork.jobs.lineage import Cycle, Lineage
from unfork.jobs.partition import nests
from unfork.jobs.read import Read
from unfork.jobs.spec import JobSpec, OnChange

RAW = frozenset(evm.BY_NAME)

#: Prefixes that mean a dataset as one store holds it.
STORES = ("hot_", "cold_")

#: Blocks per partition where a job does not say.
PARTITION_SIZE = 10_000

#: Seconds between two runs of a full job where it does not say.
FULL_INTERVAL_S = 60.0

#: Tables of the app schema that are the engine's own.
RESERVED = frozenset(
    """alert_events app_migrations contract_reads data_invalidations dataset_cursors days follower
    generations history indexing_checkpoints indexing_errors invalidation_spans jobs lake
    lake_numbers lake_pins lake_versions lease_tokens migrations orphans partition_versions refs
    runs scheduled_tasks staging worker_leases""".split()
)

BUILTIN_TRANSFORMS = frozenset(
    (decoding.TRANSFORM, *(builtin.transform for builtin in BUILTINS.values()))
)

NOT_YET = "not available in this release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """Every job of a configuration, checked."""

    #: All that are declared, in the order of the file, raw ingestion and unavailable ones too.
    specs: tuple[JobSpec, ...]
    lineage: Lineage
    #: Where modules and SQL files of the project are.
    folder: Path


def read(loaded: Loaded, *, imports: bool = False) -> Catalog:
    """The jobs of a configuration, or ConfigInvalid with every problem.

    Transforms are looked for in the folder of the file, then where Python looks. With `imports`
    they are imported as well, which finds what only running a module shows, and takes as long.
    """
    folder = Path.cwd() if loaded.file is None else loaded.file.resolve().parent
    listed = [_Listed(loaded, ("jobs", n), job) for n, job in enumerate(loaded.config.jobs)]
    decoded, problems = decoding.expanded(loaded)
    listed += [_Listed(loaded, one.path, one.job, one) for one in decoded]
    problems += _names(listed)
    outputs = {one.output: one for one in reversed(listed)}
    specs = []
    for one in listed:
        problems += one.problems(outputs)
        specs.append(one.spec(outputs))
    try:
        lineage = Lineage(specs)
    except Cycle as cycle:
        spec = next(spec for spec in specs if spec.name == cycle.path[0])
        what = f"jobs wait for each other: {' → '.join(cycle.path)}"
        raise refusal([*problems, Problem(spec.where("input_datasets"), what)]) from None
    for spec in specs:
        problems += _fits_inputs(spec, lineage)
        problems += _code(spec, folder, imports=imports)
    if problems:
        raise refusal(problems)
    specs = _availability(specs, lineage)
    return Catalog(specs=tuple(specs), lineage=Lineage(specs), folder=folder)


class _Listed:
    """One entry of `jobs:` and what it stands for."""

    def __init__(
        self,
        loaded: Loaded,
        path: tuple[str | int, ...],
        job: declared.Job,
        decoded: decoding.Decoded | None = None,
    ) -> None:
        """`path` leads to where it is written; `decoded` tells more of what decoding stands for."""
        self.job = job
        self._loaded = loaded
        self._path = path
        self._decoded = decoded
        named = BUILTINS.get(job.name) if job.transform is None and job.sql is None else None
        self.builtin: Builtin | None = named
        self.is_source = job.name in SOURCES and not job.input_datasets
        self.is_later = job.name in LATER and job.transform is None and job.sql is None
        self.is_compaction = job.name == COMPACTION and job.transform is None and job.sql is None
        self.output = job.output_dataset or (named and named.output) or job.name
        self.mode = Mode(job.incremental.mode or (named.mode if named else Mode.CURSOR))
        given = job.update_strategy or (named.strategy if named else Strategy.REPLACE)
        self.strategy = Strategy(given)
        own_key = job.unique_key or job.incremental.unique_key
        self.unique_key = own_key or (named.unique_key if named else ())
        #: Checks that could be read, and what is wrong with the others.
        self.checks: tuple[Check, ...]
        self.checks, self._unread = check.read_all(
            job.name, job.checks, lambda place: self.where("checks", place)
        )

    def where(self, *keys: str | int) -> str:
        """The line of a key, or of the job where it is not written."""
        return self._loaded.where((*self._path, *keys))

    def spec(self, outputs: Mapping[str, _Listed]) -> JobSpec:
        """The specification; only good for use where there was no problem."""
        names = self.job.input_datasets
        inputs = tuple(dataset(name, outputs) for name in names)
        transform = self.job.transform
        rules = {column: Rule(rule) for column, rule in self.job.merge.items()}
        if self.builtin is not None:
            # A built-in transform takes what it takes; what the file leaves out is added.
            inputs, transform = self.builtin.inputs, self.builtin.transform
            names = inputs
            rules = rules or dict(self.builtin.rules)
        keys = (
            "input_datasets",
            "output_dataset",
            "merge",
            "sql",
            "transform",
            "incremental",
            "lookups",
            "reads",
        )
        origins = {key: self.where(key) for key in keys}
        origins[""] = self.where("name") if self.job.name else self.where()
        nested = ("incremental", "unique_key") if self.job.incremental.unique_key else ()
        origins["unique_key"] = self.where(*(nested or ("unique_key",)))
        return JobSpec(
            name=self.job.name,
            inputs=inputs,
            input_names=names,
            output=self.output,
            mode=self.mode,
            strategy=self.strategy,
            unique_key=self.unique_key,
            partitioning=self._partitioning(),
            min_interval_s=self._interval_s(),
            transform=transform,
            sql=None if self.job.sql is None else Path(self.job.sql),
            rules=rules,
            config=self.job.config,
            on_change=OnChange(self.job.on_change),
            columns=self._columns(),
            lookups={
                dataset(name, outputs): Lookup(each.column, each.by)
                for name, each in self.job.lookups.items()
            },
            only=self._only(),
            reads=self._reads(outputs),
            checks=tuple(one.meaning(lambda name: dataset(name, outputs)) for one in self.checks),
            optional=() if self.builtin is None else self.builtin.optional,
            indexes=self._indexes(),
            table_blocks=None if self.builtin is None else self.builtin.table_blocks,
            is_source=self.is_source,
            is_compaction=self.is_compaction,
            unavailable=NOT_YET if self.is_later else None,
            origins=origins,
        )

    def problems(self, outputs: Mapping[str, _Listed]) -> Iterator[Problem]:
        """What is wrong with this entry, as far as it does not take the graph to see it."""
        if self.is_source:
            return
        if self.is_compaction:
            yield from compaction.problems(self.job, self.where)
            return
        yield from self._inputs(outputs)
        yield from self._lookups(outputs)
        yield from self._output(outputs)
        yield from self._combination()
        yield from self._read_problems(outputs)
        yield from self._checks(outputs)
        what = unknown(self.job)
        if what is not None:
            yield Problem(self.where("name"), what)

    def _inputs(self, outputs: Mapping[str, _Listed]) -> Iterator[Problem]:
        where, names = self.where("input_datasets"), self.job.input_datasets
        found = [dataset(name, outputs) for name in names]
        if not names and self.builtin is None:
            yield Problem(self.where(), f"job `{self.job.name}` has no input_datasets")
        for place, (name, meant) in enumerate(zip(names, found, strict=True)):
            if meant not in RAW and meant not in outputs:
                known = sorted([*RAW, *outputs])
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known)}"
                what = f"job `{self.job.name}` reads `{name}`, which nobody writes; {hint}"
                yield Problem(self.where("input_datasets"), what)
            elif meant in found[:place]:
                yield Problem(where, f"job `{self.job.name}` reads `{meant}` twice")
            elif self.builtin is not None and meant not in self.builtin.inputs:
                takes = ", ".join(self.builtin.inputs)
                what = f"the built-in job `{self.job.name}` reads {takes}, not `{name}`"
                yield Problem(where, what)
        for needed in self.builtin.inputs if self.builtin is not None else ():
            if needed not in RAW and needed not in outputs:
                what = f"job `{self.job.name}` reads `{needed}`, which nobody writes; add its job"
                yield Problem(where, what)

    def _lookups(self, outputs: Mapping[str, _Listed]) -> Iterator[Problem]:
        """Whether what is looked up is an input that can be."""
        names = [dataset(name, outputs) for name in self.job.input_datasets]
        for name in self.job.lookups:
            where, meant = self.where("lookups", name), dataset(name, outputs)
            other = outputs.get(meant)
            if meant not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
                hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(names)}"
                yield Problem(where, f"`{name}` is not among input_datasets; {hint}")
            elif meant == names[0]:
                what = f"`{name}` is the first input, which drives the job; look up another one"
                yield Problem(where, what)
            elif self.mode is not Mode.CURSOR:
                what = f"lookups belong to mode: cursor, not {self.mode}"
                yield Problem(where, what)
            elif other is None or (other.mode, other.strategy) != (Mode.CURSOR, Strategy.REPLACE):
                what = f"`{name}` cannot be looked up: only what a job of mode cursor replaces can"
                yield Problem(where, what)

    def _only(self) -> Mapping[str, Mapping[str, tuple[bytes, ...]]]:
        """What rows of its inputs must hold to matter, where that is known."""
        if self._decoded is not None:
            return self._decoded.only
        return {} if self.builtin is None else self.builtin.only

    def _columns(self) -> Mapping[str, tuple[str, ...]]:
        """The columns that the transform reads, where that is known."""
        if self._decoded is not None:
            return self._decoded.columns
        return {} if self.builtin is None else self.builtin.columns

    def _output(self, outputs: Mapping[str, _Listed]) -> Iterator[Problem]:
        where = self.where("output_dataset")
        other = outputs[self.output]
        if other is not self:
            what = f"job `{other.job.name}` (at {other.where()}) writes `{self.output}` already"
            yield Problem(where, what)
        if self.is_later:
            return  # Compaction writes `cold_blocks`, as the seeds have it.
        if dataset(self.output, {}) in RAW:
            what = f"`{self.output}` is a raw dataset, which only ingestion writes; choose another"
            yield Problem(where, what)
        elif self.output in RESERVED:
            what = f"`{self.output}` is a table of the engine's own; choose another name"
            yield Problem(where, what)

    def _combination(self) -> Iterator[Problem]:
        """Keys that do not go together."""
        job, mode, strategy = self.job, self.mode, self.strategy
        given = job.incremental
        if strategy is not Strategy.REPLACE and not self.unique_key and not self.is_later:
            what = f"job `{job.name}` needs a unique_key: {strategy} finds rows by it"
            yield Problem(self.where("update_strategy"), what)
        if strategy is not Strategy.REPLACE and mode is not Mode.CURSOR:
            what = f"{strategy} goes block by block: it needs mode: cursor, not {mode}"
            yield Problem(self.where("update_strategy"), what)
        if given.cursor_column is not None and mode is not Mode.CURSOR:
            what = f"cursor_column belongs to mode: cursor, not {mode}"
            yield Problem(self.where("incremental", "cursor_column"), what)
        elif given.cursor_column not in (None, "block_number", "number"):
            what = "cursor_column must be block_number: a fork is known by its blocks"
            yield Problem(self.where("incremental", "cursor_column"), what)
        if given.partition is not None and mode is not Mode.PARTITION:
            what = f"partition belongs to mode: partition, not {mode}"
            yield Problem(self.where("incremental", "partition"), what)
        if given.min_interval is not None and mode is Mode.CURSOR:
            what = "min_interval belongs to the modes partition and full"
            yield Problem(self.where("incremental", "min_interval"), what)
        if job.merge and strategy is not Strategy.MERGE:
            what = f"merge rules belong to update_strategy: merge, not {strategy}"
            yield Problem(self.where("merge"), what)
        for column in sorted(set(job.merge) & set(self.unique_key)):
            what = f"`{column}` is in the unique_key, which a merge never changes"
            yield Problem(self.where("merge", column), what)

    def _reads(self, outputs: Mapping[str, _Listed]) -> tuple[Read, ...]:
        """What it asks contracts; a built-in job knows that for itself."""
        if self.builtin is not None:
            return self.builtin.reads
        return tuple(
            Read(
                name=one.name,
                of=dataset(one.of, outputs),
                address=one.address,
                function=one.function,
                arguments=one.arguments,
                is_immutable=one.immutable,
            )
            for one in self.job.reads
        )

    def _read_problems(self, outputs: Mapping[str, _Listed]) -> Iterator[Problem]:
        job = self.job
        if self.builtin is not None:
            if job.reads:
                what = f"the built-in job `{job.name}` says for itself what it asks contracts"
                yield Problem(self.where("reads"), what)
            return
        taken = [*job.input_datasets]
        inputs = [dataset(name, outputs) for name in taken]
        for place, read in enumerate(self._reads(outputs)):
            if read.of not in inputs:
                what = f"job `{job.name}` does not read `{read.of}`, whose rows are to ask"
                yield Problem(self.where("reads", place, "of"), what)
            for key, what in contract_reads.problems(read, taken):
                yield Problem(self.where("reads", place, key), f"job `{job.name}`: {what}")
            taken.append(read.name)

    def _checks(self, outputs: Mapping[str, _Listed]) -> Iterator[Problem]:
        """What is wrong with its checks, as far as it does not take the graph to see it."""
        yield from self._unread
        yield from check.problems(
            [one.meaning(lambda name: dataset(name, outputs)) for one in self.checks],
            [*RAW, *outputs],
            job=self.job.name,
            output=self.output,
            mode=self.mode,
            strategy=self.strategy,
            unique_key=self.unique_key,
            partitioning=self._partitioning(),
        )

    def _partitioning(self) -> Partitioning | None:
        if self.mode is not Mode.PARTITION:
            return None
        given = self.job.incremental.partition
        if given == "day":
            return ByDay()
        if isinstance(given, int):
            return ByBlocks(given)
        default = self.builtin.partitioning if self.builtin is not None else None
        return default or ByBlocks(PARTITION_SIZE)

    def _indexes(self) -> tuple[tuple[str, ...], ...]:
        default = () if self.builtin is None else self.builtin.indexes
        return tuple(dict.fromkeys((*default, *self.job.indexes)))

    def _interval_s(self) -> float:
        given = self.job.incremental.min_interval
        if given is not None:
            return given
        return FULL_INTERVAL_S if self.mode is Mode.FULL else 0.0


def dataset(name: str, outputs: Iterable[str]) -> str:
    """The dataset that a name means: `hot_logs` is `logs`, unless somebody writes `hot_logs`."""
    if name not in RAW:
        for store in STORES:
            bare = name.removeprefix(store)
            if bare != name and (bare in RAW or (bare in outputs and name not in outputs)):
                return bare
    return name


def _names(listed: list[_Listed]) -> Iterator[Problem]:
    seen: dict[str, _Listed] = {}
    for one in listed:
        first = seen.setdefault(one.job.name, one)
        if first is not one:
            what = f"job `{one.job.name}` is declared already (at {first.where()})"
            yield Problem(one.where("name"), what)


def _fits_inputs(spec: JobSpec, lineage: Lineage) -> Iterator[Problem]:
    """Whether the inputs can be read the way the job's mode reads them."""
    where = spec.where("input_datasets")
    for name in spec.awaited if not spec.is_source else ():
        writer = lineage.writer(name)
        if writer is None or spec.mode is Mode.FULL:
            continue
        if writer.is_state:
            what = (
                f"job `{spec.name}` cannot read `{name}` block by block: it is a state, not rows "
                "of blocks; read what it is made of, or use mode: full"
            )
            yield Problem(where, what)
        elif writer.partitioning is not None and spec.partitioning is None:
            what = (
                f"job `{spec.name}` is not block-local: rows of `{name}` change until their "
                "partition is complete; use mode: partition"
            )
            yield Problem(where, what)
        elif (
            writer.partitioning is not None
            and spec.partitioning is not None
            and not nests(writer.partitioning, spec.partitioning)
        ):
            what = (
                f"partitions of {spec.partitioning} cut through those of `{name}` "
                f"({writer.partitioning}); use the same, or a multiple"
            )
            yield Problem(where, what)


def _code(spec: JobSpec, folder: Path, *, imports: bool) -> Iterator[Problem]:
    """Whether what a job runs is there, and keeps to what its mode promises."""
    if spec.sql is not None:
        yield from _query(spec, spec.sql)
    elif spec.transform is not None and spec.transform not in BUILTIN_TRANSFORMS:
        try:
            pieces = code.used_by(spec.transform, folder)
            if imports:
                code.load(spec.transform, folder)
        except (code.CodeMissing, SyntaxError) as error:
            what = f"the transform of job `{spec.name}` cannot be imported: {error}"
            yield Problem(spec.where("transform"), what)
            return
        for piece, finding in locality.check_code(pieces) if spec.mode is Mode.CURSOR else ():
            place = f"{piece.file.name}:{finding.line}"
            what = f"job `{spec.name}` is not block-local ({place}): {finding.what}"
            yield Problem(spec.where("transform"), what)


def _query(spec: JobSpec, file: Path) -> Iterator[Problem]:
    where = spec.where("sql")
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        yield Problem(where, f"{file} of job `{spec.name}` cannot be read: {error.strerror}")
        return
    except UnicodeDecodeError:
        yield Problem(where, f"{file} of job `{spec.name}` is not UTF-8 text")
        return
    for finding in sql.check(text, spec.names):
        yield Problem(where, f"job `{spec.name}` ({file.name}:{finding.line}): {finding.what}")
    lookups = {
        name: spec.lookups[meant]
        for name, meant in zip(spec.input_names, spec.inputs, strict=True)
        if meant in spec.lookups
    }
    for finding in locality.check_sql(text, lookups) if spec.mode is Mode.CURSOR else ():
        place = f"{file.name}:{finding.line}"
        yield Problem(where, f"job `{spec.name}` is not block-local ({place}): {finding.what}")


def _availability(specs: list[JobSpec], lineage: Lineage) -> list[JobSpec]:
    """The same jobs, those that cannot run for want of another one marked as well."""
    why: dict[str, str] = {}
    for spec in lineage.order:
        found = spec.unavailable
        if found is None and spec.transform in BUILTIN_TRANSFORMS:
            found = None if _is_there(spec.transform) else NOT_YET
        for name in spec.awaited:
            writer = lineage.writer(name)
            if found is None and writer is not None and writer.name in why:
                found = f"reads `{name}`, whose job `{writer.name}` is {NOT_YET}"
        if found is not None:
            why[spec.name] = found
    return [dataclasses.replace(spec, unavailable=why.get(spec.name)) for spec in specs]


def _is_there(transform: str) -> bool:
    try:
        code.used_by(transform, None)
    except code.CodeMissing:
        return False
    return True
