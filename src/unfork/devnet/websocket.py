"""Owns one WebSocket connection: its requests, its subscriptions and what waits to be sent.

Everything that goes out passes one bounded queue, so answers and announcements keep their order and
announcing never waits: a client that lets its queue fill up is dropped.
"""

from __future__ import annotations

import asyncio

import orjson
from aiohttp import ClientConnectionResetError, WSMsgType, web

from unfork.devnet import faults as fault_kinds
from unfork.devnet.block import Block
from unfork.devnet.protocol import Reply
from unfork.devnet.rpc import Rpc

#: Frames that wait for one client at most.
FRAMES_MAX = 4096


class WebSocketSession:
    """A client that is connected."""

    def __init__(
        self, rpc: Rpc, socket: web.WebSocketResponse, transport: asyncio.Transport | None
    ) -> None:
        self._rpc = rpc
        self._socket = socket
        self._transport = transport
        self._frames: asyncio.Queue[bytes] = asyncio.Queue(FRAMES_MAX)
        self._subscribed = 0
        #: Names of the subscriptions to heads.
        self.subscriptions: list[str] = []

    def subscribe(self) -> str:
        """Starts announcing heads; the subscription's name."""
        self._subscribed += 1
        name = f"0x{self._subscribed:032x}"
        self.subscriptions.append(name)
        return name

    def unsubscribe(self, subscription: str) -> bool:
        """Ends a subscription; whether there was one."""
        if subscription not in self.subscriptions:
            return False
        self.subscriptions.remove(subscription)
        return True

    def announce(self, block: Block) -> None:
        """Queues a head for every subscription, unless the endpoint has gone quiet."""
        for name in self.subscriptions:
            if not self._rpc.faults.strike(fault_kinds.Quiet, "eth_subscribe"):
                self._send(_announcement(name, self._rpc.fragments.header(block)))

    def drop(self) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    async def run(self) -> None:
        """Answers until either side ends the connection."""
        sender = asyncio.create_task(self._send_all())
        try:
            async for message in self._socket:
                if message.type is WSMsgType.TEXT:
                    self._answer(message.data.encode())
                elif message.type is WSMsgType.BINARY:
                    self._answer(message.data)
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def _answer(self, body: bytes) -> None:
        reply = self._rpc.answer(body, session=self)
        assert isinstance(reply, Reply)
        if reply.body:
            self._send(reply.body)

    def _send(self, frame: bytes) -> None:
        try:
            self._frames.put_nowait(frame)
        except asyncio.QueueFull:
            self.drop()

    async def _send_all(self) -> None:
        try:
            while True:
                frame = await self._frames.get()
                await self._socket.send_frame(frame, WSMsgType.TEXT)
        except ClientConnectionResetError:
            # The reading side sees the end of the connection as well, and cleans up.
            return


def _announcement(subscription: str, header: bytes) -> bytes:
    return (
        b'{"jsonrpc":"2.0","method":"eth_subscription","params":{"subscription":'
        + orjson.dumps(subscription)
        + b',"result":'
        + header
        + b"}}"
    )
