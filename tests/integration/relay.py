"""A way to Postgres over TCP that can fall silent while both ends believe that it is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Relay:
    """Carries bytes between clients and one server's socket."""

    def __init__(self, socket_path: str) -> None:
        #: Where clients connect.
        self.dsn = ""
        self._socket_path = socket_path
        self._passing: list[asyncio.Event] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def swallow(self) -> None:
        """Lets nothing pass any more on the connections there are; new ones work."""
        for event in self._passing:
            event.clear()
        self._passing.clear()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes one client."""
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends every connection."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passing = asyncio.Event()
        passing.set()
        self._passing.append(passing)
        with contextlib.ExitStack() as ends:
            ends.callback(writer.close)
            from_server, to_server = await asyncio.open_unix_connection(self._socket_path)
            ends.callback(to_server.close)
            pumps = [
                asyncio.create_task(_pump(reader, to_server, passing)),
                asyncio.create_task(_pump(from_server, writer, passing)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event
) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            await passing.wait()
            writer.write(data)
            await writer.drain()
    # A dead connection does not even pass on that one side has closed.
    await passing.wait()


@contextlib.asynccontextmanager
async def relayed(socket_path: str) -> AsyncIterator[Relay]:
    """A relay on a free port."""
    relay = Relay(socket_path)
    server = await asyncio.start_server(relay.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    relay.dsn = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        yield relay
    finally:
        server.close()
        await relay.close()
