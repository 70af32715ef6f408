"""Owns contract reads over JSON-RPC: what contracts answer in the state after a block.

A block is named by its hash (EIP-1898), so an answer is of that block or there is none: a node that
lags or sits on another fork says that it does not have it. A node that only takes numbers is asked
by number, and believed where the block under that number has the hash before and after.

That a contract refuses, or returns nothing, is an answer. That a node does not answer, or lacks the
block, is not, and another one is asked. One that has the block but has thrown its state away cannot
be waited for: where every endpoint says so, that is told at once (StateMissing).

Every call brings as much gas as one block has: whether a contract runs out of it must not depend on
what a node grants by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from unfork.chain.block import BlockRef
from unfork.errors import MethodMissing, Reverted, SourceUnavailable, StateMissing, Unbelievable
from unfork.sources import answers, checks, fetching
from unfork.sources.endpoint import Endpoint
from unfork.sources.rpc import Answer, Call, Rpc
from unfork.sources.source import ContractCall, Returned
from unfork.sources.waiting import gather

T = TypeVar("T")

#: Gas of a call.
GAS = 30_000_000

#: The code of JSON-RPC that says of the method itself, not of its parameters, that it is missing.
_NO_METHOD = -32601


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A call that looks into the state after a block, which is its last parameter."""

    method: str
    params: tuple[Any, ...]
    at: BlockRef

    def by_hash(self) -> Call:
        """Also of a block that was replaced: what is computed from it then is judged later."""
        block = {"blockHash": _hex(self.at.hash), "requireCanonical": False}
        return Call(self.method, (*self.params, block), answers.TEXT)

    def by_number(self) -> Call:
        return Call(self.method, (*self.params, hex(self.at.number)), answers.TEXT)


class Contracts:
    """Reads contracts through the endpoints of a chain."""

    def __init__(self, rpc: Rpc) -> None:
        self._rpc = rpc

    async def call(self, calls: Sequence[ContractCall]) -> list[Returned]:
        """What contracts answer, in the order of the calls."""
        questions = [
            _Question(
                method="eth_call",
                params=({"to": _hex(one.address), "data": _hex(one.data), "gas": hex(GAS)},),
                at=one.at,
            )
            for one in calls
        ]
        return await self._all(questions, _returned)

    async def code(self, places: Sequence[tuple[BlockRef, bytes]]) -> list[bytes]:
        """The code at addresses, in the order given."""
        questions = [
            _Question(method="eth_getCode", params=(_hex(address),), at=at)
            for at, address in places
        ]
        return await self._all(questions, _data)

    async def _all(
        self, questions: Sequence[_Question], read: Callable[[Endpoint, _Question, Answer], T]
    ) -> list[T]:
        """Asks in pieces, some at a time: one that fails is asked again without the others."""
        settings = self._rpc.settings
        size = settings.batch_size
        pieces = [questions[at : at + size] for at in range(0, len(questions), size)]
        found: list[T] = []
        for at in range(0, len(pieces), settings.concurrency):
            together = pieces[at : at + settings.concurrency]
            for got in await gather(*(self._piece(piece, read) for piece in together)):
                found += got
        return found

    async def _piece(
        self, questions: Sequence[_Question], read: Callable[[Endpoint, _Question, Answer], T]
    ) -> list[T]:
        async def ask(endpoint: Endpoint) -> list[T]:
            got = await self._ask(endpoint, questions)
            return [
                read(endpoint, question, answer)
                for question, answer in zip(questions, got, strict=True)
            ]

        return await self._rpc.settle(ask)

    async def _ask(self, endpoint: Endpoint, questions: Sequence[_Question]) -> list[Answer]:
        if endpoint.abilities.state_by_hash:
            got = await self._rpc.exchange(endpoint, [one.by_hash() for one in questions])
            if not any(_refuses_hashes(answer) for answer in got):
                return got
            endpoint.abilities.state_by_hash = False
        await self._require(endpoint, questions)
        got = await self._rpc.exchange(endpoint, [one.by_number() for one in questions])
        await self._require(endpoint, questions)
        return got

    async def _require(self, endpoint: Endpoint, questions: Sequence[_Question]) -> None:
        """Raises unless the endpoint has each block under its number now."""
        wanted = sorted({question.at for question in questions})
        calls = [fetching.ref_call(ref.number) for ref in wanted]
        for ref, answer in zip(wanted, await self._rpc.exchange(endpoint, calls), strict=True):
            block = answer.read(answers.REF)
            if block is None or checks.hash_of(block) != ref.hash:
                raise _absent(endpoint, ref)


def _returned(endpoint: Endpoint, question: _Question, answer: Answer) -> Returned:
    if isinstance(answer.error, Reverted):
        return Returned(ok=False, output=b"")
    return Returned(ok=True, output=_data(endpoint, question, answer))


def _data(endpoint: Endpoint, question: _Question, answer: Answer) -> bytes:
    try:
        text = answer.read(answers.TEXT)
    except StateMissing as error:
        raise StateMissing(
            f"{endpoint.name} does not keep the state of block {question.at} any more: contract "
            "reads of old blocks need an archive node in source.urls",
            endpoint=endpoint.name,
            block_number=question.at.number,
        ) from error
    if text is None:
        raise _absent(endpoint, question.at)
    try:
        if not text.startswith("0x"):
            raise ValueError
        return bytes.fromhex(text[2:])
    except ValueError:
        raise Unbelievable(
            f"{endpoint.name} answered {question.method} with what is no data: {text[:80]!r}",
            method=question.method,
            block_number=question.at.number,
        ) from None


def _refuses_hashes(answer: Answer) -> bool:
    """Whether a call was refused for the way in which it names the block."""
    error = answer.error
    return isinstance(error, MethodMissing) and error.fields.get("rpc_code") != _NO_METHOD


def _absent(endpoint: Endpoint, ref: BlockRef) -> SourceUnavailable:
    return SourceUnavailable(
        f"{endpoint.name} does not have block {ref}: it lags, or a fork has replaced it",
        endpoint=endpoint.name,
        block_number=ref.number,
        is_absent=True,
    )


def _hex(data: bytes) -> str:
    return "0x" + data.hex()
