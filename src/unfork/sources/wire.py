"""Owns one endpoint's sockets: bytes out, bytes back, and hints that the head moved.

Nothing here knows JSON-RPC beyond the one subscription request. A wire never retries and never
waits longer than it is told; its errors name the endpoint without its path, where keys live.

Announcements come over WebSocket. They are hints only: nothing in them is believed, they merely
say that it is worth looking now, so a wire that goes quiet costs latency and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import aiohttp

from unfork import telemetry
from unfork.errors import ConfigInvalid, SourceUnavailable

#: The largest answer read: twice the largest that public providers send.
ANSWER_BYTES_MAX = 256 * 1024 * 1024
#: The largest announcement read; a header is a few kilobytes.
_ANNOUNCEMENT_BYTES_MAX = 4 * 1024 * 1024
_CONNECT_TIMEOUT_S = 5.0
_PING_INTERVAL_S = 20.0
_CLOSE_TIMEOUT_S = 0.5
_SUBSCRIBE = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "eth_subscribe", "params": ["newHeads"]}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one request."""

    #: HTTP status.
    status: int
    #: Headers, names in any case.
    headers: Mapping[str, str]
    #: The body, decompressed.
    body: bytes


class Wire(Protocol):
    """One endpoint."""

    @property
    def url(self) -> str:
        """Where it is; to be shown only through `telemetry.redact`."""
        ...

    async def post(self, body: bytes) -> Reply:
        """Sends a request and returns the reply; raises SourceUnavailable without one."""
        ...

    def heads(self) -> AsyncIterator[None] | None:
        """A hint per announced head; None where the endpoint announces nothing."""
        ...

    async def close(self) -> None:
        """Gives up connections; safe to repeat."""
        ...


class HttpWire:
    """An endpoint over HTTP, with announcements over WebSocket where their address is known."""

    def __init__(self, url: str, *, heads_url: str | None = None, connections: int = 8) -> None:
        self.url = url
        #: Where announcements come from, None for nowhere.
        self.heads_url = heads_url
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def post(self, body: bytes) -> Reply:
        try:
            async with self._opened().post(self.url, data=body, allow_redirects=False) as response:
                content = await self._read(response)
                return Reply(status=response.status, headers=response.headers, body=content)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._unavailable("did not answer", error) from None

    def heads(self) -> AsyncIterator[None] | None:
        return None if self.heads_url is None else self._announced(self.heads_url)

    async def close(self) -> None:
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _announced(self, url: str) -> AsyncIterator[None]:
        """Ends with SourceUnavailable when the socket does; the caller decides about another."""
        try:
            async with self._opened().ws_connect(
                url,
                max_msg_size=_ANNOUNCEMENT_BYTES_MAX,
                heartbeat=_PING_INTERVAL_S,
                timeout=aiohttp.ClientWSTimeout(ws_close=_CLOSE_TIMEOUT_S),
            ) as socket:
                await socket.send_str(_SUBSCRIBE)
                async for message in socket:
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        continue
                    if _is_refusal(message.data):
                        break
                    # The confirmation of the subscription counts too: blocks may have come
                    # between the last look and the moment announcements began.
                    yield None
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise self._unavailable("announces nothing", error) from None
        raise SourceUnavailable(
            f"{telemetry.redact(url)} stopped announcing blocks", endpoint=telemetry.redact(url)
        )

    def _opened(self) -> aiohttp.ClientSession:
        if self._is_closed:
            shown = telemetry.redact(self.url)
            raise SourceUnavailable(f"the connection to {shown} was closed", endpoint=shown)
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections + 1),
                # The whole of a request is timed by the caller, on its own clock.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
                headers={"content-type": "application/json", "accept-encoding": "gzip, deflate"},
            )
        return self._session

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        """The body, given up once it outgrows its bound: an endless answer must not fill memory."""
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > ANSWER_BYTES_MAX:
                raise ValueError(f"the answer is larger than {ANSWER_BYTES_MAX} bytes")
            chunks.append(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _unavailable(self, what: str, error: Exception) -> SourceUnavailable:
        """Names the kind of failure only: messages of the HTTP client quote whole URLs."""
        shown = telemetry.redact(self.url)
        return SourceUnavailable(f"{shown} {what}: {type(error).__name__}", endpoint=shown)


def connect(urls: Sequence[str], *, connections: int) -> list[Wire]:
    """A wire per endpoint, announcements joined to the requests of the same chain.

    Requests go to the http(s) addresses; a ws(s) address announces for the first of them without
    one. With ws(s) addresses alone, requests go to the same place over HTTP. An http(s) address
    for which nobody announces is tried for announcements at the same place.
    """
    schemes = {url: _scheme(place, url) for place, url in enumerate(urls, 1)}
    speaking = [url for url in urls if schemes[url] in ("http", "https")]
    announcing = [url for url in urls if schemes[url] in ("ws", "wss")]
    if not speaking:
        speaking = [_twin(url) for url in announcing]
    wires: list[Wire] = []
    for place, url in enumerate(speaking):
        heads = announcing[place] if place < len(announcing) else None
        if not announcing:
            heads = _twin(url)
        wires.append(HttpWire(url, heads_url=heads, connections=connections))
    return wires


async def hints(wire: Wire) -> AsyncGenerator[None, None]:
    """The hints of a wire as a stream that can be closed; ends at once where there are none."""
    heads = wire.heads()
    if heads is None:
        return
    try:
        async for _ in heads:
            yield None
    finally:
        close = getattr(heads, "aclose", None)
        if close is not None:
            await close()


def _scheme(place: int, url: str) -> str:
    """The protocol of an address; one that is none is refused without being shown."""
    try:
        parts = urlsplit(url)
        if parts.hostname and parts.scheme in ("http", "https", "ws", "wss"):
            parts.port  # noqa: B018 - Raises where the port is no number.
            return parts.scheme
    except ValueError:
        pass
    raise ConfigInvalid(
        f"source.urls: address {place} is not one: write http(s)://host or ws(s)://host"
    )


def _twin(url: str) -> str:
    """The same address in the other protocol."""
    parts = urlsplit(url)
    other = {"http": "ws", "https": "wss", "ws": "http", "wss": "https"}[parts.scheme]
    return urlunsplit(parts._replace(scheme=other))


def _is_refusal(text: str) -> bool:
    """Whether the node answered the subscription with an error."""
    if '"error"' not in text[:256]:
        return False
    try:
        return "error" in json.loads(text)
    except ValueError:
        return True
