"""Owns the choice of files: which of them hold rows of a span, by what their versions say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.lake.file import File


class Versioned(Protocol):
    """A version, as far as reading goes."""

    @property
    def location(self) -> str:
        """Its folder below the root."""
        ...

    @property
    def span(self) -> Span:
        """The blocks it holds."""
        ...

    @property
    def files(self) -> tuple[File, ...]:
        """Its files."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A version without what readers need not know."""

    location: str
    span: Span
    files: tuple[File, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A file, and the blocks that are wanted of it."""

    #: Its name below the root.
    path: str
    span: Span


def of(versions: Iterable[Versioned], span: Span) -> list[Piece]:
    """The files that hold rows of a span, by block; versions without rows have none."""
    found = []
    for version in versions:
        wanted = spans.intersect(version.span, span)
        for file in version.files if wanted is not None else ():
            if wanted is not None and wanted.overlaps(Span(file.first, file.last)):
                found.append(Piece(path=f"{version.location}/{file.name}", span=wanted))
    return sorted(found, key=lambda piece: (piece.span, piece.path))
