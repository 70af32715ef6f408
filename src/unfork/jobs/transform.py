"""Owns the transform of a job: the function or the query that makes its rows out of its inputs.

A transform only says what is to be computed. It is given DataFrames and returns one; nothing is
read or written until somebody asks for the rows. A query reads its inputs by the names that the
file gives them, which are names of its own: two queries that run at once do not see each other's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from unfork.jobs import code
from unfork.jobs.spec import JobSpec

#: The parameter of a function that wants to be told the job's settings.
CONFIG = "config"

#: What may stand after the end of a query.
_AFTER = re.compile(r"(?:\s|;|--[^\n]*(?:\n|\Z))*\Z")


class NoTransform(Exception):
    """What a job is to run cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """What a job computes, ready to be applied."""

    spec: JobSpec
    #: The query, None where a function says what to compute.
    text: str | None
    #: The function, None where a query does.
    function: Callable[..., Any] | None
    #: Whether the function wants to be told the job's settings.
    takes_config: bool = False

    def apply(self, spark: SparkSession, inputs: Sequence[DataFrame]) -> DataFrame:
        """The rows of the job's output, made from its inputs and then its reads, each in order."""
        assert len(inputs) == len(self.spec.names)
        if self.text is not None:
            named: dict[str, Any] = {f"input{index}": frame for index, frame in enumerate(inputs)}
            return spark.sql(scoped(self.text, self.spec.names), **named)
        assert self.function is not None
        told = {CONFIG: self.spec.config} if self.takes_config else {}
        made = self.function(*inputs, **told)
        # Spark has one class of DataFrames here and another one over Connect.
        if not callable(getattr(made, "toArrow", None)):
            raise NoTransform(f"it returned {type(made).__name__}, not a DataFrame")
        return made  # type: ignore[no-any-return]


def load(spec: JobSpec, folder: Path | None) -> Transform:
    """The transform of a job, imported or read; raises NoTransform."""
    if spec.sql is not None:
        try:
            text = spec.sql.read_text(encoding="utf-8")
        except OSError as error:
            raise NoTransform(f"{spec.sql} cannot be read: {error.strerror}") from error
        return Transform(spec=spec, text=text, function=None)
    assert spec.transform is not None
    try:
        function = code.load(spec.transform, folder)
    except code.CodeMissing as error:
        raise NoTransform(str(error)) from error
    return Transform(
        spec=spec, text=None, function=function, takes_config=_takes_config(spec, function)
    )


def _takes_config(spec: JobSpec, function: Callable[..., Any]) -> bool:
    """Whether a function has a parameter for the settings; raises NoTransform where it misfits."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return False
    takes = CONFIG in signature.parameters
    try:
        signature.bind(*spec.names, **({CONFIG: None} if takes else {}))
    except TypeError as error:
        names = ", ".join((*spec.inputs, *(read.name for read in spec.reads)))
        raise NoTransform(
            f"`{spec.transform}` cannot be called with {names} as its arguments: {error}"
        ) from error
    return takes


def scoped(text: str, names: Sequence[str]) -> str:
    """A query in which the names of its inputs mean what `spark.sql` is given beside it."""
    inner = _AFTER.sub("", text).replace("{", "{{").replace("}", "}}")
    heads = (f"`{name}` AS (SELECT * FROM {{input{n}}})" for n, name in enumerate(names))
    return f"WITH {', '.join(heads)} SELECT * FROM (\n{inner}\n)"
