"""The conversation with nodes: batches, failover, pauses, breakers, and what never leaks.

Method: scripted endpoints answer as real ones do when they misbehave; time is stepped, so every
pause can be looked at and none is waited for.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.nodes import ScriptedWire, SteppedClock, failure, result
from unfork.config.tree import Source as Settings
from unfork.errors import (
    MethodMissing,
    RangeTooLarge,
    RateLimited,
    SourceUnavailable,
    Unbelievable,
    WrongChain,
)
from unfork.sources import answers, traces
from unfork.sources.endpoint import FAILURES_MAX, Endpoint
from unfork.sources.rpc import Answer, Call, Rpc
from unfork.sources.waiting import gather, within
from unfork.sources.wire import Reply


def call(name: str = "net_version", *, is_optional: bool = False) -> Call:
    return Call(name, (), answers.TEXT, is_optional=is_optional)


def rpc(*wires: ScriptedWire, **settings: Any) -> tuple[Rpc, SteppedClock]:
    clock = SteppedClock()
    made = Settings(**{"attempts_max": 4, "batch_size": 8, **settings})
    node = Rpc(wires, made, clock=clock, random=Random(1))
    for endpoint in node.endpoints:
        endpoint.is_known = True  # Which chain it serves is asked by the tests of that alone.
    return node, clock


def each(answer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Answers a batch call by call."""
    return lambda request: (
        [answer(one) for one in request] if isinstance(request, list) else answer(request)
    )


def echo(request: Any) -> Any:
    """Answers every call with the name of its method, but for the chain's number."""
    return each(lambda one: result(one, serving(1).get(one["method"], one["method"])))(request)


def serving(chain_id: int) -> dict[str, str]:
    """What the endpoint of a chain calls it."""
    return {"eth_chainId": hex(chain_id)}


def of_chain(chain_id: int) -> Callable[[Any], Any]:
    """Answers as an endpoint of one chain."""
    return each(lambda one: result(one, serving(chain_id).get(one["method"], one["method"])))


def unknown(*wires: ScriptedWire, **settings: Any) -> Rpc:
    """Endpoints that were never asked which chain they serve."""
    node, _ = rpc(*wires, **settings)
    for endpoint in node.endpoints:
        endpoint.is_known = False
    return node


async def ask(node: Rpc, *calls: Call) -> list[str | None]:
    async def work(endpoint: Endpoint) -> list[str | None]:
        got = await node.exchange(endpoint, calls)
        return [answer.read(answers.TEXT) for answer in got]

    return await node.settle(work)


def status(code: int, headers: dict[str, str] | None = None, body: bytes = b"") -> Reply:
    return Reply(status=code, headers=headers or {}, body=body)


# Requests and batches.


async def test_several_calls_go_out_in_one_request() -> None:
    wire = ScriptedWire(echo)
    node, _ = rpc(wire)
    assert await ask(node, call("a"), call("b"), call("c")) == ["a", "b", "c"]
    assert len(wire.requests) == 1


async def test_one_call_goes_out_alone() -> None:
    wire = ScriptedWire(echo)
    node, _ = rpc(wire)
    assert await ask(node, call("a")) == ["a"]
    assert isinstance(wire.requests[0], dict)


async def test_answers_in_another_order_find_their_calls() -> None:
    node, _ = rpc(ScriptedWire(lambda request: list(reversed(echo(request)))))
    assert await ask(node, call("a"), call("b"), call("c")) == ["a", "b", "c"]


async def test_more_calls_than_a_batch_holds_are_split() -> None:
    wire = ScriptedWire(echo)
    node, _ = rpc(wire, batch_size=3)
    names = [f"m{n}" for n in range(8)]
    assert await ask(node, *map(call, names)) == names
    assert sorted(len(request) for request in wire.requests) == [2, 3, 3]


