"""Owns the judgement of a run's rows by the checks of its job: one question to Spark for all.

Every check becomes a DataFrame of the few rows that fail it; all of them together are one query, so
that a check more is not a job more. What a check has to look at beside the rows (another dataset,
how old the newest row is) is handed in as a `World`: the engine's is the chain at the block R that
the run computes up to.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Protocol

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StructField, StructType

from unfork import errors
from unfork.app import refused
from unfork.app.derived import DerivedDataset
from unfork.chain.span import Span
from unfork.datasets import dataset as datasets
from unfork.datasets.dataset import Kind
from unfork.jobs import transform
from unfork.jobs.check import (
    Check,
    Freshness,
    NotNull,
    Query,
    Relation,
    Severity,
    Unique,
)
from unfork.jobs.spark import schema
from unfork.jobs.spec import JobSpec

#: Rows that fail a check and are shown; one more says that there are more.
ROWS_MAX = 5
#: Characters of a value and of a row that are shown.
VALUE_MAX, ROW_MAX = 150, 400

#: What the query for all checks answers: the place of a check, and a row that fails it.
_PLACE, _ROW = "check", "row"
#: The column that holds the newest moment, or how many rows are alike.
_NEWEST, _ALIKE = "newest", "rows"


class World(Protocol):
    """What checks look at beside the rows that they are about."""

    def related(self, relation: Relation, values: DataFrame) -> DataFrame:
        """The rows of another dataset that may have one of these values."""
        ...

    @property
    def moment(self) -> datetime | None:
        """When R was made; None where nobody asks how fresh the rows are."""
        ...

    def age(self, newest: int | None) -> float:
        """How many seconds older than R the newest row is, computed or stored.

        `newest` is the highest block of the rows that were computed, None where there are none.
        Where there is no row at all, it is as old as the first block that could have had one.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A check that rows fail."""

    check: Check
    #: A few of the rows, as text.
    rows: tuple[str, ...]
    #: Whether there are more.
    is_more: bool
    #: What is wrong with them, as a sentence's end.
    why: str

    def message(self, span: Span) -> str:
        """What is told of it."""
        many = "more than " if self.is_more else ""
        shown = f" ({many}{len(self.rows)} of them): {'; '.join(self.rows)}" if self.rows else ""
        return f"check `{self.check.name}` failed for blocks {span}: {self.why}{shown}"


def good(frame: DataFrame, dataset: DerivedDataset) -> DataFrame:
    """The rows that a run writes: those that are refused are told instead (app/refused.py)."""
    if refused.ERROR in frame.columns:
        frame = frame.where(F.col(refused.ERROR).isNull())
    return frame.select(*dataset.names)


def judge(
    spark: SparkSession, spec: JobSpec, dataset: DerivedDataset, frame: DataFrame, world: World
) -> tuple[Finding, ...]:
    """The checks that the rows of a DataFrame fail, in the order of the file.

    The DataFrame is read several times within one query: it holds rows, or keeps them.
    """
    parts, known = [], [{column.name: column.kind for column in dataset.columns}] * len(spec.checks)
    never = {
        place: check.condition.columns
        for place, check in enumerate(spec.checks)
        if isinstance(check.condition, NotNull)
    }
    if never:
        parts.append(_missing(frame, never))
    for place, check in enumerate(spec.checks):
        part = _failing(spark, dataset, check, frame, world)
        if part is not None:
            known[place] = {**known[place], **_kinds(part.schema)}
            told = part.select(F.lit(place).alias(_PLACE), _told(part.schema).alias(_ROW))
            parts.append(told.orderBy(_ROW).limit(ROWS_MAX + 1))
    if not parts:
        return ()
    answered: dict[int, list[str]] = {}
    for row in functools.reduce(DataFrame.unionAll, parts).toArrow().to_pylist():
        answered.setdefault(row[_PLACE], []).append(row[_ROW])
    found = []
    for place, check in enumerate(spec.checks):
        rows = [json.loads(row) for row in sorted(answered.get(place, []))]
        finding = _finding(check, rows, known[place], world)
        if finding is not None:
            found.append(finding)
    return tuple(found)


def refuse(spec: JobSpec, span: Span, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Raises CheckFailed where rows must not be published; else what to put on record."""
    fatal = [one for one in findings if one.check.severity is Severity.ERROR]
    if fatal:
        told = "; ".join(one.message(span) for one in fatal)
        raise errors.CheckFailed(
            f"`{spec.output}` is not published: {told}",
            job=spec.name,
            checks=[one.check.name for one in fatal],
            rows=[row for one in fatal for row in one.rows],
        )
    return tuple(one.message(span) for one in findings)


