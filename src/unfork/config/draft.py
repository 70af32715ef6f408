"""Owns the draft: configuration values before they are checked, each with where it came from.

Layers are written into one draft, weakest first, so that a problem found later can name the file
and line, the variable or the flag that is to blame. Problems are collected, never raised one by
one: a person who mends a configuration wants to see all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The way from the root to a value: keys and list positions.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written."""

    #: As a person is told: `unfork.yaml:12`, `environment variable DB_RAW_URL`, `--db`.
    text: str
    #: Whether the value was taken from a variable, and is therefore never shown.
    hidden: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong with the configuration."""

    #: Where it was written.
    where: str
    #: What is wrong and what to do about it.
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(slots=True)
class Draft:
    """The values of all layers so far."""

    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Path, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def put(self, path: Path, value: Any, origin: Origin) -> None:
        """Writes a value over what weaker layers said; missing branches are made on the way.

        A branch that a weaker layer wrote as something else stays: the check will refuse it.
        """
        here: Any = self.data
        for depth, key in enumerate(path[:-1]):
            if isinstance(here, dict) and here.get(key) is None:
                here[key] = {}
                self.origins[path[: depth + 1]] = origin
            here = here[key]
            if not isinstance(here, dict | list):
                return
        here[path[-1]] = value
        self.origins = {
            known: source for known, source in self.origins.items() if known[: len(path)] != path
        }
        self.origins[path] = origin

    def origin(self, path: Path) -> Origin | None:
        """Where a value, or the closest branch around it that was written, came from."""
        return closest(self.origins, path)

    def chain_names(self) -> list[str]:
        """The names of the chains listed so far, by position; empty where one has none."""
        chains = self.data.get("chains")
        if not isinstance(chains, list):
            return []
        return [str(chain.get("name", "")) if isinstance(chain, dict) else "" for chain in chains]


def closest(origins: Mapping[Path, Origin], path: Path) -> Origin | None:
    """Where a value, or the closest branch around it that was written, came from."""
    for length in range(len(path), -1, -1):
        found = origins.get(path[:length])
        if found is not None:
            return found
    return None


def dotted(path: Path) -> str:
    """A path as a person writes it: `chains[0].source.urls`."""
    text = ""
    for key in path:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text
