"""Proves what each method answers, and how requests, batches and errors are treated.

Method: an Rpc without sockets over a hand-made chain of four blocks with a replaced sibling.
"""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from tests.unit.devnet.asking import ask, body, document, error
from tests.unit.devnet.handmade import (
    BOB,
    TOKEN,
    TRANSFER,
    HandmadeChain,
    block,
    executed,
    topic,
    transaction,
)
from unfork.devnet import render
from unfork.devnet.protocol import Reply
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.proof.receipt import Log


def log(number: int) -> Log:
    return Log(address=TOKEN, topics=(TRANSFER, topic(number)), data=b"\x01")


MOVED = executed(transaction(2, nonce=1), log(1))
GENESIS = block(None)
ONE = block(GENESIS, executed(transaction(0, nonce=0), log(0)))
TWO = block(ONE, MOVED, name="two")
THREE = block(TWO, executed(transaction(1, nonce=2), log(2), log(3)))
OTHER_TWO = block(ONE, executed(transaction(2, nonce=9), log(9)), MOVED, name="other")


@pytest.fixture
def chain() -> HandmadeChain:
    return HandmadeChain(GENESIS, ONE, TWO, THREE)


@pytest.fixture
def rpc(chain: HandmadeChain) -> Rpc:
    return Rpc(chain)


def test_the_chain_names_itself(rpc: Rpc) -> None:
    assert ask(rpc, "eth_chainId") == "0x539"
    assert ask(rpc, "net_version") == "1337"
    assert "/" in ask(rpc, "web3_clientVersion")
    assert ask(rpc, "eth_syncing") is False
    assert ask(rpc, "eth_blockNumber") == "0x3"


def test_blocks_are_found_by_number_and_tag(rpc: Rpc, chain: HandmadeChain) -> None:
    chain.safe, chain.finalized = TWO, ONE
    for name, held in {
        "0x0": GENESIS,
        "0x2": TWO,
        "earliest": GENESIS,
        "finalized": ONE,
        "safe": TWO,
        "latest": THREE,
        "pending": THREE,
    }.items():
        assert ask(rpc, "eth_getBlockByNumber", name, True) == render.block(held, full=True)
    assert ask(rpc, "eth_getBlockByNumber", "0x2", False) == render.block(TWO, full=False)
    assert ask(rpc, "eth_getBlockByNumber", "0x4", False) is None


def test_a_chain_without_finality_says_so_as_geth_does(rpc: Rpc) -> None:
    asked = error(rpc, "eth_getBlockByNumber", "finalized", False)

    assert asked == (-32000, "finalized block not found")


def test_a_replaced_block_answers_by_hash_unless_the_node_forgets_it(chain: HandmadeChain) -> None:
    chain.show(GENESIS, ONE, OTHER_TWO)
    keeps, forgets = Rpc(chain), Rpc(chain, keeps_replaced=False)
    hash = data(TWO.hash)

    assert ask(keeps, "eth_getBlockByHash", hash, False) == render.block(TWO, full=False)
    assert ask(keeps, "eth_getBlockReceipts", hash) == render.receipts(TWO)
    assert ask(keeps, "eth_getLogs", {"blockHash": hash}) == render.logs(TWO)
    assert ask(forgets, "eth_getBlockByHash", hash, False) is None
    assert ask(forgets, "eth_getBlockReceipts", hash) is None
    assert error(forgets, "eth_getLogs", {"blockHash": hash}) == (-32000, "unknown block")
    other = data(OTHER_TWO.hash)
    assert ask(forgets, "eth_getBlockByHash", other, False)["hash"] == other