def problems(
    spark: SparkSession,
    spec: JobSpec,
    dataset: DerivedDataset,
    known: Mapping[str, tuple[datasets.Column, ...]],
) -> Iterator[tuple[str, str]]:
    """What is wrong with the checks now that the columns are known: where, and what.

    `known` are the columns of the datasets that relations look into.
    """
    for check in spec.checks:
        what = _problem(spark, dataset, check, known)
        if what:
            yield check.where, f"check `{check.name}` of job `{spec.name}`: {what}"


def _problem(
    spark: SparkSession,
    dataset: DerivedDataset,
    check: Check,
    known: Mapping[str, tuple[datasets.Column, ...]],
) -> str:
    own = {column.name: column.kind for column in dataset.columns}
    match check.condition:
        case Unique(columns) | NotNull(columns):
            return _absent(columns, own, dataset.name)
        case Relation(columns, other, to):
            there = {column.name: column.kind for column in known.get(other, ())}
            missing = _absent(columns, own, dataset.name) or _absent(to, there, other)
            if missing:
                return missing
            for mine, theirs in zip(columns, to, strict=True):
                if schema.SPARK[own[mine]] != schema.SPARK[there[theirs]]:
                    return f"`{mine}` and `{theirs}` of `{other}` are of different types"
        case Freshness(column=None):
            if dataset.number_column not in own:
                return f"`{dataset.name}` has no block_number; name a column that holds a time"
        case Freshness(column=column):
            assert column is not None
            if own.get(column) not in (Kind.TIME, Kind.DATE):
                return _absent([column], own, dataset.name) or f"`{column}` is no time and no day"
        case Query(text):
            empty = spark.createDataFrame([], schema.struct(dataset.columns))
            try:
                _queried(spark, dataset, text, empty)
            except PySparkException as error:
                return str(error).strip().splitlines()[0]
    return ""


def _absent(columns: Any, known: Mapping[str, Kind], dataset: str) -> str:
    for column in columns:
        if column not in known:
            return f"`{dataset}` has no column `{column}`; it has {', '.join(known)}"
    return ""


def _missing(frame: DataFrame, columns: Mapping[int, Sequence[str]]) -> DataFrame:
    """A few rows that lack a value, for each of the checks that want one, in one pass."""
    conditions = {
        place: " OR ".join(f"`{name}` IS NULL" for name in names)
        for place, names in columns.items()
    }
    places = ", ".join(f"IF({text}, {place}, NULL)" for place, text in conditions.items())
    lacking = frame.where(" OR ".join(conditions.values()))
    told = lacking.select(
        F.expr(f"explode(array_compact(array({places})))").alias(_PLACE),
        _told(frame.schema).alias(_ROW),
    )
    rank = f"row_number() OVER (PARTITION BY {_PLACE} ORDER BY {_ROW})"
    ranked = told.select(_PLACE, _ROW, F.expr(rank).alias("place"))
    return ranked.where(f"place <= {ROWS_MAX + 1}").select(_PLACE, _ROW)


def _failing(
    spark: SparkSession, dataset: DerivedDataset, check: Check, frame: DataFrame, world: World
) -> DataFrame | None:
    """The rows that fail a check; None where it is not asked by itself."""
    match check.condition:
        case Unique(columns):
            alike = frame.groupBy(*columns).agg(F.count(F.lit(1)).alias(_ALIKE))
            return alike.where(F.col(_ALIKE) > 1)
        case NotNull():
            return None
        case Relation(columns, _, to):
            wanted = frame.select(*columns).dropna().distinct()
            there = world.related(check.condition, wanted)
            renamed = there.select(*(F.col(b).alias(a) for a, b in zip(columns, to, strict=True)))
            return wanted.join(renamed, on=list(columns), how="left_anti")
        case Freshness(column=column):
            if world.moment is None:
                return None
            return frame.agg(F.max(column or dataset.number_column).alias(_NEWEST))
        case Query(text):
            return _queried(spark, dataset, text, frame)


