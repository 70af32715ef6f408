"""Owns the conversation with nodes: calls, batches, failover, patience.

`settle` runs one piece of work against one endpoint at a time until it succeeds: other endpoints
first, then pauses that grow, with jitter, up to a bound. The work asks with `exchange` and judges
the answers itself, so an answer that is not believed is retried exactly like one that never came.

Invariants: at most `concurrency` requests are under way; every wait is on the clock and bounded;
no error or log shows more of a URL than scheme, host and port; work is given to no endpoint that
has not said, since it was last down, that it serves the chain that the others serve.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import msgspec

from unfork import telemetry
from unfork.clock import Clock
from unfork.config.tree import Source as Settings
from unfork.errors import (
    MethodMissing,
    RangeTooLarge,
    RateLimited,
    Retryable,
    RowRefused,
    SourceUnavailable,
    StateMissing,
    Unbelievable,
    UnforkError,
    WrongChain,
)
from unfork.sources import answers, refusal
from unfork.sources.endpoint import Abilities, Endpoint
from unfork.sources.reach import Reach
from unfork.sources.waiting import gather, within
from unfork.sources.wire import Reply, Wire

T = TypeVar("T")

#: Bytes of an answer kept with the complaint about it.
RAW_BYTES_MAX = 4096
#: The first pause between two tries; it doubles from there.
_BACKOFF_S_MIN = 0.1
#: Times that the failed part of a split batch is asked again before the whole counts as failed.
_MENDING_ROUNDS = 3
#: Seconds a probe of a doubtful endpoint may take while a healthy one is at hand.
_PROBE_TIMEOUT_S = 2.0

#: What parsing raises over a text that is not what it should be.
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)

_log = telemetry.logger(__name__)


@dataclass(frozen=True, slots=True)
class Call:
    """One JSON-RPC call."""

    method: str
    params: tuple[Any, ...]
    #: What its result looks like.
    shape: answers.Shape[Any]
    #: Whether the work goes on without it: its failure is then an answer, not a reason to retry.
    is_optional: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back for one call: a result, or what its refusal means."""

    call: Call
    #: What the whole request got back, and which of its answers this one is.
    body: bytes
    place: int
    #: The result, parsed or still as JSON text.
    result: Any = None
    #: None where the node gave a result.
    error: UnforkError | None = None

    def read(self, shape: answers.Shape[T]) -> T:
        """The result; raises what the refusal means, and Unbelievable where it does not parse."""
        assert shape is self.call.shape, "a call is read as what it was asked for"
        if self.error is not None:
            raise self.error
        if not isinstance(self.result, msgspec.Raw):
            return cast(T, self.result)
        try:
            return answers.parse(shape.result, self.result)
        except _UNREADABLE as error:
            raise Unbelievable(
                f"{self.call.method} {_shown(self.call)} gave an answer of another shape: {error}",
                method=self.call.method,
                block_number=_number(self.call),
                raw=self.beginning,
            ) from None

    @property
    def beginning(self) -> bytes:
        """As much of the result as is kept with a complaint about it."""
        text: Any = self.result
        if not isinstance(text, msgspec.Raw):
            try:
                text = _envelopes(self.body)[self.place].result
            except (*_UNREADABLE, IndexError):
                text = self.body
        return bytes(memoryview(text)[:RAW_BYTES_MAX])

    @contextmanager
    def doubted(self) -> Iterator[None]:
        """Adds the beginning of this answer to a complaint that is raised inside."""
        try:
            yield
        except (Unbelievable, RowRefused) as error:
            error.fields.setdefault("raw", self.beginning)
            raise