def test_receipts_are_found_by_number_tag_hash_and_object(rpc: Rpc) -> None:
    expected = render.receipts(THREE)
    hash = data(THREE.hash)

    for name in ("0x3", "latest", hash, {"blockHash": hash}, {"blockNumber": "0x3"}):
        assert ask(rpc, "eth_getBlockReceipts", name) == expected
    assert ask(rpc, "eth_getBlockReceipts", "earliest") == []
    assert ask(rpc, "eth_getBlockReceipts", "0x9") is None
    assert ask(rpc, "eth_getBlockReceipts", data(bytes(32))) is None
    assert error(rpc, "eth_getBlockReceipts", {})[0] == -32602


def test_a_moved_transaction_is_found_where_it_is_now(rpc: Rpc, chain: HandmadeChain) -> None:
    hash = data(MOVED.hash)
    assert ask(rpc, "eth_getTransactionByHash", hash) == render.transactions(TWO)[0]

    chain.show(GENESIS, ONE, OTHER_TWO)

    assert ask(rpc, "eth_getTransactionByHash", hash) == render.transactions(OTHER_TWO)[1]
    assert ask(rpc, "eth_getTransactionReceipt", hash) == render.receipts(OTHER_TWO)[1]
    dropped = data(THREE.transactions[0].hash)
    assert ask(rpc, "eth_getTransactionByHash", dropped) is None
    assert ask(rpc, "eth_getTransactionReceipt", dropped) is None


def test_logs_are_found_by_range_and_by_hash(rpc: Rpc) -> None:
    everything = [each for held in (ONE, TWO, THREE) for each in render.logs(held)]

    assert ask(rpc, "eth_getLogs", {"fromBlock": "0x0", "toBlock": "latest"}) == everything
    assert ask(rpc, "eth_getLogs", {"fromBlock": "earliest", "toBlock": "0x99"}) == everything
    assert ask(rpc, "eth_getLogs", {}) == render.logs(THREE), "the head is the default"
    assert ask(rpc, "eth_getLogs", {"blockHash": data(TWO.hash)}) == render.logs(TWO)
    assert ask(rpc, "eth_getLogs", {"fromBlock": "0x8", "toBlock": "0x9"}) == []
    wanted = {"fromBlock": "0x0", "topics": [None, [data(topic(1)), data(topic(3))]]}
    assert ask(rpc, "eth_getLogs", wanted) == [everything[1], everything[3]]
    assert ask(rpc, "eth_getLogs", {"fromBlock": "0x0", "address": data(BOB)}) == []


def test_impossible_log_filters_get_the_errors_of_geth(rpc: Rpc) -> None:
    backwards = error(rpc, "eth_getLogs", {"fromBlock": "0x3", "toBlock": "0x1"})
    unknown = error(rpc, "eth_getLogs", {"blockHash": data(bytes(32))})
    both = error(rpc, "eth_getLogs", {"blockHash": data(ONE.hash), "fromBlock": "0x1"})

    assert backwards == (-32602, "invalid block range params")
    assert unknown == (-32000, "unknown block")
    assert both[0] == -32602 and "choose one or the other" in both[1]
    assert error(rpc, "eth_getLogs", {"topics": [None] * 5})[0] == -32602
    assert error(rpc, "eth_getLogs", {"topics": "0x"})[0] == -32602
    assert error(rpc, "eth_getLogs", {"address": "0x00"})[0] == -32602
    assert error(rpc, "eth_getLogs", "latest")[0] == -32602


def test_traces_are_flat_or_nested(rpc: Rpc) -> None:
    tracer = {"tracer": "callTracer"}

    assert ask(rpc, "trace_block", "0x3") == render.flat_traces(THREE)
    assert ask(rpc, "trace_block", "latest") == render.flat_traces(THREE)
    assert ask(rpc, "trace_block", "0x9") is None
    nested = render.call_traces(THREE)
    assert ask(rpc, "debug_traceBlockByHash", data(THREE.hash), tracer) == nested
    assert ask(rpc, "debug_traceBlockByNumber", "0x3", tracer) == nested
    assert error(rpc, "debug_traceBlockByHash", data(THREE.hash))[0] == -32602
    genesis = error(rpc, "debug_traceBlockByHash", data(GENESIS.hash), tracer)
    assert genesis == (-32000, "genesis is not traceable")
    missing = error(rpc, "debug_traceBlockByHash", data(bytes(32)), tracer)
    assert missing == (-32000, f"block {data(bytes(32))} not found")


