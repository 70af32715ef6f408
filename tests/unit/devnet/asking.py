"""How tests ask an Rpc without sockets."""

from __future__ import annotations

from typing import Any

import orjson

from unfork.devnet.protocol import Reply
from unfork.devnet.rpc import Rpc


def body(method: str, *params: Any, id: Any = 1) -> bytes:
    """A request of one call."""
    return orjson.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": list(params)})


def document(rpc: Rpc, request: bytes) -> Any:
    """The whole answer to a request body."""
    reply = rpc.answer(request)
    assert isinstance(reply, Reply) and reply.status == 200
    return orjson.loads(reply.body)


def ask(rpc: Rpc, method: str, *params: Any) -> Any:
    """The result of one call that must succeed."""
    answer = document(rpc, body(method, *params))
    assert set(answer) == {"jsonrpc", "id", "result"}, answer
    assert answer["jsonrpc"] == "2.0" and answer["id"] == 1
    return answer["result"]


def error(rpc: Rpc, method: str, *params: Any) -> tuple[int, str]:
    """Code and message of one call that must fail."""
    answer = document(rpc, body(method, *params))
    assert set(answer) == {"jsonrpc", "id", "error"}, answer
    return answer["error"]["code"], answer["error"]["message"]
