"""Owns what a job's output looks like: its columns, asked of Spark without running anything.

A transform is applied to inputs without rows; the schema that Spark finds is what every run will
return. It is the one moment at which a job is seen whole: what it promises in the file and what its
code returns. Jobs are asked in the order of the lineage, for one's output is another's input.

Spark has one binary type and wide numbers that our stores do not have. A column that comes from
an input as it is, or whose transform says so in its metadata, keeps its kind; what has no exact
kind is refused by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from unfork import errors
from unfork.app import refused
from unfork.app.derived import DerivedDataset
from unfork.config.draft import Problem
from unfork.config.load import refusal
from unfork.datasets.dataset import Column, Dataset, Kind
from unfork.datasets.derivation import ByDay, Mode, Strategy
from unfork.jobs import judge, transform
from unfork.jobs import read as contract_reads
from unfork.jobs import spec as specs
from unfork.jobs.catalog import Catalog
from unfork.jobs.spark import failures, schema
from unfork.jobs.spec import JobSpec
from unfork.jobs.transform import NoTransform, Transform

_WHOLE_NUMBERS = (LongType, IntegerType, ShortType, ByteType)

#: What a type of Spark is where nothing else is said of the column.
_KINDS: dict[type[DataType], Kind] = {
    **dict.fromkeys(_WHOLE_NUMBERS, Kind.INT),
    BinaryType: Kind.BYTES,
    StringType: Kind.TEXT,
    TimestampType: Kind.TIME,
    DateType: Kind.DATE,
    BooleanType: Kind.BOOL,
}


#: What a lookup may search by.
_FOUND = {Kind.INT, Kind.BYTES}

#: The columns that tell refused rows, with their types.
_REFUSALS = {refused.ERROR: StringType, refused.DATA: BinaryType}


class Declarations:
    """The transforms of a catalog, and what each of their outputs is."""

    def __init__(self, catalog: Catalog, raw: Iterable[Dataset]) -> None:
        self._catalog = catalog
        #: The columns of every dataset that is known so far.
        self._columns: dict[str, tuple[Column, ...]] = {one.name: one.columns for one in raw}
        #: By job.
        self.transforms: dict[str, Transform] = {}
        #: By job.
        self.datasets: dict[str, DerivedDataset] = {}
        #: The columns that tell refused rows from others (app/refused.py), by job that has them.
        self.refusals: dict[str, tuple[str, ...]] = {}

    def ask(self, spark: SparkSession) -> Mapping[str, DerivedDataset]:
        """What every job writes, by job; raises ConfigInvalid with every problem found."""
        problems: list[Problem] = []
        for spec in self._catalog.lineage.order:
            if not spec.is_planned or any(name not in self._columns for name in spec.awaited):
                continue  # What an input misses is said of the job that writes it.
            try:
                self._declare(spark, spec)
            except _Refused as refused:
                problems += refused.problems
        if problems:
            raise refusal(problems)
        return self.datasets

    def columns(self, dataset: str) -> tuple[Column, ...]:
        """The columns of a dataset, raw or derived."""
        return self._columns[dataset]

    def asked(self, dataset: str) -> Mapping[str, Column]:
        """The columns of a dataset whose rows ask contracts, by name."""
        return {column.name: column for column in self._columns[dataset]}

    def is_derived(self, dataset: str) -> bool:
        """Whether a job writes a dataset."""
        return self._catalog.lineage.writer(dataset) is not None

    def is_state(self, dataset: str) -> bool:
        """Whether a dataset says how things stand, and is read as a whole."""
        writer = self._catalog.lineage.writer(dataset)
        return writer is not None and writer.is_state

    def _declare(self, spark: SparkSession, spec: JobSpec) -> None:
        where = spec.where("sql" if spec.sql is not None else "transform")
        misfits = [
            f"job `{spec.name}`, read `{read.name}`: {what}"
            for read in spec.reads
            if read.asking is None
            for what in contract_reads.misfits(read, self.asked(read.of))
        ]
        if misfits:
            raise _Refused(spec.where("reads"), *misfits)
        try:
            loaded = transform.load(spec, self._catalog.folder)
            empty = [
                spark.createDataFrame([], schema.struct(self._columns[name]))
                for name in spec.inputs
            ]
            empty += [
                spark.createDataFrame([], schema.struct(read.columns(self.asked(read.of))))
                for read in spec.reads
            ]
            found = loaded.apply(spark, empty).schema
        except NoTransform as error:
            raise _Refused(where, f"job `{spec.name}`: {error}") from error
        except PySparkException as error:
            what = f"job `{spec.name}` does not fit its inputs: {said(error)}{_line(spec, error)}"
            raise _Refused(where, what) from error
        except Exception as error:
            # The code is a stranger's; whatever it raises is about the job.
            what = f"job `{spec.name}` raised {failures.reason(error)}"
            raise _Refused(where, what) from error
        indexes = [
            (each.column, "block_number")
            for reader in self._catalog.lineage.readers(spec.output)
            if (each := reader.lookups.get(spec.output)) is not None and each.column in found.names
        ]
        dataset = declared(spec, found, indexes=tuple(dict.fromkeys(indexes)))
        self._require_lookups(spec)
        problems = list(judge.problems(spark, spec, dataset, self._columns))
        if problems:
            raise _Refused.of(Problem(place, what) for place, what in problems)
        self.refusals[spec.name] = tuple(
            name for name in found.names if name in (refused.ERROR, refused.DATA)
        )
        self.transforms[spec.name] = loaded
        self.datasets[spec.name] = dataset
        self._columns[spec.output] = dataset.columns

    def _require_lookups(self, spec: JobSpec) -> None:
        """Raises _Refused where a lookup is not by columns that are there and can be searched."""
        problems = []
        for name, each in spec.lookups.items():
            kinds = {}
            for dataset, column in ((name, each.column), (spec.inputs[0], each.by)):
                held = {one.name: one.kind for one in self._columns[dataset]}
                if column not in held:
                    near = difflib.get_close_matches(column, held, n=1, cutoff=0.5)
                    hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(held)}"
                    problems.append(f"`{dataset}` has no column `{column}`; {hint}")
                kinds[dataset] = held.get(column)
            if not problems and not (len({*kinds.values()}) == 1 and {*kinds.values()} <= _FOUND):
                problems.append(
                    f"`{each.column}` of `{name}` and `{each.by}` of `{spec.inputs[0]}` must both "
                    "be bytes, or both whole numbers"
                )
        if problems:
            raise _Refused(spec.where("lookups"), *problems)


class _Refused(Exception):
    def __init__(self, where: str, *whats: str) -> None:
        super().__init__(*whats)
        self.problems = [Problem(where, what) for what in whats]

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> _Refused:
        """Several problems, each with its place."""
        found = cls("")
        found.problems = list(problems)
        return found


def declared(
    spec: JobSpec, returned: StructType, *, indexes: tuple[tuple[str, ...], ...] = ()
) -> DerivedDataset:
    """The dataset that a job writes, of the schema that its transform returns."""
    missing = specs.missing_columns(
        spec, {field.name: field.dataType.simpleString() for field in returned.fields}
    )
    if missing:
        refused = _Refused("")
        for sentence in missing:
            where, _, what = sentence.partition(": ")
            refused.problems.append(Problem(where, what))
        raise refused
    where = spec.where("sql" if spec.sql is not None else "transform")
    needed = _needed(spec)
    columns, problems = [], []
    for field in returned.fields:
        if field.name in _REFUSALS:
            problems += _refusal(spec, field)
            continue
        kind = kind_of(field)
        if kind is None:
            problems.append(
                f"job `{spec.name}` returns `{field.name}` as {field.dataType.simpleString()}, "
                "which cannot be kept exactly; cast it to bigint or string, or leave it out"
            )
        else:
            nullable = field.nullable and field.name not in needed
            columns.append(Column(field.name, kind, nullable))
    if problems:
        raise _Refused(where, *problems)
    try:
        return DerivedDataset(
            name=spec.output,
            job=spec.name,
            inputs=spec.inputs,
            mode=spec.mode,
            strategy=spec.strategy,
            columns=tuple(columns),
            key=spec.unique_key,
            rules=dict(spec.rules),
            partitioning=spec.partitioning,
            indexes=tuple(dict.fromkeys((*spec.indexes, *indexes))),
            lookups=tuple(spec.lookups),
            table_blocks=spec.table_blocks,
        )
    except errors.ConfigInvalid as error:
        raise _Refused(where, error.message) from error


def _refusal(spec: JobSpec, field: StructField) -> list[str]:
    """What is wrong with a column that tells refused rows."""
    if spec.mode is not Mode.CURSOR:
        return [f"job `{spec.name}` returns `{field.name}`, which belongs to mode: cursor"]
    if not isinstance(field.dataType, _REFUSALS[field.name]):
        wanted = "string" if field.name == refused.ERROR else "binary"
        found = field.dataType.simpleString()
        return [f"job `{spec.name}` returns `{field.name}` as {found}; it must be {wanted}"]
    return []


def kind_of(field: StructField) -> Kind | None:
    """What a column of Spark holds, None where we have no exact kind for it."""
    said = (field.metadata or {}).get(schema.KIND)
    for kind, type_ in schema.SPARK.items():
        if kind.value == said and type_ == field.dataType:
            return kind
    if isinstance(field.dataType, ArrayType):
        is_bytes = isinstance(field.dataType.elementType, BinaryType)
        return Kind.BYTES_LIST if is_bytes else None
    return _KINDS.get(type(field.dataType))


def said(error: PySparkException) -> str:
    """The first line of what Spark says, without where it says it."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]


def _line(spec: JobSpec, error: PySparkException) -> str:
    """Where in a job's SQL file Spark stopped, empty where it does not say."""
    found = re.search(r"line (\d+),? pos \d+", str(error))
    # One line stands before the query itself (transform.scoped).
    return f" ({spec.sql.name}:{int(found.group(1)) - 1})" if found and spec.sql else ""


def _needed(spec: JobSpec) -> frozenset[str]:
    """Columns that always have a value, whatever Spark can tell of it."""
    names = {"block_number", "block_hash"}
    if spec.strategy is Strategy.MERGE:
        names |= set(spec.unique_key)
    if isinstance(spec.partitioning, ByDay):
        names.add(spec.partitioning.column)
    return frozenset(names)
