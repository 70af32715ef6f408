"""Owns what commands that ask in SQL share: a Spark, the place of a chain, and answers as shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from rich.console import RenderableType

from unfork import errors
from unfork.cli import output, tools
from unfork.cli.context import Context, flags_for, one_chain
from unfork.jobs import session, views
from unfork.jobs.spark import failures
from unfork.jobs.spark.place import Place

Result = TypeVar("Result")

#: Characters of a value that a person is shown.
SHOWN_MAX = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A Spark over one chain."""

    spark: SparkSession
    place: Place
    #: The path of the configuration for tasks, None for their own.
    config: str | None

    def ask(self, statement: str, limit: int) -> tuple[dict[str, Any], RenderableType]:
        """The answer to a statement, as a document and as a table."""
        wanted = views.named_in(statement, views.names(self.place))
        return told(lambda: self._asked(statement, wanted, limit))

    def _asked(
        self, statement: str, wanted: tuple[str, ...], limit: int
    ) -> tuple[dict[str, Any], RenderableType]:
        at = views.make(self.spark, self.place, wanted, config=self.config)
        frame = self.spark.sql(statement)
        rows = _rows(frame, limit)
        document = {"at": at, "columns": frame.columns, "rows": rows}
        cut = [[_cut(value) for value in row] for row in rows]
        return document, output.table(frame.columns, cut)


@contextmanager
def asking(context: Context, chain: str | None, db: str | None) -> Iterator[Asking]:
    """A Spark over one chain, while a command asks."""
    loaded = context.loaded(flags_for(chain, db))
    known = one_chain(loaded.config, chain)
    with tools.databases(loaded.config), session.opened(loaded.config) as spark:
        yield Asking(
            spark=spark,
            place=Place(config=loaded.config, chain=known),
            config=None if loaded.file is None else str(Path(loaded.file).resolve()),
        )


def told(work: Callable[[], Result]) -> Result:
    """What the work returns; what Spark has against it as an error of ours."""
    try:
        return work()
    except PySparkException as error:
        found = failures.typed(error)
        if found is not None:
            raise found from error
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise errors.ConfigInvalid(f"Spark refuses it: {text}") from error


def _rows(frame: DataFrame, limit: int) -> list[list[Any]]:
    # Arrow keeps moments in UTC, where rows of Spark would be in this machine's own zone.
    columns = frame.limit(limit).toArrow().columns
    shown = [
        [views.shown(field, value) for value in column.to_pylist()]
        for field, column in zip(frame.schema.fields, columns, strict=True)
    ]
    return [list(row) for row in zip(*shown, strict=True)]


def _cut(value: Any) -> Any:
    text = str(value)
    return text[: SHOWN_MAX - 1] + "…" if len(text) > SHOWN_MAX else value
