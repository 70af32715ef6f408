"""Runs anvil, a real node, and speaks raw JSON-RPC to it.

Nothing of unfork is used here: what the tests compare against is read by these few lines.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp

REPOSITORY = Path(__file__).parents[2]
START_TIMEOUT_S = 60.0


def binary() -> Path | None:
    """Where anvil is: named by UNFORK_ANVIL, installed below .tools, or on the PATH."""
    named = os.environ.get("UNFORK_ANVIL")
    if named:
        return Path(named)
    # The package's own launcher is a script for Node; the program itself lies beside it.
    modules = REPOSITORY / ".tools" / "node_modules"
    for found in sorted(modules.glob("@foundry-rs/anvil-*/bin/anvil")):
        return found
    on_path = shutil.which("anvil")
    return Path(on_path) if on_path else None


class NodeRefused(Exception):
    """The node answered with an error."""


class Node:
    """One running anvil, mining only when told to."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.url_ws = f"ws://127.0.0.1:{port}"
        self._session = session
        self._ids = itertools.count(1)

    async def ask(self, method: str, *params: Any) -> Any:
        """The result of one call."""
        return (await self.ask_all([(method, params)]))[0]

    async def ask_all(self, calls: Sequence[tuple[str, Sequence[Any]]]) -> list[Any]:
        """The results of several calls, in their order."""
        body = [
            {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": list(params)}
            for method, params in calls
        ]
        async with self._session.post(self.url, json=body) as response:
            answers = {answer["id"]: answer for answer in await response.json()}
        results = []
        for call in body:
            answer = answers[call["id"]]
            if "error" in answer:
                raise NodeRefused(f"{call['method']}: {answer['error']}")
            results.append(answer["result"])
        return results

    async def height(self) -> int:
        """The number of the head."""
        return int(await self.ask("eth_blockNumber"), 16)


@contextlib.asynccontextmanager
async def running(program: Path, *options: str, port: int = 0) -> AsyncIterator[Node]:
    """A node on a loopback port, a free one unless named, for as long as the context is open."""
    arguments = ["--port", str(port), "--host", "127.0.0.1", "--no-mining", *options]
    process = await asyncio.create_subprocess_exec(
        str(program),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # What is on the PATH may be a launcher: the node that it started has to end with it.
        start_new_session=True,
    )
    assert process.stdout is not None
    reading: asyncio.Task[bytes] | None = None
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            port = await _port(process.stdout)
        # Its words are read to the end, or the pipe would fill and hold it up.
        reading = asyncio.create_task(process.stdout.read())
        async with aiohttp.ClientSession() as session:
            yield Node(port, session)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if reading is not None:
            await reading


async def _port(words: asyncio.StreamReader) -> int:
    said = b""
    async for line in words:
        said += line
        if match := re.search(rb"Listening on \S+:(\d+)", line):
            return int(match.group(1))
    raise AssertionError(f"anvil ended before it listened: {said.decode(errors='replace')}")
