"""Runs the real command, `python -m unfork`, as a process of its own that can be killed.

Each process leads a session of its own, so that a signal reaches it and whatever it started, and
nothing else. What it says goes to files: a pipe that nobody reads would hold it up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

REPOSITORY = Path(__file__).parents[2]

Value = TypeVar("Value")


class Failed(AssertionError):
    """A process ended, or a condition did not come true in time."""


@dataclass(slots=True)
class Workplace:
    """A folder with a configuration file, from which commands are run."""

    folder: Path
    chain: str
    dsn: str
    #: Endpoints of the chain.
    urls: tuple[str, ...]
    #: Settings of the chain beyond its name and endpoints, as in unfork.yaml.
    settings: Mapping[str, Any] = field(default_factory=dict)
    #: Settings of how endpoints are talked to.
    source: Mapping[str, Any] = field(default_factory=dict)
    #: Settings of the database beyond its place.
    database: Mapping[str, Any] = field(default_factory=dict)
    _runs: int = 0

    @property
    def payloads(self) -> Path:
        """Where large values of the chain lie."""
        return self.folder / "payloads" / self.chain

    def write(self) -> Path:
        """Writes the configuration file."""
        chain = {
            "name": self.chain,
            "source": {"urls": list(self.urls), "poll_interval_ms": 50, **self.source},
            **self.settings,
        }
        document = {
            "data_dir": str(self.folder / "data"),
            "database": {"raw_url": self.dsn, "app_url": self.dsn, **self.database},
            "payloads": {"store": f"file:{self.folder / 'payloads'}"},
            "chains": [chain],
        }
        path = self.folder / "unfork.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    async def start(self, *arguments: str) -> Process:
        """Starts a command; `ingest` of the chain where none is named."""
        config = self.write()
        self._runs += 1
        words = arguments or ("ingest", "--chain", self.chain, "--json")
        return await start("--config", str(config), *words, into=self.folder / f"run{self._runs}")

    async def run(self, *arguments: str, timeout_s: float = 60.0) -> Process:
        """Runs a command to its end, whatever its exit code."""
        process = await self.start(*arguments)
        try:
            await process.wait(timeout_s)
        finally:
            await process.kill()
        return process


@dataclass(slots=True)
class Process:
    """One run of the command."""

    process: asyncio.subprocess.Process
    out: Path
    err: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code, None while it runs."""
        return self.process.returncode

    def said(self) -> str:
        """Everything it wrote to standard error."""
        return self.err.read_text(errors="replace")

    def answer(self) -> Any:
        """The JSON document it wrote to standard output: the last line where there are many."""
        text = self.out.read_text()
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return json.loads(text.strip().splitlines()[-1])

    def signal(self, number: int) -> None:
        """Sends a signal to the process and everything it started."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    async def kill(self) -> None:
        """Ends it as a power cut would; safe to repeat."""
        self.signal(signal.SIGKILL)
        await self.process.wait()

    async def wait(self, timeout_s: float) -> int:
        """Its exit code, once it ended by itself."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self.process.wait()
        except TimeoutError:
            raise Failed(f"still running after {timeout_s} s: {self.said()[-3000:]}") from None

    async def until(
        self, condition: Callable[[], Awaitable[Value]], *, timeout_s: float = 60.0
    ) -> Value:
        """What the condition gives, as soon as it gives something, while the process runs."""

        async def once() -> Value:
            if self.exit_code is not None:
                raise Failed(f"ended with {self.exit_code}: {self.said()[-3000:]}")
            return await condition()

        try:
            return await until(once, timeout_s=timeout_s)
        except TimeoutError:
            raise Failed(f"not in {timeout_s} s: {self.said()[-3000:]}") from None


async def start(
    *arguments: str, into: Path, environment: Mapping[str, str] | None = None
) -> Process:
    """Starts `python -m unfork` with the given words; what it says goes below `into`."""
    into.mkdir(parents=True, exist_ok=True)
    given = {key: value for key, value in os.environ.items() if not _is_ours(key)}
    given["PYTHONPATH"] = str(REPOSITORY / "src")
    given |= environment or {}
    with open(into / "out", "wb") as out, open(into / "err", "wb") as err:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "unfork",
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=into,
            env=given,
            start_new_session=True,
        )
    return Process(process, into / "out", into / "err")


async def until(condition: Callable[[], Awaitable[Value]], *, timeout_s: float) -> Value:
    """What the condition gives, as soon as it gives something; asked again and again."""
    async with asyncio.timeout(timeout_s):
        while not (value := await condition()):
            await asyncio.sleep(0.01)
        return value


def _is_ours(variable: str) -> bool:
    """Whether a variable would change what the command does."""
    return variable.startswith(("UNFORK_", "DB_", "SYNC_", "MAX_REORG", "PAYLOAD_", "ORPHAN_"))