def test_subscriptions_need_a_websocket(rpc: Rpc) -> None:
    asked = error(rpc, "eth_subscribe", "newHeads")

    assert asked == (-32601, "notifications not supported")


def test_an_unknown_method_and_bad_parameters_have_their_codes(rpc: Rpc) -> None:
    assert error(rpc, "eth_nonsense")[0] == -32601
    assert error(rpc, "eth_getBlockByNumber")[0] == -32602
    assert error(rpc, "eth_getBlockByNumber", "0x1")[0] == -32602
    assert error(rpc, "eth_getBlockByNumber", "0x1", "yes")[0] == -32602
    assert error(rpc, "eth_getBlockByHash", "0x1", True)[0] == -32602
    for bad in ("3", "", "0x", "0x01", "0x1g", "0x1_0", 3, None):
        assert error(rpc, "eth_getBlockByNumber", bad, False)[0] == -32602, bad
    by_name = orjson.dumps({"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": {}})
    assert document(rpc, by_name)["error"]["code"] == -32602


def test_a_request_that_is_none_has_its_codes(rpc: Rpc) -> None:
    assert document(rpc, b"{nonsense")["error"]["code"] == -32700
    for bad in (b"[]", b"1", b"{}", b'{"method": 1}'):
        assert document(rpc, bad)["error"]["code"] == -32600, bad


def test_a_batch_is_answered_call_by_call_in_order(rpc: Rpc) -> None:
    calls = [body("eth_blockNumber", id="a"), body("nonsense", id=None), b"7", body("eth_chainId")]
    answers = document(rpc, b"[" + b",".join(calls) + b"]")

    assert [answer["id"] for answer in answers] == ["a", None, None, 1]
    assert answers[0]["result"] == "0x3" and answers[3]["result"] == "0x539"
    assert [answers[1]["error"]["code"], answers[2]["error"]["code"]] == [-32601, -32600]


def test_notifications_get_no_answer(rpc: Rpc) -> None:
    note = b'{"jsonrpc": "2.0", "method": "eth_chainId"}'
    alone, all_of_them = rpc.answer(note), rpc.answer(b"[" + note + b"," + note + b"]")
    mixed = document(rpc, b"[" + note + b"," + body("eth_blockNumber") + b"]")

    assert isinstance(alone, Reply) and alone.body == b""
    assert isinstance(all_of_them, Reply) and all_of_them.body == b""
    assert [answer["result"] for answer in mixed] == ["0x3"]


def test_rendered_blocks_are_kept_within_their_bound(chain: HandmadeChain) -> None:
    rpc = Rpc(chain, cache_size_max=20_000)
    held = GENESIS
    for number in range(50):
        held = block(held, executed(transaction(2, nonce=number), log(number)))
        chain.show(*chain.path[: held.number], held)
        full = ask(rpc, "eth_getBlockByHash", data(held.hash), True)
        assert full == render.block(held, full=True)
    assert 0 < rpc.fragments.size <= 20_000


def test_a_view_is_served_from_memory_without_being_rendered_again(
    rpc: Rpc, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ask(rpc, "eth_getBlockByHash", data(TWO.hash), True)
    monkeypatch.setattr(render, "block", None)

    assert ask(rpc, "eth_getBlockByNumber", "0x2", True) == first


def test_equal_content_under_another_hash_is_another_block(rpc: Rpc, chain: HandmadeChain) -> None:
    twin = replace(TWO, hash=topic(77))
    ask(rpc, "eth_getBlockByNumber", "0x2", True)
    chain.show(GENESIS, ONE, twin)

    assert ask(rpc, "eth_getBlockByNumber", "0x2", True)["hash"] == data(topic(77))
