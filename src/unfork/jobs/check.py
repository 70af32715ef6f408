"""Owns checks: what the rows that a run computed must fulfil before anybody can read them.

A check says what it wants; judge.py asks Spark whether the rows of a run fulfil it. What each of
them covers is exact, because a run sees the rows of its own blocks or partition and no others:

- `unique` is refused where two rows of two runs could be alike unnoticed: its columns hold the
  block (or the partition), or all of the unique_key, which the table itself keeps unique.
- `not_null` and `sql` are about the rows of the run alone.
- `relation` looks the values up in another dataset as it is at the block R that the run computes up
  to; where it compares block numbers, in the run's own blocks.
- `freshness` compares the newest row there is, stored or computed, with R, by the chain's own time;
  it is asked where the head is and not over history, which is old by nature.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from unfork.config import checks as declared
from unfork.config.draft import Problem
from unfork.datasets.derivation import ByDay, Mode, Partitioning, Strategy
from unfork.jobs import sql

NUMBERS = ("block_number", "number")


class Severity(StrEnum):
    """What becomes of rows that fail a check."""

    #: They are not published, and the run has failed.
    ERROR = "error"
    #: They are, and it is put on record.
    WARN = "warn"


@dataclass(frozen=True, slots=True)
class Unique:
    """No two rows have these columns alike; NULL is like NULL."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotNull:
    """These columns have a value in every row."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    """Values of every row are there in another dataset; a row with a NULL among them passes."""

    columns: tuple[str, ...]
    dataset: str
    #: The columns there, in the same order.
    to: tuple[str, ...]

    @property
    def is_by_block(self) -> bool:
        """Whether a row can only find itself in its own block."""
        pairs = zip(self.columns, self.to, strict=True)
        return any(mine == "block_number" and other in NUMBERS for mine, other in pairs)


@dataclass(frozen=True, slots=True)
class Freshness:
    """The newest row is at most so much older than the block up to which is computed."""

    max_age_s: float
    #: The column that says how old a row is; None for the time of its block.
    column: str | None


@dataclass(frozen=True, slots=True)
class Query:
    """A SELECT over the dataset's name finds no row."""

    text: str


Condition = Unique | NotNull | Relation | Freshness | Query


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check of a job's dataset."""

    name: str
    severity: Severity
    condition: Condition
    #: Where it was written, for messages.
    where: str = field(default="configuration", compare=False, repr=False)

    def meaning(self, dataset: Callable[[str], str]) -> Check:
        """The same with the dataset that its name means (`logs` for `hot_logs`)."""
        if not isinstance(self.condition, Relation):
            return self
        return replace(
            self, condition=replace(self.condition, dataset=dataset(self.condition.dataset))
        )

    @property
    def decisive(self) -> list[Any]:
        """What decides whether rows fulfil it, as plain values."""
        match self.condition:
            case Unique(columns) | NotNull(columns):
                asked: list[Any] = [list(columns)]
            case Relation(columns, dataset, to):
                asked = [list(columns), dataset, list(to)]
            case Freshness(max_age_s, column):
                asked = [max_age_s, column]
            case Query(text):
                asked = [sql.normalized(text)]
        return [type(self.condition).__name__, self.severity.value, *asked]


def read_all(
    job: str, given: Sequence[declared.Check], where: Callable[[int], str]
) -> tuple[tuple[Check, ...], list[Problem]]:
    """The checks of a job that can be read, and what is wrong with the others."""
    found, wrong = [], []
    for place, one in enumerate(given):
        try:
            found.append(read(one, where=where(place), place=place + 1))
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            wrong.append(Problem(where(place), f"{one.sql} of job `{job}` cannot be read: {why}"))
    return tuple(found), wrong


def read(given: declared.Check, *, where: str, place: int) -> Check:
    """A check of the configuration; `place` is its position, from 1. Raises OSError, ValueError."""
    condition: Condition
    if given.unique:
        condition, name = Unique(given.unique), "_".join(("unique", *given.unique))
    elif given.not_null:
        condition, name = NotNull(given.not_null), "_".join(("not_null", *given.not_null))
    elif given.relation is not None:
        asked = given.relation
        condition = Relation(asked.columns, asked.dataset, asked.to or asked.columns)
        name = "_".join((*asked.columns, "in", asked.dataset))
    elif given.freshness is not None:
        condition = Freshness(given.freshness.max_age, given.freshness.column)
        name = "freshness"
    else:
        text = str(given.sql)
        condition, name = Query(text), f"sql_{place}"
        if given.is_file:
            file = Path(text)
            condition, name = Query(file.read_text(encoding="utf-8")), file.stem
    return Check(
        name=given.name or name,
        severity=Severity(given.severity),
        condition=condition,
        where=where,
    )


def problems(
    checks: Sequence[Check],
    datasets: Collection[str],
    *,
    job: str,
    output: str,
    mode: Mode,
    strategy: Strategy,
    unique_key: Sequence[str],
    partitioning: Partitioning | None,
) -> Iterator[Problem]:
    """What is wrong with the checks of a job, as far as it does not take its columns to see it."""
    seen: dict[str, Check] = {}
    for check in checks:
        first = seen.setdefault(check.name, check)
        if first is not check:
            what = f"job `{job}` has two checks `{check.name}` (also at {first.where}); name them"
            yield Problem(check.where, what)
        match check.condition:
            case Unique(columns):
                what = _unseen(columns, mode, strategy, unique_key, partitioning)
            case Relation(dataset=dataset) if dataset == output:
                what = "a relation looks into another dataset; compare rows of one with sql"
            case Relation(dataset=dataset) if dataset not in datasets:
                near = difflib.get_close_matches(dataset, sorted(datasets), n=1, cutoff=0.5)
                hint = f"did you mean `{near[0]}`?" if near else "declare its job"
                what = f"looks into `{dataset}`, which nobody writes; {hint}"
            case Freshness(column=column) if column is not None and mode is Mode.CURSOR:
                what = "rows of mode: cursor are as old as their block; leave column out"
            case Query(text):
                found = [f"line {one.line}: {one.what}" for one in sql.check(text, [output])]
                what = "; ".join(found)
            case _:
                what = ""
        if what:
            yield Problem(check.where, f"check `{check.name}` of job `{job}`: {what}")


def _unseen(
    columns: Sequence[str],
    mode: Mode,
    strategy: Strategy,
    unique_key: Sequence[str],
    partitioning: Partitioning | None,
) -> str:
    """Why a run could not see that rows are alike, empty where it can."""
    if strategy is Strategy.MERGE:
        return "a merge keeps one row a key by itself, and its runs return changes, not rows"
    if mode is Mode.FULL or (unique_key and set(unique_key) <= set(columns)):
        return ""
    scope = {"block_number", "block_hash"}
    if isinstance(partitioning, ByDay):
        scope.add(partitioning.column)
    if scope & set(columns):
        return ""
    names = ", ".join(columns)
    return (
        f"{names} may be alike in rows of two runs, which neither of them sees; "
        f"add block_number to it, or make {names} the unique_key, which the table keeps unique"
    )
