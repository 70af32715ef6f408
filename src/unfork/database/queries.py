"""Owns named queries: SQL lives in `.sql` files, and code names what it runs.

A file holds queries, each opened by `-- name: words` and a line that describes it. `{raw}`, `{app}`
and other words in braces stand for identifiers; they are filled in once, quoted, when the queries
are bound to a chain.

Where a statement depends on the columns of a table that is only known at run time, it is put
together from fragments: named pieces of SQL of the same files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources.abc import Traversable

_NAME = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Query:
    """One statement, ready to run."""

    #: Names the statement in logs and to a probe.
    name: str
    #: The SQL, with %(name)s where parameters go.
    text: str


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL that code put together, every name and value in it quoted already."""

    text: str


#: What a placeholder may stand for: an identifier, a list of them, a whole number, or SQL.
Value = str | tuple[str, ...] | int | Query | Sql


class Queries:
    """The queries of one folder, by name, bound to identifiers."""

    def __init__(self, folder: Traversable, identifiers: Mapping[str, Value]) -> None:
        self._identifiers = dict(identifiers)
        self._texts = _read(folder)
        self._filled: dict[tuple[object, ...], Query] = {}

    def __getitem__(self, name: str) -> Query:
        return self._query(name, name, {})

    def of(self, name: str, subject: str, **identifiers: Value) -> Query:
        """The query for one subject (a table, mostly), with further placeholders filled in."""
        return self._query(name, f"{name}_{subject}", identifiers)

    def made(self, name: str, **identifiers: Value) -> Query:
        """The same, filled in anew each time: for subjects that come once and never again."""
        return Query(name, fill(self._texts[name], {**self._identifiers, **identifiers}))

    def fragment(self, name: str, **identifiers: Value) -> Query:
        """A piece of SQL for other queries, without its description."""
        lines = self._texts[name].splitlines()
        text = "\n".join(line for line in lines if not line.startswith("--")).strip()
        return Query(name, fill(text, {**self._identifiers, **identifiers}))

    def names(self) -> list[str]:
        """Every query of the folder."""
        return sorted(self._texts)

    def _query(self, name: str, title: str, identifiers: Mapping[str, Value]) -> Query:
        """The query filled in, remembered for the next time unless it names numbers."""
        key = (title, *identifiers.values())
        if key in self._filled:
            return self._filled[key]
        query = Query(title, fill(self._texts[name], {**self._identifiers, **identifiers}))
        if not any(isinstance(value, int | Sql) for value in identifiers.values()):
            self._filled[key] = query
        return query


def fill(text: str, identifiers: Mapping[str, Value]) -> str:
    """Replaces every `{word}` by its quoted value; an unknown word is our own mistake."""

    def quoted(match: re.Match[str]) -> str:
        value = identifiers[match.group(1)]
        if isinstance(value, int):
            return str(value)
        if isinstance(value, Query | Sql):
            return value.text
        return quote(value) if isinstance(value, str) else ", ".join(map(quote, value))

    return _PLACEHOLDER.sub(quoted, text)


def joined(pieces: Iterable[Query], separator: str = ", ") -> Query:
    """Fragments one after another."""
    return Query("joined", separator.join(piece.text for piece in pieces))


def literal(text: str) -> Query:
    """A text that means itself in SQL, in a statement with parameters."""
    return Query("literal", "'" + text.replace("'", "''").replace("%", "%%") + "'")


def quote(identifier: str) -> str:
    """An identifier that means itself, whatever is in it."""
    assert identifier and "\x00" not in identifier
    return '"' + identifier.replace('"', '""') + '"'


def _read(folder: Traversable) -> dict[str, str]:
    texts: dict[str, str] = {}
    # The folder may lie in a zip file, as it does on the executors of a cluster.
    files = (path for path in folder.iterdir() if path.name.endswith(".sql"))
    for path in sorted(files, key=lambda path: path.name):
        parts = _NAME.split(path.read_text(encoding="utf-8"))
        for name, text in zip(parts[1::2], parts[2::2], strict=True):
            assert name not in texts, f"two queries are named {name}"
            assert text.lstrip().startswith("--"), f"query {name} has no description"
            texts[name] = text.strip()
    return texts
