"""Owns the branch of the configuration that declares checks of a job's dataset.

Each key is checked by itself here; what a check means for its job (columns, other datasets, what a
run can see) is said by the jobs layer.
"""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from unfork.config import interval
from unfork.config.branch import Branch

#: What a check may ask; exactly one of them.
KINDS = ("unique", "not_null", "relation", "freshness", "sql")


class Relation(Branch):
    """Every value is there in another dataset."""

    columns: tuple[str, ...] = Field(min_length=1)
    """The columns whose values are looked for; a row in which one of them is NULL passes."""
    dataset: str
    """The dataset in which they are looked for, as it is at the block that a run computes up to."""
    to: tuple[str, ...] = ()
    """Its columns, in the same order; those of the same names when left out."""

    @model_validator(mode="after")
    def _is_paired(self) -> Relation:
        if self.to and len(self.to) != len(self.columns):
            raise ValueError(f"columns names {len(self.columns)} and to names {len(self.to)}")
        return self


class Freshness(Branch):
    """The newest row is not much older than the newest block."""

    max_age: float
    """Seconds of the chain's own time between the newest row and the block that a run computes up
    to, or 30s, 10m, 2h, 1d."""
    column: str | None = None
    """A time or a day that says how old a row is; the time of its block when left out."""

    @field_validator("max_age", mode="before")
    @classmethod
    def _is_interval(cls, value: Any) -> Any:
        return interval.seconds(value)


class Check(Branch):
    """What the rows that a run computed must fulfil before they are published."""

    name: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9_]{0,62}$")
    """Names the check in messages; made of what it asks when left out."""
    severity: Literal["error", "warn"] = "error"
    """error: rows that fail are not published. warn: they are, and it is put on record."""
    unique: tuple[str, ...] = ()
    """Columns that no two rows have alike."""
    not_null: tuple[str, ...] = ()
    """Columns that always have a value."""
    relation: Relation | None = None
    """Values that must be there in another dataset."""
    freshness: Freshness | None = None
    """How old the newest row may be."""
    sql: str | None = None
    """A SELECT over the dataset's name that must find no row, or the .sql file that holds it."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Check:
        given = [kind for kind in KINDS if getattr(self, kind)]
        if len(given) != 1:
            said = f"; this one has {', '.join(given)}" if given else ""
            raise ValueError(f"a check asks exactly one of {', '.join(KINDS)}{said}")
        for columns in (self.unique, self.not_null):
            if len(set(columns)) != len(columns):
                raise ValueError("names a column twice")
        return self

    @property
    def is_file(self) -> bool:
        """Whether `sql` names a file."""
        text = self.sql or ""
        return text.endswith(".sql") and not re.match(r"\s*(?:select|with)\s|\s*\(", text, re.I)
