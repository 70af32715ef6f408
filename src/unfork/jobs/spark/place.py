"""Owns the way from names to a database, taken anew in every process that reads.

Options of a data source show up in plans and event logs, and travel to executors. So they hold
names and the path of a configuration file at most; whoever reads finds the connection in its own
environment, in the same way as every command does.
"""

from __future__ import annotations

import functools
import os
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from unfork import errors
from unfork.app import schema as app_schema
from unfork.config import load, tree
from unfork.database.embedded import Embedded
from unfork.database.queries import Queries
from unfork.hot import schema as raw_schema
from unfork.hot.payloads import PayloadStore
from unfork.jobs.spark import lending
from unfork.jobs.spark.connection import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A chain, and where its rows are."""

    config: tree.Config
    chain: tree.Chain

    @property
    def raw_url(self) -> str:
        """Where the raw database is; never part of a message as it stands."""
        url = self.config.database.raw_url
        return url or Embedded(Path(self.config.data_dir) / "postgres").dsn

    @property
    def app_url(self) -> str:
        """Where the database of everything derived is."""
        return self.config.database.app_url or self.raw_url

    @property
    def payloads(self) -> PayloadStore:
        """Where large values are."""
        return PayloadStore.of(self.config, self.chain.name)

    @property
    def queries(self) -> Queries:
        """The statements of readers, for the schemas of the chain."""
        return _queries(self.chain.name)

    def connect_raw(self) -> Connection:
        """A connection to the raw database; the caller closes it."""
        return self._connect(self.raw_url)

    def raw(self) -> AbstractContextManager[Connection]:
        """A connection to the raw database, for one reader."""
        return lending.lent(self.raw_url, self.connect_raw)

    def app(self) -> AbstractContextManager[Connection]:
        """A connection to the database of everything derived, for one reader."""
        return lending.lent(self.app_url, lambda: self._connect(self.app_url))

    def _connect(self, url: str) -> Connection:
        database = self.config.database
        return Connection(
            url,
            timeout_s=database.connect_timeout_s,
            # A task streams for as long as Spark takes its rows; a state is never held for longer.
            statement_s=max(self.config.spark.snapshot_max_s, database.statement_timeout_s),
        )


def find(file: str | None, chain: str | None) -> Place:
    """The place of a chain; its name may be left out where only one is configured.

    `file` is the configuration's, None where the environment or the folder says which.
    """
    fallback = {"name": chain} if chain is not None else None
    config = _config(file, _stamp(file), tuple(sorted(fallback.items())) if fallback else ())
    known = [each for each in config.chains if chain in (None, each.name)]
    if len(known) != 1:
        names = ", ".join(each.name for each in config.chains) or "none"
        raise errors.ConfigInvalid(
            f"option chain: {chain!r} names no chain; configured are {names}"
            if chain is not None
            else f"option chain is missing; configured are {names}"
        )
    return Place(config=config, chain=known[0])


@functools.lru_cache(maxsize=64)
def _queries(chain: str) -> Queries:
    folder = resources.files(__package__) / "queries"
    return Queries(folder, {"raw": raw_schema.name(chain), "app": app_schema.name(chain)})


@functools.lru_cache(maxsize=8)
def _config(
    file: str | None, stamp: tuple[object, ...], fallback: tuple[tuple[str, str], ...]
) -> tree.Config:
    """The configuration, read once per process and version of its file: tasks come in hundreds."""
    chosen = None if file is None else Path(file)
    return load.load(chosen, fallback=dict(fallback) or None).config


def _stamp(file: str | None) -> tuple[object, ...]:
    """What the configuration depends on beside its file's name."""
    path = Path(file or os.environ.get("UNFORK_CONFIG") or load.find(Path.cwd()) or ".")
    changed = path.stat().st_mtime_ns if path.is_file() else None
    given = (item for item in os.environ.items() if item[0].startswith(("UNFORK_", "DB_")))
    return (str(path), changed, *sorted(given))