@pytest.mark.parametrize(
    "refusal",
    [
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "batch too large"}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "no batch requests"}},
        [{"jsonrpc": "2.0", "id": 0, "error": {"code": -32600, "message": "batch too large"}}],
        Reply(status=413, headers={}, body=b"too large"),
    ],
)
async def test_a_node_that_refuses_batches_is_asked_in_smaller_ones(refusal: Any) -> None:
    def answer(request: Any) -> Any:
        return refusal if isinstance(request, list) and len(request) > 2 else echo(request)

    wire = ScriptedWire(answer)
    node, clock = rpc(wire)
    names = [f"m{n}" for n in range(8)]
    assert await ask(node, *map(call, names)) == names
    assert node.endpoints[0].abilities.batch.size == 2
    assert clock.slept == []


async def test_a_node_that_takes_no_batch_at_all_is_asked_call_by_call() -> None:
    def answer(request: Any) -> Any:
        if isinstance(request, list):
            return {"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "invalid"}}
        return echo(request)

    node, _ = rpc(ScriptedWire(answer))
    assert await ask(node, call("a"), call("b"), call("c")) == ["a", "b", "c"]
    assert node.endpoints[0].abilities.batch.size == 1


async def test_items_refused_for_the_size_of_the_whole_answer_are_asked_again_in_less() -> None:
    def answer(request: Any) -> Any:
        got = echo(request)
        if isinstance(request, list):
            return got[:2] + [failure(one, -32003, "response too large") for one in request[2:]]
        return got

    wire = ScriptedWire(answer)
    node, _ = rpc(wire)
    names = [f"m{n}" for n in range(6)]
    assert await ask(node, *map(call, names)) == names


async def test_a_batch_that_loses_answers_is_mended_not_begun_again() -> None:
    asked: list[int] = []

    def answer(request: Any) -> Any:
        many = request if isinstance(request, list) else [request]
        asked.append(len(many))
        if len(asked) == 1:
            return echo(request)[:5]
        return echo(request)

    node, _ = rpc(ScriptedWire(answer))
    names = [f"m{n}" for n in range(8)]
    assert await ask(node, *map(call, names)) == names
    assert asked == [8, 3]


async def test_an_optional_call_that_fails_does_not_hold_up_the_others() -> None:
    def answer(one: Any) -> Any:
        return failure(one, -32000, "oops") if one["method"] == "b" else result(one, "fine")

    wire = ScriptedWire(each(answer))
    node, _ = rpc(wire)
    got: list[Answer] = await node.settle(
        lambda endpoint: node.exchange(endpoint, [call("a"), call("b", is_optional=True)])
    )
    assert got[0].read(answers.TEXT) == "fine"
    assert isinstance(got[1].error, SourceUnavailable)
    assert len(wire.requests) == 1


async def test_no_more_requests_are_under_way_than_allowed() -> None:
    under_way = most = 0

    class Slow(ScriptedWire):
        async def post(self, body: bytes) -> Reply:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return await super().post(body)

    node, _ = rpc(Slow(echo), concurrency=3)
    await asyncio.gather(*(ask(node, call(f"m{n}")) for n in range(20)))
    assert most == 3


# Failures.


@pytest.mark.parametrize(
    "trouble",
    [
        status(502),
        status(200, body=b'{"jsonrpc":"2.0","id":0,"result":"a'),
        status(200, body=b"<html>hello</html>"),
        status(200, body=b""),
        status(200, body=b"[]"),
        status(200, body=b'{"jsonrpc":"2.0","id":0}'),
        status(200, body=b"null"),
        status(200, body=b'"text"'),
        status(200, body=b"\xff\xfe"),
        status(500, body=b'{"jsonrpc":"2.0","id":0,"error":{"code":-32603,"message":"oops"}}'),
        SourceUnavailable("cut"),
    ],
)
async def test_a_passing_trouble_is_tried_again_after_a_pause(trouble: Any) -> None:
    said = [trouble, trouble, None]
    wire = ScriptedWire(lambda request: said.pop(0) or echo(request))
    node, clock = rpc(wire)
    assert await ask(node, call("a")) == ["a"]
    assert len(wire.requests) == 3
    assert len(clock.slept) == 2


async def test_pauses_grow_with_jitter_and_stay_within_their_bound() -> None:
    node, clock = rpc(ScriptedWire(lambda _: status(502)), attempts_max=4, backoff_ms_max=250)
    with pytest.raises(SourceUnavailable, match="502"):
        await ask(node, call())
    assert len(clock.slept) == 3
    assert all(0 <= pause <= 0.25 for pause in clock.slept)
    assert len({round(pause, 6) for pause in clock.slept}) == 3


async def test_after_the_last_try_the_error_is_handed_on() -> None:
    wire = ScriptedWire(lambda request: failure(request, -32000, "still loading"))
    node, _ = rpc(wire, attempts_max=3)
    with pytest.raises(SourceUnavailable, match="still loading"):
        await ask(node, call())
    assert len(wire.requests) == 3


async def test_a_request_that_is_never_answered_is_given_up() -> None:
    class Silent(ScriptedWire):
        async def post(self, body: bytes) -> Reply:
            self.requests.append(body)
            await asyncio.Event().wait()
            raise AssertionError

    wire = Silent(echo)
    node, clock = rpc(wire, attempts_max=2, request_timeout_s=7)
    before = asyncio.all_tasks()
    with pytest.raises(SourceUnavailable, match="within 7 s"):
        await ask(node, call())
    assert clock.slept.count(7) == 2
    assert asyncio.all_tasks() == before


async def test_a_batch_that_is_not_answered_in_time_is_asked_for_in_halves() -> None:
    class Slow(ScriptedWire):
        async def post(self, body: bytes) -> Reply:
            if body.count(b"method") > 2:
                await asyncio.Event().wait()
            return await super().post(body)

    node, _ = rpc(Slow(echo), request_timeout_s=7)
    names = [f"m{n}" for n in range(8)]
    assert await ask(node, *map(call, names)) == names


async def test_a_limit_is_handed_on_at_once() -> None:
    wire = ScriptedWire(lambda request: failure(request, -32005, "query returned more than 10"))
    node, _ = rpc(wire)
    with pytest.raises(RangeTooLarge):
        await ask(node, call("eth_getLogs"))
    assert len(wire.requests) == 1


async def test_a_missing_method_is_looked_for_elsewhere_then_handed_on() -> None:
    missing = ScriptedWire(lambda request: failure(request, -32601, "not found"))
    having = ScriptedWire(echo)
    node, _ = rpc(missing, having)
    assert await ask(node, call("a")) == ["a"]
    alone, clock = rpc(missing)
    with pytest.raises(MethodMissing):
        await ask(alone, call("a"))
    assert clock.slept == []


async def test_an_answer_that_is_not_believed_is_asked_of_another_endpoint_first() -> None:
    one, two = ScriptedWire(echo), ScriptedWire(echo)
    node, clock = rpc(one, two)

    async def work(endpoint: Endpoint) -> str:
        await node.exchange(endpoint, [call()])
        if endpoint is node.endpoints[0]:
            raise Unbelievable("no")
        return endpoint.name

    await node.settle(work)
    assert (len(one.requests), len(two.requests)) == (1, 1)
    assert clock.slept == []


async def test_an_answer_of_another_shape_is_unbelievable_and_kept_for_whoever_looks() -> None:
    node, _ = rpc(ScriptedWire(lambda request: result(request, {"odd": "x" * 10_000})))
    with pytest.raises(Unbelievable) as caught:
        await ask(node, call("a"))
    raw = caught.value.fields["raw"]
    assert raw.startswith(b'{"odd":')
    assert len(raw) == 4096


async def test_in_a_batch_the_answer_that_is_odd_is_the_one_that_is_kept() -> None:
    def answer(one: Any) -> Any:
        return result(one, 17 if one["method"] == "b" else "fine")

    node, _ = rpc(ScriptedWire(each(answer)), attempts_max=1)
    with pytest.raises(Unbelievable, match="b ") as caught:
        await ask(node, call("a"), call("b"), call("c"))
    assert caught.value.fields["raw"] == b"17"


async def test_calls_nested_as_deep_as_a_chain_allows_are_read() -> None:
    traced = Call("debug_traceBlockByHash", (), answers.FRAMES)
    body = b'{"jsonrpc":"2.0","id":%d,"result":[{"result":' + _nested(1024) + b"}]}"
    alone = Reply(status=200, headers={}, body=body.replace(b"%d", b"0"))
    both = b"[" + body.replace(b"%d", b"0") + b"," + body.replace(b"%d", b"1") + b"]"
    for reply, calls in (
        (alone, [traced]),
        (Reply(status=200, headers={}, body=both), [traced] * 2),
    ):
        node, _ = rpc(ScriptedWire(lambda _, reply=reply: reply))
        for answer in await node.exchange(node.endpoints[0], calls):
            got = answer.read(answers.FRAMES)
            assert got is not None
            rows = traces.from_frames(got, ["0x" + "11" * 32])
            assert len(rows) == 1025
            assert rows[-1].trace_address == ",".join(["0"] * 1024)


async def test_an_answer_nested_beyond_reason_is_refused_not_crashed_on() -> None:
    body = b'{"jsonrpc":"2.0","id":0,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    node, _ = rpc(ScriptedWire(lambda _: Reply(status=200, headers={}, body=body)), attempts_max=1)
    with pytest.raises((SourceUnavailable, Unbelievable)):
        await ask(node, call())


# Several endpoints.


async def test_the_first_endpoint_is_used_while_it_is_well() -> None:
    one, two = ScriptedWire(echo), ScriptedWire(echo)
    node, _ = rpc(one, two)
    for _ in range(5):
        await ask(node, call())
    assert (len(one.requests), len(two.requests)) == (5, 0)


async def test_a_failing_endpoint_is_passed_over_at_once() -> None:
    one, two = ScriptedWire(lambda _: status(502)), ScriptedWire(echo)
    node, clock = rpc(one, two)
    for _ in range(FAILURES_MAX + 20):
        await ask(node, call())
    assert len(one.requests) == FAILURES_MAX, "an open breaker lets nothing through"
    assert len(two.requests) == FAILURES_MAX + 20
    assert clock.slept == []


async def test_an_endpoint_that_is_well_again_is_used_again() -> None:
    is_well = False
    one = ScriptedWire(lambda request: echo(request) if is_well else status(502))
    two = ScriptedWire(echo)
    node, clock = rpc(one, two)
    for _ in range(FAILURES_MAX):
        await ask(node, call())
    is_well = True
    clock.seconds += 60
    before = len(two.requests)
    for _ in range(5):
        await ask(node, call())
    assert len(two.requests) == before


async def test_a_dead_endpoint_costs_few_requests_however_many_want_it() -> None:
    wire = ScriptedWire(lambda _: status(502))
    node, clock = rpc(wire, attempts_max=5, concurrency=8)

    async def forever() -> None:
        while clock.seconds < 120:
            with pytest.raises(SourceUnavailable):
                await ask(node, call())

    await asyncio.gather(*(forever() for _ in range(8)))
    # Stepped time adds up the pauses of all eight, so this bound is generous to the endpoint.
    assert len(wire.requests) < 120 * 2


# Which chain they serve.


async def test_an_endpoint_is_asked_for_its_chain_before_it_is_used_and_once() -> None:
    wire = ScriptedWire(of_chain(7))
    node = unknown(wire)
    for _ in range(3):
        await ask(node, call())
    methods = [request["method"] for request in wire.requests]
    assert methods == ["eth_chainId", *[call().method] * 3]


async def test_endpoints_of_two_chains_are_refused_at_the_start() -> None:
    node = unknown(ScriptedWire(of_chain(7)), ScriptedWire(of_chain(5)))
    with pytest.raises(WrongChain, match="serves chain 5, the others serve 7"):
        await node.chain_id()


async def test_an_endpoint_that_is_away_at_the_start_is_asked_when_it_is_needed() -> None:
    is_away, has_failed = True, False
    one = ScriptedWire(lambda request: status(502) if has_failed else of_chain(7)(request))
    two = ScriptedWire(lambda request: status(502) if is_away else of_chain(5)(request))
    node = unknown(one, two)
    assert await node.chain_id() == 7
    is_away, has_failed = False, True
    with pytest.raises(SourceUnavailable):
        await ask(node, call())
    assert call().method not in [request["method"] for request in two.requests], (
        "no question about the chain itself may go to another chain"
    )


async def test_an_endpoint_that_comes_back_as_another_chain_is_not_used() -> None:
    chain_id: int | None = 7

    def answer(request: Any) -> Any:
        return status(502) if chain_id is None else of_chain(chain_id)(request)

    node = unknown(ScriptedWire(answer), attempts_max=FAILURES_MAX)
    await ask(node, call())
    chain_id = None
    with pytest.raises(SourceUnavailable):
        await ask(node, call())
    chain_id = 5
    with pytest.raises(WrongChain, match="serves chain 5"):
        await ask(node, call())


# Pauses that endpoints ask for.


async def test_retry_after_is_kept_to_the_second() -> None:
    said: list[Any] = [status(429, {"Retry-After": "7"}), None]
    node, clock = rpc(ScriptedWire(lambda request: said.pop(0) or echo(request)))
    assert await ask(node, call("a")) == ["a"]
    assert clock.slept == [7]


async def test_retry_after_of_one_endpoint_sends_us_to_the_other() -> None:
    one = ScriptedWire(lambda _: status(429, {"Retry-After": "30"}))
    two = ScriptedWire(echo)
    node, clock = rpc(one, two)
    for _ in range(4):
        await ask(node, call())
    assert (len(one.requests), len(two.requests)) == (1, 4)
    assert clock.slept == []


async def test_a_long_retry_after_is_told_while_it_is_kept() -> None:
    wire = ScriptedWire(lambda _: status(429, {"Retry-After": "600"}))
    node, clock = rpc(wire, backoff_ms_max=2000, attempts_max=3)
    with pytest.raises(RateLimited, match="pause"):
        await ask(node, call())
    assert len(wire.requests) == 1
    assert sum(clock.slept) <= 6


async def test_a_429_without_retry_after_is_backed_off_from() -> None:
    said: list[Any] = [status(429), status(429), None]
    node, clock = rpc(ScriptedWire(lambda request: said.pop(0) or echo(request)))
    assert await ask(node, call("a")) == ["a"]
    assert len(clock.slept) == 2


# Secrets.


@pytest.mark.parametrize(
    "trouble", [status(401), status(502), status(429), status(200, body=b"nonsense")]
)
async def test_no_error_and_no_log_shows_the_key_of_an_endpoint(
    trouble: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="unfork")
    node, _ = rpc(ScriptedWire(lambda _: trouble, url="https://user:pass@node.test/v2/secret-key"))
    with pytest.raises((SourceUnavailable, RateLimited)) as caught:
        await ask(node, call())
    told = str(caught.value) + json.dumps(caught.value.fields, default=str)
    told += "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert "node.test" in told
    for secret in ("secret-key", "pass", "user:"):
        assert secret not in told


def _nested(depth: int) -> bytes:
    """JSON of calls in calls; the standard library cannot write it so deep."""
    return b'{"type":"CALL","calls":[' * depth + b'{"type":"CALL"}' + b"]}" * depth


# The small tools.


async def test_within_gives_the_result_or_nothing_and_leaves_no_task() -> None:
    clock = SteppedClock()

    async def quick() -> str:
        return "done"

    before = asyncio.all_tasks()
    assert await within(clock, 1, quick()) == "done"
    assert await within(clock, 1, asyncio.Event().wait()) is None
    assert asyncio.all_tasks() == before


async def test_gather_ends_the_others_when_one_fails() -> None:
    async def fail() -> None:
        raise SourceUnavailable("no")

    before = asyncio.all_tasks()
    with pytest.raises(SourceUnavailable):
        await gather(asyncio.Event().wait(), fail(), asyncio.Event().wait())
    assert asyncio.all_tasks() == before
