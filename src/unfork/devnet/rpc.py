"""Owns the answer to a JSON-RPC request body: batches, errors and the faults of the transport.

Synchronous and free of sockets, so that a simulation asks it directly and the server only carries
bytes. Nothing here changes the tree; the same requests over the same tree meet the same answers.
"""

from __future__ import annotations

import email.utils
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson

from unfork.chain.block import BlockRef
from unfork.devnet import faults as fault_kinds
from unfork.devnet import methods, protocol
from unfork.devnet.faults import Faults
from unfork.devnet.fragments import Fragments
from unfork.devnet.methods import Question, Session
from unfork.devnet.protocol import Cut, Reply, RpcError
from unfork.devnet.transaction_index import TransactionIndex
from unfork.devnet.view import Chain, View

#: Heads remembered for replicas that are stale.
HEADS_KEPT = 256
#: Bytes of rendered JSON kept by default.
CACHE_SIZE_MAX = 64 * 1024 * 1024


class Rpc:
    """One endpoint over a tree."""

    def __init__(
        self,
        tree: Chain,
        faults: Faults | None = None,
        *,
        keeps_replaced: bool = True,
        cache_size_max: int = CACHE_SIZE_MAX,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.tree = tree
        self.faults = faults or Faults()
        self.fragments = Fragments(cache_size_max)
        #: Whether a block that was replaced is still given by its hash, as geth does for a while.
        self.keeps_replaced = keeps_replaced
        self._index = TransactionIndex(tree)
        self._heads: deque[BlockRef] = deque([tree.head.ref], maxlen=HEADS_KEPT)
        self._wall = wall

    def answer(self, body: bytes, *, session: Session | None = None) -> Reply | Cut | None:
        """The answer to one request body; None where it never comes.

        With a session the request came over a WebSocket: subscriptions work, and the faults of the
        HTTP transport do not apply.
        """
        self.observe()
        self.faults.begin()
        try:
            request = orjson.loads(body)
        except orjson.JSONDecodeError:
            refusal = protocol.failure(None, protocol.PARSE_ERROR, "parse error")
            return Reply(body=b"".join(refusal))
        if session is not None:
            return Reply(body=b"".join(self._document(request, session)))
        return self._carry(request)

    def observe(self) -> None:
        """Remembers the head, for replicas that will still show it when it has moved on."""
        if self.tree.head.hash != self._heads[-1].hash:
            self._heads.append(self.tree.head.ref)

    def _carry(self, request: Any) -> Reply | Cut | None:
        """Answers over HTTP, with what may happen on the way."""
        strike = self._strike_transport(request)
        match strike:
            case fault_kinds.Silence():
                return None
            case fault_kinds.CutSocket():
                return Cut()
            case fault_kinds.BadGateway():
                return _page(strike.status, "Bad Gateway")
            case fault_kinds.TooManyRequests():
                return self._too_many(strike)
        body = b"".join(self._document(request, None))
        if isinstance(strike, fault_kinds.CutBody):
            body = body[: len(body) // 2]
        return Reply(headers={"Content-Type": "application/json"}, body=body)

    def _strike_transport(self, request: Any) -> fault_kinds.Fault | None:
        # A batch is one request to the transport: it fails whole, by any of its methods.
        calls = request if isinstance(request, list) else [request]
        asked = [call.get("method") for call in calls if isinstance(call, dict)]
        names = {name for name in asked if isinstance(name, str)}
        for kind in fault_kinds.TRANSPORT:
            strike = self.faults.strike(kind, names)
            if strike is not None:
                return strike
        return None

    def _too_many(self, strike: fault_kinds.TooManyRequests) -> Reply:
        reply = _page(429, "Too Many Requests")
        if strike.retry_after_s is not None:
            reply.headers["Retry-After"] = (
                email.utils.formatdate(self._wall() + strike.retry_after_s, usegmt=True)
                if strike.is_date
                else str(strike.retry_after_s)
            )
        return reply

    def _document(self, request: Any, session: Session | None) -> protocol.Pieces:
        """The answer to a call or a batch; empty where all of it were notifications."""
        if not isinstance(request, list):
            return self._call(request, session) or ()
        if not request:
            return protocol.failure(None, protocol.INVALID_REQUEST, "empty batch")
        if self.faults.strike(
            fault_kinds.BatchCap, set(), lambda fault: len(request) > fault.calls_max
        ):
            return protocol.failure(None, protocol.INVALID_REQUEST, "batch too large")
        answers = [self._call(each, session) for each in request]
        given = [answer for answer in answers if answer is not None]
        return protocol.batch(given) if given else ()

    def _call(self, call: Any, session: Session | None) -> protocol.Pieces | None:
        """The answer to one call; None for a notification."""
        if not isinstance(call, dict) or not isinstance(call.get("method"), str):
            return protocol.failure(None, protocol.INVALID_REQUEST, "invalid request")
        id = call.get("id")
        try:
            value = self._value(call["method"], call.get("params"), session)
        except RpcError as error:
            answer = protocol.failure(id, error.code, error.message)
        else:
            answer = protocol.result(id, value)
        return answer if "id" in call else None

    def _value(self, method: str, params: Any, session: Session | None) -> bytes:
        handler = methods.METHODS.get(method)
        if handler is None or self.faults.strike(fault_kinds.MethodMissing, method):
            message = f"the method {method} does not exist/is not available"
            raise RpcError(protocol.METHOD_MISSING, message)
        if failed := self.faults.strike(fault_kinds.NodeError, method):
            raise RpcError(failed.code, failed.message)
        if params is None:
            params = []
        if not isinstance(params, list):
            raise RpcError(protocol.INVALID_PARAMS, "non-array args")
        question = Question(
            method=method,
            params=params,
            view=self._view(method),
            tree=self.tree,
            fragments=self.fragments,
            faults=self.faults,
            index=self._index,
            heads=self._heads,
            session=session,
        )
        return handler(question)

    def _view(self, method: str) -> View:
        head = self.tree.head
        tip = head
        if method in methods.HEADLESS:
            return View(self.tree)
        if lag := self.faults.strike(fault_kinds.Lag, method):
            tip = self.tree.at(max(0, head.number - lag.blocks)) or head
        elif stale := self.faults.strike(
            fault_kinds.Stale, method, lambda fault: len(self._heads) > fault.movements
        ):
            tip = self.tree.by_hash(self._heads[-1 - stale.movements].hash) or head
        return View(self.tree, tip=tip, keeps_replaced=self.keeps_replaced)


def _page(status: int, message: str) -> Reply:
    # The front that answers so is not the node: its JSON has nothing of JSON-RPC.
    return Reply(
        status=status,
        headers={"Content-Type": "application/json"},
        body=orjson.dumps({"code": status, "message": message}),
    )
