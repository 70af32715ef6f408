"""Owns how commands answer: as text for people, or as JSON for scripts (`--json`).

A command hands over one result: a document of plain values, and how a person would like to see it.
Under `--json` standard output holds exactly one JSON document, whatever happens, an error included;
everything else goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.errors import UnforkError

Document = Mapping[str, Any]

#: Columns of a table where standard output is no terminal.
WIDTH = 160


class Output(ABC):
    """Where the answer of a command goes."""

    @abstractmethod
    def result(self, document: Document, *text: RenderableType) -> None:
        """Gives the command's one answer; `text` is what a person sees of it."""

    @abstractmethod
    def note(self, text: RenderableType) -> None:
        """Says something on the way to the answer."""

    @abstractmethod
    def error(self, error: UnforkError) -> None:
        """Says why there is no answer."""

    @abstractmethod
    def confirm(self, question: str) -> bool:
        """Asks a person; a script must say --yes beforehand."""


class TextOutput(Output):
    """For people: tables and sentences; plain text where standard output is no terminal."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        if not self.console.is_terminal and "COLUMNS" not in os.environ:
            # A file or a pipe has no width; a table must not be cut to that of no terminal.
            self.console = Console(highlight=False, soft_wrap=True, width=WIDTH)
        self.stderr = Console(stderr=True, highlight=False, soft_wrap=True)

    def result(self, document: Document, *text: RenderableType) -> None:
        for part in text:
            self.console.print(part)

    def note(self, text: RenderableType) -> None:
        self.console.print(text)

    def error(self, error: UnforkError) -> None:
        self.stderr.print(Text(f"error {error.code}: ", style="bold red").append(error.message))
        hint = hint_of(error)
        if hint:
            self.stderr.print(Text(f"hint: {hint}", style="yellow"))
        self.stderr.print(Text(f"more: docs/errors.md#{error.code.lower()}", style="dim"))

    def confirm(self, question: str) -> bool:
        if not sys.stdin.isatty():
            self.stderr.print(f"{question} Nobody is there to answer; say --yes to go on.")
            return False
        return bool(click.confirm(question))


class JsonOutput(Output):
    """For scripts: one JSON document on standard output, the first that is given."""

    def __init__(self) -> None:
        #: Whether the one document was written; what comes after it goes to standard error.
        self._is_answered = False

    def result(self, document: Document, *text: RenderableType) -> None:
        self._answer(document)

    def note(self, text: RenderableType) -> None:
        Console(stderr=True, highlight=False, soft_wrap=True).print(text)

    def error(self, error: UnforkError) -> None:
        fields = {key: value for key, value in error.fields.items() if _is_plain(value)}
        document = {
            "code": error.code,
            "exit_code": error.exit_code,
            "message": error.message,
            "hint": hint_of(error),
            **({"fields": fields} if fields else {}),
        }
        self._answer({"error": document})

    def confirm(self, question: str) -> bool:
        click.echo(f"{question} Say --yes to go on.", err=True)
        return False

    def _answer(self, document: Document) -> None:
        click.echo(json.dumps(document, default=plain), err=self._is_answered)
        self._is_answered = True


def make(as_json: bool) -> Output:
    """The output a command was asked for."""
    return JsonOutput() if as_json else TextOutput()


def hint_of(error: UnforkError) -> str:
    """What the error's class says in general, where its message says something more exact."""
    general = " ".join((type(error).__doc__ or "").split())
    return "" if general == error.message else general


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """A plain table; numbers stand right."""
    made = Table(title=title or None, title_justify="left", box=None, pad_edge=False)
    rows = [list(row) for row in rows]
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        made.add_column(column, justify="right" if is_number else "left", header_style="bold")
    for row in rows:
        made.add_row(*(Text(_cell(value)) for value in row))
    return made


def size(count: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def plain(value: object) -> Any:
    """A value as JSON can hold it: refs with their hash, bytes as 0x hex, times in ISO 8601."""
    match value:
        case BlockRef():
            return {"number": value.number, "hash": "0x" + value.hash.hex()}
        case Span():
            return {"first": value.first, "last": value.last}
        case bytes():
            return "0x" + value.hex()
        case datetime():
            return value.isoformat()
        case set() | frozenset():
            return sorted(value)
        case _:
            return str(value)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case _:
            return str(value)


def _is_plain(value: object) -> bool:
    return isinstance(value, str | int | float | bool | list | BlockRef | Span | None)
