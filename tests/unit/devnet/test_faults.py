"""Proves each fault of a call, and that faults come when they are told to, seeded and counted.

Method: an Rpc without sockets over a hand-made chain; the faults of the transport are proven over
sockets beside the server.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.unit.devnet.asking import ask, body, document, error
from tests.unit.devnet.handmade import (
    TOKEN,
    TRANSFER,
    HandmadeChain,
    block,
    executed,
    topic,
    transaction,
)
from unfork.devnet import faults, render
from unfork.devnet.block import Block
from unfork.devnet.faults import Faults
from unfork.devnet.protocol import Cut, Reply
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.proof.receipt import Log


def grown(parent: Block, number: int) -> Block:
    log = Log(address=TOKEN, topics=(TRANSFER, topic(number)), data=b"")
    return block(
        parent,
        executed(transaction(2, nonce=2 * number), log),
        executed(transaction(2, nonce=2 * number + 1), log, indexes=(1,)),
    )


def path(length: int) -> list[Block]:
    blocks = [block(None)]
    for number in range(1, length):
        blocks.append(grown(blocks[-1], number))
    return blocks


@pytest.fixture
def chain() -> HandmadeChain:
    return HandmadeChain(*path(10))


@pytest.fixture
def rpc(chain: HandmadeChain) -> Rpc:
    chain.safe, chain.finalized = chain.path[7], chain.path[5]
    return Rpc(chain)


def test_a_node_error_hits_only_the_methods_it_is_meant_for(rpc: Rpc) -> None:
    rpc.faults.switch_on(
        faults.NodeError(code=-32005, message="slow down", methods=frozenset({"eth_chainId"}))
    )

    assert error(rpc, "eth_chainId") == (-32005, "slow down")
    assert ask(rpc, "eth_blockNumber") == "0x9"
    assert rpc.faults.counts == {"NodeError": 1}


@pytest.mark.parametrize("method", ["eth_getBlockReceipts", "trace_block"])
def test_a_missing_method_is_missing_as_on_a_real_node(rpc: Rpc, method: str) -> None:
    rpc.faults.switch_on(faults.MethodMissing(methods=frozenset({method})))
    code, message = error(rpc, method, "0x1")

    assert code == -32601 and method in message
    assert rpc.faults.counts == {"MethodMissing": 1}


def test_receipts_can_be_had_by_number_only(rpc: Rpc, chain: HandmadeChain) -> None:
    hash = data(chain.head.hash)
    refusing = faults.HashRefused(strikes_max=2)
    rpc.faults.switch_on(refusing)
    rpc.faults.switch_on(faults.HashRefused(answer="error"))

    assert ask(rpc, "eth_getBlockReceipts", hash) is None
    assert ask(rpc, "eth_getBlockReceipts", {"blockHash": hash}) is None
    assert error(rpc, "eth_getBlockReceipts", hash)[0] == -32602
    assert ask(rpc, "eth_getBlockReceipts", "0x9") == render.receipts(chain.head)
    assert rpc.faults.counts == {"HashRefused": 3}


def test_a_lagging_replica_lags_in_everything(rpc: Rpc, chain: HandmadeChain) -> None:
    rpc.faults.switch_on(faults.Lag(blocks=3))
    hidden, shown = chain.path[7], chain.path[6]

    assert ask(rpc, "eth_blockNumber") == "0x6"
    assert ask(rpc, "eth_getBlockByNumber", "latest", False)["hash"] == data(shown.hash)
    assert ask(rpc, "eth_getBlockByNumber", "finalized", False)["number"] == "0x2"
    assert ask(rpc, "eth_getBlockByNumber", "safe", False)["number"] == "0x4"
    assert ask(rpc, "eth_getBlockByNumber", "0x7", False) is None
    assert ask(rpc, "eth_getBlockByHash", data(hidden.hash), False) is None
    assert ask(rpc, "eth_getBlockReceipts", data(hidden.hash)) is None
    assert error(rpc, "eth_getLogs", {"blockHash": data(hidden.hash)})[0] == -32000
    ranged = ask(rpc, "eth_getLogs", {"fromBlock": "0x6", "toBlock": "0x9"})
    assert ranged == render.logs(shown)
    assert ask(rpc, "eth_getTransactionByHash", data(hidden.transactions[0].hash)) is None
    before = rpc.faults.counts["Lag"]
    ask(rpc, "eth_chainId")
    assert rpc.faults.counts["Lag"] == before == 10, "what knows no head cannot lag"


def test_a_head_goes_back_for_a_while_and_returns(rpc: Rpc) -> None:
    rpc.faults.schedule(faults.Lag(blocks=4), first=2, last=3)

    heads = [ask(rpc, "eth_blockNumber") for _ in range(4)]

    assert heads == ["0x9", "0x5", "0x5", "0x9"]


def test_a_stale_replica_shows_the_branch_that_was_replaced(rpc: Rpc, chain: HandmadeChain) -> None:
    old = chain.path
    other = [*old[:8], block(old[7], name="other")]
    other.append(block(other[-1]))
    chain.show(*other)
    assert ask(rpc, "eth_blockNumber") == "0x9"
    rpc.faults.switch_on(faults.Stale(movements=1))

    assert ask(rpc, "eth_getBlockByNumber", "latest", False)["hash"] == data(old[9].hash)
    assert ask(rpc, "eth_getBlockByNumber", "0x8", False)["hash"] == data(old[8].hash)
    assert ask(rpc, "eth_getBlockByNumber", "0x7", False)["hash"] == data(old[7].hash)
    assert ask(rpc, "eth_getBlockByHash", data(old[8].hash), False) is not None
    assert ask(rpc, "eth_getBlockByHash", data(other[9].hash), False) is None
    ranged = ask(rpc, "eth_getLogs", {"fromBlock": "0x7", "toBlock": "latest"})
    assert ranged == [log for held in old[7:] for log in render.logs(held)]
    dropped = data(old[9].transactions[0].hash)
    assert ask(rpc, "eth_getTransactionByHash", dropped)["blockHash"] == data(old[9].hash)
    rpc.faults.clear()
    assert ask(rpc, "eth_getTransactionByHash", dropped) is None
    assert rpc.faults.counts == {"Stale": 7}


def test_nothing_can_be_stale_before_the_head_has_moved(rpc: Rpc) -> None:
    rpc.faults.switch_on(faults.Stale(movements=1))

    assert ask(rpc, "eth_blockNumber") == "0x9"
    assert rpc.faults.counts == {}


def test_a_null_block_strikes_only_where_there_is_one(rpc: Rpc) -> None:
    rpc.faults.switch_on(faults.NullBlock())

    assert ask(rpc, "eth_getBlockByNumber", "0x99", False) is None
    assert rpc.faults.counts == {}
    assert ask(rpc, "eth_getBlockByNumber", "0x1", False) is None
    assert rpc.faults.counts == {"NullBlock": 1}


def test_receipts_of_another_block_are_a_sibling_s_where_there_is_one(
    rpc: Rpc, chain: HandmadeChain
) -> None:
    rpc.faults.switch_on(faults.OtherReceipts())
    old = chain.head
    assert ask(rpc, "eth_getBlockReceipts", "0x9") == render.receipts(chain.path[8])

    chain.show(*chain.path[:9], grown(chain.path[8], 77))

    assert ask(rpc, "eth_getBlockReceipts", data(chain.head.hash)) == render.receipts(old)
    assert ask(rpc, "eth_getBlockReceipts", "0x0") == []
    assert rpc.faults.counts == {"OtherReceipts": 2}


@pytest.mark.parametrize("answer", ["null", "empty", "fewer"])
def test_late_receipts_come_in_the_end_block_by_block(
    rpc: Rpc, chain: HandmadeChain, answer: str
) -> None:
    rpc.faults.switch_on(faults.LateReceipts(answer=answer, asks=2))
    whole = render.receipts(chain.head)
    early = {"null": None, "empty": [], "fewer": whole[:-1]}[answer]
    hash = data(chain.head.hash)

    answers = [ask(rpc, "eth_getBlockReceipts", hash) for _ in range(4)]

    assert answers == [early, early, whole, whole]
    assert ask(rpc, "eth_getBlockReceipts", "0x8") != render.receipts(chain.path[8])
    assert rpc.faults.counts == {"LateReceipts": 3}


def test_a_late_receipt_is_late_by_its_transaction_too(rpc: Rpc, chain: HandmadeChain) -> None:
    rpc.faults.switch_on(faults.LateReceipts())
    hash = data(chain.head.transactions[1].hash)

    assert ask(rpc, "eth_getTransactionReceipt", hash) is None
    assert ask(rpc, "eth_getTransactionReceipt", hash) == render.receipts(chain.head)[1]


@pytest.mark.parametrize("cap", faults.RANGE_CAPS, ids=lambda cap: cap.message[:30])
def test_a_range_cap_refuses_in_the_provider_s_words(rpc: Rpc, cap: faults.RangeCap) -> None:
    rpc.faults.switch_on(dataclasses.replace(cap, blocks_max=3))
    code, message = error(rpc, "eth_getLogs", {"fromBlock": "0x2", "toBlock": "0x5"})

    assert code == cap.code and "3" in message and "{" not in message
    if "[" in message:
        assert re.findall("0x[0-9a-f]+", message) == ["0x2", "0x4"]
    ask(rpc, "eth_getLogs", {"fromBlock": "0x2", "toBlock": "0x4"})
    assert rpc.faults.counts == {"RangeCap": 1}


@pytest.mark.parametrize("cap", faults.RESULT_CAPS, ids=lambda cap: cap.message[:50])
def test_a_result_cap_refuses_and_may_suggest_a_range_that_fits(
    rpc: Rpc, cap: faults.ResultCap
) -> None:
    rpc.faults.switch_on(dataclasses.replace(cap, logs_max=5))
    code, message = error(rpc, "eth_getLogs", {"fromBlock": "0x1", "toBlock": "0x9"})

    assert code == cap.code and "{" not in message
    if "[" in message:
        assert re.findall("0x[0-9a-f]+", message) == ["0x1", "0x2"]
    assert len(ask(rpc, "eth_getLogs", {"fromBlock": "0x1", "toBlock": "0x2"})) == 4
    assert rpc.faults.counts == {"ResultCap": 1}


def test_a_strict_node_refuses_a_range_beyond_its_head(rpc: Rpc) -> None:
    rpc.faults.switch_on(faults.BeyondHead())
    asked = error(rpc, "eth_getLogs", {"fromBlock": "0x1", "toBlock": "0xa"})

    assert asked == (-32602, "block range extends beyond current head block")
    assert ask(rpc, "eth_getLogs", {"fromBlock": "0x9", "toBlock": "0x9"})
    assert rpc.faults.counts == {"BeyondHead": 1}


def test_logs_of_a_range_come_twice_and_those_of_a_hash_once(
    rpc: Rpc, chain: HandmadeChain
) -> None:
    rpc.faults.switch_on(faults.DuplicateLogs())
    once = render.logs(chain.head)

    assert ask(rpc, "eth_getLogs", {"fromBlock": "0x9"}) == [each for each in once for _ in "ab"]
    assert ask(rpc, "eth_getLogs", {"blockHash": data(chain.head.hash)}) == once
    assert rpc.faults.counts == {"DuplicateLogs": 1}


def test_a_batch_above_the_cap_is_refused_whole(rpc: Rpc) -> None:
    rpc.faults.switch_on(faults.BatchCap(calls_max=2))
    call = body("eth_chainId")

    assert len(document(rpc, b"[" + call + b"," + call + b"]")) == 2
    refused = document(rpc, b"[" + call + b"," + call + b"," + call + b"]")
    assert refused["error"] == {"code": -32600, "message": "batch too large"}


def test_a_batch_fails_whole_when_one_of_its_methods_meets_a_transport_fault(rpc: Rpc) -> None:
    rpc.faults.switch_on(faults.CutSocket(methods=frozenset({"eth_chainId"})))
    batch = b"[" + body("eth_blockNumber") + b"," + body("eth_chainId") + b"]"

    assert rpc.answer(batch) == Cut()
    assert isinstance(rpc.answer(body("eth_blockNumber")), Reply)
    assert rpc.faults.counts == {"CutSocket": 1}


def test_silence_is_the_absence_of_an_answer(rpc: Rpc) -> None:
    rpc.faults.switch_on(faults.Silence())

    assert rpc.answer(body("eth_chainId")) is None


def test_the_same_seed_meets_the_same_faults_and_another_seed_others(
    chain: HandmadeChain,
) -> None:
    def outcomes(seed: int) -> list[bool]:
        rpc = Rpc(chain, Faults(seed))
        rpc.faults.switch_on(faults.NullBlock(rate=0.3))
        return [ask(rpc, "eth_getBlockByNumber", "0x1", False) is None for _ in range(200)]

    assert outcomes(1) == outcomes(1) != outcomes(2)
    assert 30 < sum(outcomes(1)) < 90


def test_a_seeded_schedule_has_its_turns_and_then_heals(chain: HandmadeChain) -> None:
    def run(seed: int) -> dict[str, int]:
        rpc = Rpc(chain, faults.seeded(seed, turns=8, requests_per_turn=40, rate=0.5))
        rpc.answer(body("eth_blockNumber"))
        chain.show(*path(10), grown(path(10)[-1], 10))
        batch = b",".join(
            (
                body("eth_getBlockByNumber", "0x8", False),
                body("eth_getBlockReceipts", "0x9"),
                body("eth_getLogs", {"fromBlock": "0x0"}),
            )
        )
        for _ in range(320):
            rpc.answer(b"[" + batch + b"]")
        met = dict(rpc.faults.counts)
        for _ in range(50):
            rpc.answer(b"[" + batch + b"]")
        assert rpc.faults.counts == met, "healed"
        return met

    assert run(5) == run(5)
    assert len(run(5)) >= 3


def test_switching_off_one_fault_leaves_the_others_and_it_may_come_back_afresh(
    rpc: Rpc,
) -> None:
    once = faults.NullBlock(strikes_max=1)
    rpc.faults.switch_on(once)
    rpc.faults.switch_on(faults.NodeError(methods=frozenset({"eth_chainId"})))
    answers = [ask(rpc, "eth_getBlockByNumber", "0x1", False) is None for _ in range(2)]
    rpc.faults.switch_off(once)
    error(rpc, "eth_chainId")
    rpc.faults.switch_on(once)
    again = ask(rpc, "eth_getBlockByNumber", "0x1", False)

    assert answers == [True, False] and again is None
    assert rpc.faults.counts == {"NullBlock": 2, "NodeError": 1}