class Rpc:
    """Several endpoints of one chain, used as one."""

    def __init__(
        self, wires: Sequence[Wire], settings: Settings, *, clock: Clock, random: random.Random
    ) -> None:
        assert wires, "a chain needs at least one endpoint"
        self.settings = settings
        self.clock = clock
        self.random = random
        self.endpoints = [
            Endpoint(
                wire=wire,
                clock=clock,
                random=random,
                pause_s_max=settings.backoff_ms_max / 1000,
                abilities=Abilities(
                    batch=Reach(settings.batch_size), log_range=Reach(settings.log_range_blocks)
                ),
            )
            for wire in wires
        ]
        self._places = asyncio.Semaphore(settings.concurrency)
        #: The chain that all endpoints must serve, as the first of them said.
        self._chain_id: int | None = None

    async def chain_id(self) -> int:
        """The number the chain calls itself; raises WrongChain where two endpoints differ in it.

        An endpoint that is away is left out here, and asked before its first use.
        """

        async def ask(endpoint: Endpoint) -> int:
            endpoint.is_known = False
            return await self._identify(endpoint)

        async def probe(endpoint: Endpoint) -> None:
            with contextlib.suppress(Retryable, MethodMissing):
                await within(self.clock, _PROBE_TIMEOUT_S, ask(endpoint))

        self._chain_id = None
        found = await self._settle(ask)
        await gather(*(probe(endpoint) for endpoint in self.endpoints if not endpoint.is_known))
        return found

    async def settle(self, work: Callable[[Endpoint], Awaitable[T]]) -> T:
        """Runs the work until it succeeds, at most `attempts_max` times, each on the best endpoint.

        A limit on size is handed on at once, since only the caller can ask for less. A method that
        is missing is handed on when every endpoint lacks it, and so are a wrong chain and a state
        that was thrown away.
        """

        async def known(endpoint: Endpoint) -> T:
            if not endpoint.is_known:
                await self._identify(endpoint)
            return await work(endpoint)

        return await self._settle(known)

    async def _settle(self, work: Callable[[Endpoint], Awaitable[T]]) -> T:
        tried: list[Endpoint] = []
        lacking: set[int] = set()
        failure: UnforkError = SourceUnavailable()
        for attempt in range(self.settings.attempts_max):
            try:
                endpoint = await self._choose(tried)
            except RateLimited as error:
                failure = error
                continue
            try:
                return await work(endpoint)
            except RangeTooLarge:
                raise
            except (MethodMissing, WrongChain, StateMissing) as error:
                lacking.add(id(endpoint))
                if len(lacking) == len(self.endpoints):
                    raise
                failure = failure if isinstance(error, WrongChain) else error
            except (Retryable, RowRefused) as error:
                failure = error
            telemetry.event(
                _log,
                "source.retry",
                level=logging.DEBUG,
                endpoint=endpoint.name,
                attempt=attempt + 1,
                error=str(failure),
            )
            tried.append(endpoint)
            if attempt + 1 < self.settings.attempts_max:
                await self._pause(attempt, tried, failure)
        raise failure

    async def exchange(self, endpoint: Endpoint, calls: Sequence[Call]) -> list[Answer]:
        """Asks one endpoint, in as few requests as it takes; answers stand in the calls' order.

        Raises where a call that is not optional failed for a reason that may pass; refusals with a
        meaning (a limit, a missing method) stand in the answer.
        """
        answered: dict[int, Answer] = {}
        rounds = 0
        while True:  # Ends: each turn halves the batch, or counts a round.
            missing = [place for place in range(len(calls)) if place not in answered]
            size = endpoint.abilities.batch.size
            parts = [missing[at : at + size] for at in range(0, len(missing), size)]
            failure = await self._ask_parts(endpoint, calls, parts, answered)
            if failure is None:
                return [answered[place] for place in range(len(calls))]
            if isinstance(failure, _BatchRefused):
                if not endpoint.abilities.batch.refused(failure.size):
                    raise failure.cause
                continue
            is_progress = any(place in answered for place in missing)
            rounds += 1
            if not is_progress or rounds == _MENDING_ROUNDS or endpoint.wait_s() > 0:
                raise failure
            await self.clock.sleep(self.backoff_s(rounds))

    def backoff_s(self, attempt: int) -> float:
        """A pause before the next try: anything up to a bound that doubles (full jitter)."""
        bound = min(_BACKOFF_S_MIN * 2.0**attempt, self.settings.backoff_ms_max / 1000)
        return self.random.uniform(0, bound)

    async def close(self) -> None:
        """Closes every wire; safe to repeat."""
        for endpoint in self.endpoints:
            await endpoint.wire.close()

    async def _identify(self, endpoint: Endpoint) -> int:
        """Makes sure that an endpoint serves the chain that the others serve."""
        try:
            answer = (await self.exchange(endpoint, [_CHAIN_ID]))[0].read(answers.TEXT)
        except MethodMissing:
            answer = (await self.exchange(endpoint, [_NET_VERSION]))[0].read(answers.TEXT)
        try:
            found = int(answer or "", 0)
        except ValueError:
            raise Unbelievable(f"{endpoint.name} gives no chain id: {answer!r}") from None
        if self._chain_id is None:
            self._chain_id = found
        if found != self._chain_id:
            endpoint.rest(endpoint.pause_s_max)
            told = f"{endpoint.name} serves chain {found}, the others serve {self._chain_id}"
            telemetry.event(_log, "source.wrong_chain", level=logging.WARNING, reason=told)
            raise WrongChain(f"{told}; take it out of source.urls")
        endpoint.is_known = True
        return found

    async def _choose(self, tried: Sequence[Endpoint]) -> Endpoint:
        """The first endpoint worth asking, those not tried yet before the others."""
        fresh = [endpoint for endpoint in self.endpoints if endpoint not in tried]
        stale = sorted((e for e in self.endpoints if e in tried), key=tried.index)
        for endpoint in (*fresh, *stale):
            if endpoint.wait_s() == 0:
                return endpoint
        soonest = min(self.endpoints, key=lambda endpoint: endpoint.wait_s())
        await self.clock.sleep(min(soonest.wait_s(), soonest.pause_s_max))
        left = soonest.wait_s()
        if left > soonest.pause_s_max:
            # Long pauses are told, so that whoever waits can say what for.
            told = f"{soonest.name} asked for a pause of {left:.0f} s more"
            raise RateLimited(told, retry_after_s=left, endpoint=soonest.name)
        return soonest

    async def _pause(self, attempt: int, tried: Sequence[Endpoint], failure: UnforkError) -> None:
        """Waits before the next try, unless there is an endpoint that was not asked yet."""
        if any(e not in tried and e.wait_s() == 0 for e in self.endpoints):
            return
        rounds = attempt // len(self.endpoints)
        if isinstance(failure, RateLimited) and failure.retry_after_s is not None:
            return  # The endpoint rests as long as it asked for; choosing waits for that.
        await self.clock.sleep(self.backoff_s(rounds))

    async def _ask_parts(
        self,
        endpoint: Endpoint,
        calls: Sequence[Call],
        parts: Sequence[list[int]],
        answered: dict[int, Answer],
    ) -> UnforkError | _BatchRefused | None:
        """Sends every part at once and notes what came back; the first failure is returned."""

        async def ask(part: list[int]) -> UnforkError | _BatchRefused | None:
            try:
                got = await self._request(endpoint, [calls[place] for place in part])
            except (UnforkError, _BatchRefused) as error:
                return error
            failure: UnforkError | _BatchRefused | None = None
            for place, answer in zip(part, got, strict=True):
                if _is_about_batch(answer, len(part)):
                    failure = _BatchRefused(answer.error or SourceUnavailable(), len(part))
                elif _is_passing(answer):
                    failure = failure or answer.error
                else:
                    answered[place] = answer
            return failure

        if len(parts) == 1:
            return await ask(parts[0])
        outcomes = await gather(*(ask(part) for part in parts))
        return next((outcome for outcome in outcomes if outcome is not None), None)

    async def _request(self, endpoint: Endpoint, calls: Sequence[Call]) -> list[Answer]:
        """One HTTP request with one or several calls."""
        is_batch = len(calls) > 1
        documents = [
            {"jsonrpc": "2.0", "id": place, "method": call.method, "params": call.params}
            for place, call in enumerate(calls)
        ]
        body = msgspec.json.encode(documents if is_batch else documents[0])
        async with self._places:
            endpoint.sending()
            try:
                reply = await self._post(endpoint, body, len(calls))
                result = self._read(endpoint, calls, reply)
            except RateLimited as error:
                endpoint.abandoned()
                if error.retry_after_s is not None:
                    endpoint.rest(error.retry_after_s)
                raise
            except (RangeTooLarge, _BatchRefused):
                endpoint.succeeded()
                raise
            except UnforkError:
                endpoint.failed()
                raise
            except BaseException:
                endpoint.abandoned()
                raise
            if all(isinstance(answer.error, SourceUnavailable) for answer in result):
                endpoint.failed()
            else:
                endpoint.succeeded()
                endpoint.abilities.batch.succeeded(len(calls))
            return result

    async def _post(self, endpoint: Endpoint, body: bytes, size: int) -> Reply:
        timeout_s = self.settings.request_timeout_s
        if endpoint.is_open and any(not other.is_open for other in self.endpoints):
            timeout_s = min(timeout_s, _PROBE_TIMEOUT_S)
        reply = await within(self.clock, timeout_s, endpoint.wire.post(body))
        if reply is None:
            # A slow line may carry half of it in time; a silent node costs nothing by this.
            endpoint.abilities.batch.refused(size)
            raise SourceUnavailable(
                f"{endpoint.name} did not answer within {timeout_s:g} s", endpoint=endpoint.name
            )
        return reply

    def _read(self, endpoint: Endpoint, calls: Sequence[Call], reply: Reply) -> list[Answer]:
        """The answers in a reply, in the order of the calls."""
        bad = refusal.of_status(reply.status, reply.headers, reply.body)
        is_batch = len(calls) > 1
        body = reply.body
        if bad is not None:
            bad.message = f"{endpoint.name} {bad.message}"
            bad.fields["endpoint"] = endpoint.name
            if is_batch and isinstance(bad, RangeTooLarge):
                raise _BatchRefused(bad, len(calls))
            raise bad
        try:
            found = _shaped(calls, body) or _envelopes(body)
        except _UNREADABLE:
            raise SourceUnavailable(
                f"{endpoint.name} sent a body that is cut or not JSON-RPC",
                endpoint=endpoint.name,
                raw=bytes(reply.body[:RAW_BYTES_MAX]),
            ) from None
        if not is_batch:
            if len(found) != 1:
                raise SourceUnavailable(f"{endpoint.name} sent several answers to one call")
            return [self._answer(endpoint, calls[0], found[0], body, 0)]
        if len(found) == 1 and found[0].error is not None:
            raise self._refused_batch(endpoint, calls, found[0].error)
        by_id = {envelope.id: place for place, envelope in enumerate(found)}
        got: list[Answer] = []
        for n, call in enumerate(calls):
            place = by_id.get(n)
            envelope = None if place is None else found[place]
            got.append(self._answer(endpoint, call, envelope, body, place or 0))
        return got

    def _refused_batch(
        self, endpoint: Endpoint, calls: Sequence[Call], error: answers.Failure
    ) -> UnforkError | _BatchRefused:
        """What one error for a whole batch means."""
        meaning = refusal.of_error(calls[0].method, error.code, error.message, error.data)
        cause = meaning or SourceUnavailable(f"{endpoint.name} refused a batch: {error.message}")
        if refusal.refuses_batches(error.code, error.message) or isinstance(cause, RangeTooLarge):
            return _BatchRefused(cause, len(calls))
        return cause

    def _answer(
        self, endpoint: Endpoint, call: Call, envelope: Any, body: bytes, place: int
    ) -> Answer:
        result: Any = None
        error: UnforkError | None = None
        if envelope is None:
            error = SourceUnavailable(f"{endpoint.name} left {call.method} out of its answer")
        elif envelope.error is not None:
            said = envelope.error
            error = refusal.of_error(call.method, said.code, said.message, said.data)
            if error is not None:
                error.message = f"{endpoint.name}: {error.message}"
        elif envelope.result is msgspec.UNSET:
            error = SourceUnavailable(f"{endpoint.name} answered {call.method} without a result")
        else:
            result = envelope.result
        return Answer(call=call, body=body, place=place, result=result, error=error)


