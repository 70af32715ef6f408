"""Goal: the embedded server is there while somebody uses it, and only then; nothing that dies takes
it from the others or leaves it unusable. Method: real processes, one of them killed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.places import SETTINGS
from unfork import errors
from unfork.database import embedded
from unfork.database.embedded import Embedded

USER = """
import sys
from pathlib import Path
from unfork.database.embedded import Embedded
print(Embedded(Path(sys.argv[1])).start(), flush=True)
sys.stdin.readline()
"""


def another_process(server: Embedded) -> subprocess.Popen[str]:
    """A process that uses the server until its input ends."""
    command = [sys.executable, "-c", USER, str(server.folder)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_environment()
    )
    assert process.stdout is not None and process.stdout.readline().startswith("postgresql://")
    return process


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": "src", "PGPORT": "1", "PGHOST": "nowhere"}


def is_answering(dsn: str) -> bool:
    try:
        with psycopg.connect(dsn, connect_timeout=5) as connection:
            return connection.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def test_the_last_user_ends_the_server_and_no_other(own_server: Embedded) -> None:
    dsn = own_server.start()
    assert own_server.start() == dsn
    other = another_process(own_server)
    own_server.stop()
    assert is_answering(dsn)
    other.communicate("\n", timeout=60)
    assert other.returncode == 0
    assert not is_answering(dsn)


def test_a_killed_user_neither_ends_the_server_nor_keeps_it_alive(own_server: Embedded) -> None:
    other = another_process(own_server)
    other.kill()
    other.communicate(timeout=60)
    dsn = own_server.start()
    assert is_answering(dsn)
    own_server.stop()
    assert not is_answering(dsn)


def test_a_server_that_was_killed_recovers_what_was_committed(own_server: Embedded) -> None:
    dsn = own_server.start()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        connection.execute("CHECKPOINT")
    postmaster = psutil.Process(own_server.pid)
    family = [postmaster, *postmaster.children(recursive=True)]
    for process in family:
        process.kill()
    psutil.wait_procs(family, timeout=30)
    own_server.stop()
    with psycopg.connect(own_server.start()) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (7,)


def test_nothing_listens_on_the_network_and_the_socket_is_private(own_server: Embedded) -> None:
    with psycopg.connect(own_server.start()) as connection:
        assert connection.execute("SHOW listen_addresses").fetchone() == ("",)
        assert connection.execute("SHOW fsync").fetchone() == (SETTINGS["fsync"],)
        found = connection.execute("SHOW unix_socket_directories").fetchone()
    assert found is not None
    socket = Path(found[0]) / f".s.PGSQL.{embedded.PORT}"
    assert socket.stat().st_mode & 0o077 == 0


def test_a_folder_with_a_long_name_gets_a_socket_elsewhere() -> None:
    with tempfile.TemporaryDirectory(prefix="unfork-tests-") as root:
        server = Embedded(Path(root) / ("long" * 30), settings=SETTINGS)
        try:
            assert is_answering(server.start())
        finally:
            server.stop()


def test_a_machine_without_the_wheel_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(errors.ToolMissing, match="DB_RAW_URL"):
        embedded.bundled_binaries()


def test_data_of_another_version_is_not_touched_by_the_wrong_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "PG_VERSION").write_text("12\n")
    with pytest.raises(errors.ToolMissing, match="no embedded Postgres 12"):
        Embedded(tmp_path)
