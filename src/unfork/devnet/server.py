"""Owns the sockets of a devnet endpoint: HTTP and WebSocket on one port of the loopback.

It carries bytes between clients and `Rpc` and announces heads. A client that reads slowly or not at
all never holds up another, and closing waits for nobody.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from unfork.devnet.protocol import Cut, Reply
from unfork.devnet.rpc import Rpc
from unfork.devnet.tree import Movement
from unfork.devnet.websocket import WebSocketSession

#: Seconds that closing waits for requests under way.
CLOSE_TIMEOUT_S = 1.0
#: Largest request taken over a WebSocket, in bytes.
FRAME_SIZE_MAX = 64 * 1024 * 1024


class Server:
    """A devnet endpoint that listens; made by `serve`."""

    def __init__(self, rpc: Rpc) -> None:
        self.rpc = rpc
        self.url_http = ""
        self.url_ws = ""
        self._sessions: set[WebSocketSession] = set()
        self._closing = asyncio.Event()
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=CLOSE_TIMEOUT_S)

    @property
    def subscribers(self) -> int:
        """Subscriptions to heads that are open."""
        return sum(len(session.subscriptions) for session in self._sessions)

    def announce(self, movement: Movement) -> None:
        """Tells every subscriber of the blocks that were added, in order."""
        self.rpc.observe()
        for session in list(self._sessions):
            for block in movement.added:
                session.announce(block)

    async def close(self) -> None:
        """Ends every connection and stops listening; safe to repeat."""
        self._closing.set()
        for session in list(self._sessions):
            session.drop()
        await self._runner.cleanup()

    async def listen(self, host: str, port: int) -> None:
        """Takes a port, once."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        bound_host, bound_port = self._runner.addresses[0][:2]
        self.url_http = f"http://{bound_host}:{bound_port}"
        self.url_ws = f"ws://{bound_host}:{bound_port}"

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method == "POST":
            return await self._handle_post(request)
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._handle_websocket(request)
        return web.Response(status=405, text="JSON-RPC: POST, or a WebSocket\n")

    async def _handle_post(self, request: web.BaseRequest) -> web.StreamResponse:
        reply = self.rpc.answer(await request.read())
        match reply:
            case Reply():
                return web.Response(status=reply.status, headers=reply.headers, body=reply.body)
            case None:
                # The client gives up first (and cancels this), or the whole endpoint goes.
                await self._closing.wait()
            case Cut():
                pass
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    async def _handle_websocket(self, request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            max_msg_size=FRAME_SIZE_MAX, timeout=CLOSE_TIMEOUT_S, compress=False
        )
        await socket.prepare(request)
        session = WebSocketSession(self.rpc, socket, request.transport)
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)
        return socket


async def serve(rpc: Rpc, *, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Starts to listen; port 0 takes a free one."""
    server = Server(rpc)
    await server.listen(host, port)
    return server