_CHAIN_ID = Call("eth_chainId", (), answers.TEXT)
_NET_VERSION = Call("net_version", (), answers.TEXT)


class _BatchRefused(Exception):
    """The endpoint takes no batch of this size."""

    def __init__(self, cause: UnforkError, size: int) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.size = size


def _envelopes(body: bytes) -> list[answers.Envelope]:
    """The answers of a reply, results not parsed yet."""
    if body.lstrip()[:1] == b"[":
        return answers.parse(answers.MANY_ENVELOPES, body)
    return [answers.parse(answers.ONE_ENVELOPE, body)]


def _shaped(calls: Sequence[Call], body: bytes) -> list[Any] | None:
    """The answers with their results, where all look alike and as they should; None otherwise.

    Saves going over the text twice. Whatever is wrong is left to the slower way to tell.
    """
    shape = calls[0].shape
    if len(calls) == 1 or any(call.shape is not shape for call in calls):
        return None
    try:
        return answers.parse(shape.batch, body)
    except _UNREADABLE:
        return None


def _is_about_batch(answer: Answer, size: int) -> bool:
    """Whether a call was refused only for the size of the batch it came in."""
    too_large = isinstance(answer.error, RangeTooLarge)
    return size > 1 and too_large and answer.call.method != "eth_getLogs"


def _is_passing(answer: Answer) -> bool:
    """Whether a call must be asked again because its failure may pass."""
    if answer.call.is_optional or isinstance(answer.error, RangeTooLarge | StateMissing):
        return False
    return isinstance(answer.error, Retryable)


def _number(call: Call) -> int | None:
    """The block that a call asks for by its number."""
    first = call.params[0] if call.params else None
    if isinstance(first, str) and first.startswith("0x") and len(first) <= 18:
        return int(first, 16)
    return None


def _shown(call: Call) -> str:
    return ", ".join(str(param)[:80] for param in call.params)
