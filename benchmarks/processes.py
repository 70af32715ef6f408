"""Owns the processes of an end-to-end benchmark: a Postgres, a devnet and a real follower.

The follower is `unfork ingest`, as a person starts it. Everything lives in one temporary folder and
ends with the block that opened it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

import unfork
from benchmarks import servers
from unfork.devnet.knobs import Knobs
from unfork.hot import schema

#: Seconds between two looks at the database.
LOOK_S = 0.001
#: Seconds without progress after which a benchmark gives up.
PATIENCE_S = 60.0


class Node:
    """A devnet that moves when it is told to."""

    def __init__(self, knobs: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
            env=_environment(),
        )
        urls = self._tell(knobs)
        self.http: str = urls["http"]
        self.ws: str = urls["ws"]

    def extend(self) -> dict[str, Any]:
        """One more block, announced; says when, and which."""
        return self._tell({"do": "extend", "blocks": 1})

    def fork(self, *, depth: int, length: int) -> dict[str, Any]:
        """Other blocks instead of the last ones, announced."""
        return self._tell({"do": "fork", "depth": depth, "length": length})

    def grow(self, to: int) -> dict[str, Any]:
        """Blocks up to a number, announced as one."""
        return self._tell({"do": "grow", "to": to})

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _tell(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class Watch:
    """Another connection that looks whether a block is there: what a reader would see."""

    def __init__(self, dsn: str, chain: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        name = schema.name(chain)
        self._block = f'SELECT 1 FROM "{name}".blocks WHERE number = %s AND hash = %s'
        self._position = f'SELECT position_number FROM "{name}".chain'

    def seen(self, number: int, hash: str) -> float:
        """Waits until the row of a block is visible and returns that moment."""
        sought = (number, bytes.fromhex(hash))
        until = time.monotonic() + PATIENCE_S
        while True:
            found = self._connection.execute(self._block, sought).fetchone()
            now = time.monotonic()
            if found is not None:
                return now
            if now > until:
                raise TimeoutError(f"block {number} did not come within {PATIENCE_S:g} s")
            time.sleep(LOOK_S)

    def position(self) -> int:
        """The last block held, -1 where none is or the tables are not made yet."""
        try:
            row = self._connection.execute(self._position).fetchone()
        except psycopg.errors.UndefinedTable:
            return -1
        return -1 if row is None or row[0] is None else int(row[0])

    def reached(self, number: int) -> None:
        """Waits until the position is at a block."""
        until = time.monotonic() + PATIENCE_S
        while self.position() < number:
            if time.monotonic() > until:
                raise TimeoutError(f"block {number} was not reached within {PATIENCE_S:g} s")
            time.sleep(0.01)

    def close(self) -> None:
        """Gives up the connection."""
        self._connection.close()


class Place:
    """A temporary folder with a Postgres in it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn

    @contextmanager
    def node(self, **knobs: Any) -> Iterator[Node]:
        """A devnet of its own, at block 0."""
        Knobs(**knobs)  # Refuses here what the process would refuse out of sight.
        node = Node(knobs)
        try:
            yield node
        finally:
            node.close()

    @contextmanager
    def follower(
        self, chain: str, *urls: str, options: tuple[str, ...] = (), **settings: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`unfork ingest` of a chain; settings are those of its source."""
        config = self.folder / f"{chain}.yaml"
        # YAML reads JSON.
        source = {"urls": list(urls), **settings}
        document = {"data_dir": str(self.folder), "chains": [{"name": chain, "source": source}]}
        config.write_text(json.dumps({**document, "database": {"raw_url": self.dsn}}))
        command = [sys.executable, "-m", "unfork", "--config", str(config), "ingest", "--json"]
        process = subprocess.Popen(
            [*command, "--chain", chain, *options],
            stdout=subprocess.DEVNULL,
            cwd=self.folder,
            env=_environment(),
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            if process.wait(timeout=20) != 0:
                raise RuntimeError(f"the follower ended with {process.returncode}")

    @contextmanager
    def watch(self, chain: str) -> Iterator[Watch]:
        """Another connection that looks at the tables of a chain."""
        watch = Watch(self.dsn, chain)
        try:
            yield watch
        finally:
            watch.close()


@contextmanager
def place() -> Iterator[Place]:
    """A folder and an embedded Postgres with the settings that users get."""
    with servers.postgres() as (folder, dsn):
        yield Place(folder, dsn)


def _environment() -> dict[str, str]:
    """Lets other processes import the very unfork that this one has, from any folder."""
    own = str(Path(unfork.__file__).resolve().parents[1])
    given = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{own}{os.pathsep}{given}" if given else own}
