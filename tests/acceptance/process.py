"""Runs the real command for tests: to its end, or in the background until the test has enough."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Seconds that one command may take here.
PATIENCE_S = 240


def environment(more: dict[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what would configure unfork."""
    ours = ("UNFORK_", "DB_", "MAX_REORG", "SYNC_", "PAYLOAD_", "ORPHAN_", "SWEEP_", "DENORM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    source = str(Path(__file__).parents[2] / "src")
    return {**kept, "PYTHONPATH": source, "NO_COLOR": "1", "COLUMNS": "160", **(more or {})}


def unfork(
    folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs one command to its end, with nobody to answer its questions."""
    return subprocess.run(
        [sys.executable, "-m", "unfork", *arguments],
        cwd=folder,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def answer(
    folder: Path, *arguments: str, code: int = 0, env: dict[str, str] | None = None
) -> dict[str, Any]:
    """The one JSON document of a command that must exit with `code`."""
    done = unfork(folder, *arguments, "--json", env=env)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


@contextmanager
def background(
    folder: Path, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A command that runs while the block does, and is killed if it outlives it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "unfork", *arguments],
        cwd=folder,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # Whoever starts these tests in the background of a shell has them ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def devnet(folder: Path, *arguments: str) -> Iterator[dict[str, Any]]:
    """A devnet that serves while the block runs; gives its first words."""
    with background(folder, "devnet", "--json", *arguments) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


def eventually(check: Callable[[], bool]) -> None:
    """Asks until it is true; fails when that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while not check():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.1)