def _queried(
    spark: SparkSession, dataset: DerivedDataset, text: str, frame: DataFrame
) -> DataFrame:
    return spark.sql(transform.scoped(text, [dataset.name]), input0=frame)


def _finding(
    check: Check, rows: list[dict[str, Any]], kinds: Mapping[str, Kind], world: World
) -> Finding | None:
    """What a check found, None where every row fulfils it."""
    if isinstance(check.condition, Freshness):
        why = _stale(check.condition, rows, world)
        return Finding(check=check, rows=(), is_more=False, why=why) if why else None
    if not rows:
        return None
    match check.condition:
        case Unique(columns):
            why = f"{', '.join(columns)} are alike in several rows"
        case NotNull(columns):
            why = f"{', '.join(columns)} must have a value"
        case Relation(columns, other, to):
            why = f"{', '.join(columns)} must be there in `{other}` ({', '.join(to)})"
        case _:
            why = "its query found rows"
    shown = tuple(_text(row, kinds) for row in rows[:ROWS_MAX])
    return Finding(check=check, rows=shown, is_more=len(rows) > ROWS_MAX, why=why)


def _stale(wanted: Freshness, rows: list[dict[str, Any]], world: World) -> str:
    """Why the newest row is too old, empty where it is not or nobody asked."""
    if not rows or world.moment is None:
        return ""
    newest = rows[0][_NEWEST]
    if wanted.column is None:
        age_s = world.age(None if newest is None else int(newest))
    elif newest is None:
        age_s = world.age(None)
    else:
        age_s = (world.moment - _moment(newest)).total_seconds()
    limit, old = timedelta(seconds=wanted.max_age_s), timedelta(seconds=age_s)
    if old <= limit:
        return ""
    return f"the newest row is {old} older than the block it is computed up to; at most {limit}"


def _moment(text: str) -> datetime:
    """A time; of a day, its end."""
    found = datetime.fromisoformat(text)
    if len(text) == len(date.min.isoformat()):
        found += timedelta(days=1)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _told(columns: StructType) -> Column:
    """A row as a text that can be told: bytes as hex, everything else as Spark writes it."""
    shown = ", ".join(f"{_shown(field)} AS `{field.name}`" for field in columns.fields)
    return F.expr(f"to_json(struct({shown}), map('ignoreNullFields', 'false'))")


def _shown(field: StructField) -> str:
    column = f"`{field.name}`"
    if isinstance(field.dataType, BinaryType):
        return f"concat('0x', lower(hex({column})))"
    if isinstance(field.dataType, ArrayType) and isinstance(field.dataType.elementType, BinaryType):
        column = f"transform({column}, each -> concat('0x', lower(hex(each))))"
    return f"CAST({column} AS string)"


def _kinds(found: StructType) -> dict[str, Kind]:
    """What columns hold that say so themselves."""
    said = {field.name: (field.metadata or {}).get(schema.KIND) for field in found.fields}
    known = {kind.value: kind for kind in Kind}
    return {name: known[kind] for name, kind in said.items() if kind in known}


def _text(row: Mapping[str, Any], kinds: Mapping[str, Kind]) -> str:
    """A row as a person reads it, 256-bit numbers as numbers."""
    shown = []
    for name, value in row.items():
        if value is not None and kinds.get(name) in (Kind.U256, Kind.SIGNED):
            is_signed = kinds[name] is Kind.SIGNED
            value = str(int.from_bytes(bytes.fromhex(value[2:]), "big", signed=is_signed))
        value = "NULL" if value is None else str(value)
        shown.append(f"{name}: {value[:VALUE_MAX]}{'…' if len(value) > VALUE_MAX else ''}")
    text = "{" + ", ".join(shown) + "}"
    return text if len(text) <= ROW_MAX else text[:ROW_MAX] + "…}"
