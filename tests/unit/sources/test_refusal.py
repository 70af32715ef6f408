"""What a refusal means is read from the words that real nodes and providers use.

Method: tables of answers as geth, erigon, nethermind, besu, reth and the large providers word
them, each with what a client has to do about it.
"""

from __future__ import annotations

import email.utils
import time
from typing import Any

import pytest

from unfork.devnet import faults
from unfork.errors import MethodMissing, RangeTooLarge, RateLimited, SourceUnavailable
from unfork.sources import refusal

LIMITS: list[tuple[int, str]] = [
    (-32005, "query returned more than 10000 results"),
    (-32005, "query returned more than 10000 results. Try with this block range [0x1, 0x2]."),
    (-32602, "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block"),
    (-32600, "You can make eth_getLogs requests with up to a 500 block range."),
    (-32602, "range 1000000 exceeds limit of 10000"),
    (-32600, "query exceeds max block range 1000"),
    (-32000, "exceed maximum block range: 5000"),
    (-32000, "block range is too wide"),
    (-32000, "block range too large"),
    (-32614, "eth_getLogs is limited to a 10,000 range"),
    (-32602, "eth_getLogs and eth_newFilter are limited to a 10,000 blocks range"),
    (-32000, "requested too many blocks from 1 to 5000, maximum is set to 2048"),
    (-32000, "logs matched by query exceeds limit of 10000"),
    (-32701, "Please specify an address in your request or, limit your block range to 100"),
    (-32000, "ranges over 10000 blocks are not supported on freetier"),
    (-32603, "query timeout exceeded"),
    (-32008, "Response is too big"),
    (-32020, "backend response too large"),
    (-32003, "response too large"),
    (-32000, "Block range limit exceeded. See more details at https://example.test"),
    (-32005, "Limit exceeded"),
    (-32000, "max results exceeded"),
]

RATES: list[tuple[int, str]] = [
    (-32005, "daily request count exceeded, request rate limited"),
    (429, "Your app has exceeded its compute units per second capacity."),
    (-32007, "50/second request limit reached - reduce calls per second or upgrade: rate limit"),
    (-32029, "Too Many Requests"),
    (-32000, "too many requests, slow down"),
]

MISSING: list[tuple[int, str]] = [
    (-32601, "the method eth_getBlockReceipts does not exist/is not available"),
    (-32601, "Method not found"),
    (-32004, "This method is not supported"),
    (-32000, "method trace_block is not whitelisted"),
    (-32600, "Unsupported method: debug_traceBlockByHash"),
    (-32602, "invalid argument 0: hex string has length 64, want 16"),
]

ABSENT: list[tuple[int, str]] = [
    (-32000, "unknown block"),
    (-32000, "header not found"),
    (-39001, "finalized block not found"),
    (-32000, "block not found: 0x1234"),
    (-32001, "Unknown block"),
    (-32001, "Resource not found"),
]

PASSING: list[tuple[int, str]] = [
    (-32603, "internal error: request timed out"),
    (-32000, "server overloaded"),
    (-32603, "Internal error"),
    (19, "temporary internal error"),
]


@pytest.mark.parametrize(("code", "text"), LIMITS)
def test_a_limit_of_a_provider_asks_for_less(code: int, text: str) -> None:
    assert isinstance(refusal.of_error("eth_getLogs", code, text), RangeTooLarge)


@pytest.mark.parametrize("fault", [*faults.RANGE_CAPS, *faults.RESULT_CAPS])
def test_the_limits_of_a_devnet_are_limits(fault: Any) -> None:
    text = fault.message.format(blocks_max=10, logs_max=10, blocks=50, first="0x1", last="0x2")
    assert isinstance(refusal.of_error("eth_getLogs", fault.code, text), RangeTooLarge)


@pytest.mark.parametrize(("code", "text"), RATES)
@pytest.mark.parametrize("method", ["eth_getLogs", "eth_getBlockByNumber"])
def test_a_rate_limit_asks_for_a_pause(method: str, code: int, text: str) -> None:
    assert isinstance(refusal.of_error(method, code, text), RateLimited)


@pytest.mark.parametrize(("code", "text"), MISSING)
def test_a_missing_method_asks_for_another_way(code: int, text: str) -> None:
    assert isinstance(refusal.of_error("eth_getBlockReceipts", code, text), MethodMissing)


@pytest.mark.parametrize(("code", "text"), ABSENT)
def test_a_block_that_is_not_there_is_an_answer(code: int, text: str) -> None:
    assert refusal.of_error("eth_getLogs", code, text) is None


@pytest.mark.parametrize(("code", "text"), PASSING)
@pytest.mark.parametrize("method", ["eth_getLogs", "eth_getBlockByNumber"])
def test_everything_else_is_worth_another_try(method: str, code: int, text: str) -> None:
    assert type(refusal.of_error(method, code, text)) is SourceUnavailable


def test_words_in_the_data_of_an_error_are_read_too() -> None:
    data = {"payload": "range 9009594 is bigger than range limit 2000"}
    assert isinstance(
        refusal.of_error("eth_getLogs", -32602, "invalid params", data), RangeTooLarge
    )


@pytest.mark.parametrize("message", [None, 5, {"text": "odd"}, ["x"]])
def test_an_error_of_odd_types_is_survived(message: Any) -> None:
    assert refusal.of_error("eth_getLogs", "odd", message, data=7) is not None


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, RateLimited), (413, RangeTooLarge), (502, SourceUnavailable), (403, SourceUnavailable)],
)
def test_a_status_means_what_it_says(status: int, kind: type[Exception]) -> None:
    assert type(refusal.of_status(status, {}, b"")) is kind


def test_a_status_of_200_or_an_error_in_the_body_is_worth_reading() -> None:
    assert refusal.of_status(200, {}, b"anything") is None
    assert refusal.of_status(500, {}, b'{"jsonrpc":"2.0","error":{}}') is None
    assert refusal.of_status(503, {}, b'{"jsonrpc":"2.0"}') is not None


def test_retry_after_is_read_as_seconds() -> None:
    assert refusal.retry_after({"Retry-After": "7"}) == 7
    assert refusal.retry_after({"retry-after": "0.5"}) == 0.5


def test_retry_after_is_read_as_a_date_by_the_endpoints_own_clock() -> None:
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    later = "Wed, 21 Oct 2015 07:28:09 GMT"
    assert refusal.retry_after({"Date": date, "Retry-After": later}) == 9
    assert refusal.retry_after({"Date": later, "Retry-After": date}) == 0


def test_retry_after_as_a_date_without_a_clock_is_read_by_ours() -> None:
    later = email.utils.formatdate(time.time() + 30, usegmt=True)
    seconds = refusal.retry_after({"Retry-After": later})
    assert seconds is not None and 27 <= seconds <= 31


def test_retry_after_that_makes_no_sense_is_ignored_and_a_long_one_is_bounded() -> None:
    assert refusal.retry_after({"Retry-After": "soon"}) is None
    assert refusal.retry_after({}) is None
    assert refusal.retry_after({"Retry-After": "99999999"}) == refusal.RETRY_AFTER_S_MAX
