"""A Postgres server of a test's own, which it may stop, freeze and bring back at will."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

from psycopg import conninfo

from unfork.database.embedded import Embedded

SETTINGS = {
    "shared_buffers": "32MB",
    "max_connections": "40",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "synchronous_commit": "off",
    "jit": "off",
}


class OwnPostgres:
    """One server in a folder."""

    def __init__(self, folder: Path, binaries: Path | None) -> None:
        self.folder = folder
        self.embedded = Embedded(folder, binaries=binaries, settings=SETTINGS)

    @property
    def dsn(self) -> str:
        """Where it is reached, also while it is away."""
        return self.embedded.dsn

    @property
    def socket_path(self) -> str:
        """The server's socket."""
        parameters = conninfo.conninfo_to_dict(self.dsn)
        return f"{parameters['host']}/.s.PGSQL.{parameters.get('port', 5432)}"

    async def start(self) -> None:
        """Brings the server up; returns when it answers."""
        await asyncio.to_thread(self.embedded.start)

    async def stop(self) -> None:
        """Ends the server cleanly, with every connection to it."""
        await asyncio.to_thread(self.embedded.stop)

    def freeze(self) -> None:
        """Stops every process of the server where it stands; connections stay open."""
        # The parent first, so that it starts no others meanwhile.
        os.kill(self._processes()[0], signal.SIGSTOP)
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets the processes go on."""
        self._signal(signal.SIGCONT)

    async def crash(self) -> None:
        """Ends the server without any order; it comes back after a recovery from its log.

        With synchronous_commit off, as here, it may have forgotten its last transactions.
        """
        os.kill(self._processes()[0], signal.SIGQUIT)
        pid_file = self.folder / "data" / "postmaster.pid"
        async with asyncio.timeout(60.0):
            while pid_file.exists():
                await asyncio.sleep(0.01)
        await self.stop()
        await self.start()

    def _signal(self, number: int) -> None:
        for pid in self._processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _processes(self) -> list[int]:
        parent = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        children = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    # The name may hold spaces and brackets; what follows its last one is fixed.
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if int(fields[1]) == parent:
                        children.append(int(entry.name))
        return [parent, *children]


@contextlib.contextmanager
def made(binaries: Path | None = None) -> Iterator[OwnPostgres]:
    """A server in a temporary folder, running; it is ended in whatever state it is then."""
    # A socket's path is short, and the folder must be open to the user that Postgres runs as.
    folder = Path(tempfile.mkdtemp(prefix="unfork-own-"))
    postgres = OwnPostgres(folder, binaries)
    try:
        postgres.embedded.start()
        yield postgres
    finally:
        with contextlib.suppress(OSError, ValueError, IndexError):
            postgres.thaw()
        postgres.embedded.stop()
        shutil.rmtree(folder, ignore_errors=True)
