"""Owns the Postgres of a benchmark: a server of its own, or a database in one that many share.

What is measured has a server to itself. Quick runs measure nothing: inside `shared` each of them
gets an empty database of one server, which is made once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from unfork.database.embedded import Embedded

#: The addresses of the server that is shared, and of the databases made in it.
_shared: list[str] = []


@contextmanager
def postgres() -> Iterator[tuple[Path, str]]:
    """A folder that goes with the benchmark, and the address of a database that is empty."""
    with tempfile.TemporaryDirectory(prefix="unfork-bench-") as name:
        folder = Path(name)
        # The embedded server runs as another user where we are root.
        folder.chmod(0o755)
        if _shared:
            yield folder, _database()
            return
        server = Embedded(folder / "postgres")
        try:
            yield folder, server.start()
        finally:
            server.stop()


@contextmanager
def shared() -> Iterator[None]:
    """Everything that asks for a Postgres meanwhile gets a database of one server."""
    with postgres() as (_, dsn):
        _shared.append(dsn)
        try:
            yield
        finally:
            _shared.clear()


def _database() -> str:
    """A new database in the server that is shared."""
    name = f"bench_{len(_shared)}"
    with psycopg.connect(_shared[0], autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    _shared.append(urlsplit(_shared[0])._replace(path=f"/{name}").geturl())
    return _shared[-1]
