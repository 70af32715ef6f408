"""Proves that blocks read over JSON-RPC as a node writes them.

Method: hand-made blocks with one transaction of every type; field names are compared with lists
taken from answers of geth, values with what the block was made of.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.devnet.handmade import (
    ALICE,
    BOB,
    TOKEN,
    TRANSFER,
    block,
    executed,
    topic,
    transaction,
)
from unfork.devnet import render
from unfork.devnet.block import Call
from unfork.proof import receipt
from unfork.proof.receipt import Log

HEADER = set(
    """baseFeePerGas blobGasUsed difficulty excessBlobGas extraData gasLimit gasUsed hash logsBloom
    miner mixHash nonce number parentBeaconBlockRoot parentHash receiptsRoot requestsHash sha3Uncles
    stateRoot timestamp transactionsRoot withdrawalsRoot""".split()
)
LEGACY = set(
    """blockHash blockNumber blockTimestamp from gas gasPrice hash input nonce to transactionIndex
    value type v r s chainId""".split()
)
ACCESS = LEGACY | {"accessList", "yParity"}
DYNAMIC = ACCESS | {"maxFeePerGas", "maxPriorityFeePerGas"}
TRANSACTION = {
    0: LEGACY,
    1: ACCESS,
    2: DYNAMIC,
    3: DYNAMIC | {"maxFeePerBlobGas", "blobVersionedHashes"},
    4: DYNAMIC | {"authorizationList"},
}
RECEIPT = set(
    """blockHash blockNumber contractAddress cumulativeGasUsed effectiveGasPrice from gasUsed logs
    logsBloom status to transactionHash transactionIndex type""".split()
)
LOG = set(
    """address topics data blockNumber transactionHash transactionIndex blockHash blockTimestamp
    logIndex removed""".split()
)


def test_a_block_has_the_fields_of_geth_and_no_total_difficulty() -> None:
    answer = render.block(block(None), full=False)

    assert set(answer) == HEADER | {"size", "transactions", "uncles", "withdrawals"}
    assert answer["number"] == "0x0" and answer["difficulty"] == "0x0"
    assert answer["size"] == "0x4d2" and answer["nonce"] == "0x0000000000000000"
    assert answer["withdrawals"] == [
        {"index": "0x0", "validatorIndex": "0x1", "address": render.data(ALICE), "amount": "0x2"}
    ]


def test_an_announced_head_is_the_header_and_its_hash() -> None:
    assert set(render.header(block(None))) == HEADER


def test_fields_that_the_rules_of_a_block_do_not_have_are_absent() -> None:
    old = block(
        None,
        base_fee_per_gas=None,
        withdrawals_root=None,
        blob_gas_used=None,
        excess_blob_gas=None,
        parent_beacon_block_root=None,
        requests_hash=None,
    )
    answer = render.block(old, full=True)

    gone = {"baseFeePerGas", "withdrawalsRoot", "blobGasUsed", "excessBlobGas"}
    gone |= {"parentBeaconBlockRoot", "requestsHash"}
    assert set(answer) == (HEADER - gone) | {"size", "transactions", "uncles"}


@pytest.mark.parametrize("type", range(5))
def test_a_transaction_has_exactly_the_fields_of_its_type(type: int) -> None:
    own = executed(transaction(type))
    held = block(None, own)
    [answer] = render.transactions(held)

    assert set(answer) == TRANSACTION[type]
    assert answer["type"] == hex(type) and answer["hash"] == render.data(own.hash)
    assert answer["chainId"] == hex(1337)
    assert answer["r"] == "0x123", "a quantity has no leading zeros"
    assert answer["gasPrice"] == hex(100 if type < 2 else 111)
    assert render.block(held, full=True)["transactions"] == [answer]
    assert render.block(held, full=False)["transactions"] == [answer["hash"]]


def test_an_unprotected_transaction_names_no_chain() -> None:
    [answer] = render.transactions(block(None, executed(transaction(0, v=27))))

    assert set(answer) == LEGACY - {"chainId"} and answer["v"] == "0x1b"


def test_lists_of_a_transaction_keep_every_entry() -> None:
    held = block(None, executed(transaction(3)), executed(transaction(4)))
    blob, code = render.transactions(held)

    keys = [render.data(topic(1)), render.data(topic(2))]
    assert blob["accessList"] == [{"address": render.data(TOKEN), "storageKeys": keys}]
    assert blob["blobVersionedHashes"] == [render.data(topic(3)), render.data(topic(4))]
    assert code["authorizationList"] == [
        {
            "chainId": hex(1337),
            "address": render.data(TOKEN),
            "nonce": "0x0",
            "yParity": "0x1",
            "r": "0xa",
            "s": "0xb",
        }
    ]


def test_a_receipt_has_the_fields_of_geth_and_the_bloom_of_its_own_logs() -> None:
    logs = (
        Log(address=TOKEN, topics=(TRANSFER,), data=b"\0"),
        Log(address=BOB, topics=(), data=b""),
    )
    held = block(None, executed(transaction(2), *logs, indexes=(3, 2**31 + 5)))
    [answer] = render.receipts(held)

    assert set(answer) == RECEIPT and all(set(log) == LOG for log in answer["logs"])
    assert answer["logsBloom"] == render.data(receipt.bloom(logs))
    assert [log["logIndex"] for log in answer["logs"]] == ["0x3", "0x80000005"]
    assert answer["logs"][0]["data"] == "0x00" and answer["logs"][1]["data"] == "0x"
    assert answer["status"] == "0x1" and answer["contractAddress"] is None
    assert render.logs(held) == answer["logs"]


def test_a_blob_receipt_says_what_its_blobs_cost() -> None:
    [answer] = render.receipts(block(None, executed(transaction(3))))

    assert set(answer) == RECEIPT | {"blobGasUsed", "blobGasPrice"}
    assert (answer["blobGasUsed"], answer["blobGasPrice"]) == (hex(2 * 131_072), "0x1")


def test_receipts_of_an_unproven_block_have_an_empty_bloom_like_its_header() -> None:
    log = Log(address=TOKEN, topics=(TRANSFER,), data=b"")
    held = block(None, executed(transaction(2), log), logs_bloom=bytes(256))
    [answer] = render.receipts(held)

    assert answer["logsBloom"] == render.data(bytes(256))


def call(path: tuple[int, ...], subtraces: int = 0, **changes: object) -> Call:
    plain = Call(
        path=path,
        type="call",
        call_type="call",
        sender=ALICE,
        to=BOB,
        value=0,
        gas=9,
        gas_used=4,
        input=b"\x01",
        output=b"\x02",
        subtraces=subtraces,
        error=None,
    )
    return replace(plain, **changes)


CALLS = (
    call((), 3),
    call((0,), 1, call_type="delegatecall", value=1),
    call((0, 0), call_type="staticcall", output=b""),
    call((1,), type="create", call_type=None, to=TOKEN, input=b"init", output=b"code"),
    call((2,), 1, error="Reverted", output=b""),
    call((2, 0), type="suicide", call_type=None, value=8, gas=0, gas_used=0, input=b"", output=b""),
)


def test_flat_traces_have_parity_s_shape_for_every_kind_of_call() -> None:
    held = block(None, executed(transaction(2), calls=CALLS))
    outer, _, static, create, failed, suicide = render.flat_traces(held)

    assert outer == {
        "action": {
            "from": render.data(ALICE),
            "to": render.data(BOB),
            "callType": "call",
            "gas": "0x9",
            "input": "0x01",
            "value": "0x0",
        },
        "result": {"gasUsed": "0x4", "output": "0x02"},
        "subtraces": 3,
        "traceAddress": [],
        "type": "call",
        "blockHash": render.data(held.hash),
        "blockNumber": 0,
        "transactionHash": render.data(held.transactions[0].hash),
        "transactionPosition": 0,
    }
    assert static["traceAddress"] == [0, 0] and static["action"]["callType"] == "staticcall"
    assert create["type"] == "create"
    assert set(create["action"]) == {"creationMethod", "from", "gas", "init", "value"}
    assert create["result"] == {
        "address": render.data(TOKEN),
        "code": render.data(b"code"),
        "gasUsed": "0x4",
    }
    assert failed["error"] == "Reverted" and "result" not in failed
    assert suicide["result"] is None
    assert suicide["action"] == {
        "address": render.data(ALICE),
        "refundAddress": render.data(BOB),
        "balance": "0x8",
    }


def test_the_call_tracer_nests_calls_in_their_order() -> None:
    held = block(None, executed(transaction(2), calls=CALLS))
    [answer] = render.call_traces(held)
    outer = answer["result"]

    assert answer["txHash"] == render.data(held.transactions[0].hash)
    assert [each["type"] for each in outer["calls"]] == ["DELEGATECALL", "CREATE", "CALL"]
    delegate, create, failed = outer["calls"]
    [static] = delegate["calls"]
    assert static["type"] == "STATICCALL" and "value" not in static and "output" not in static
    assert create["to"] == render.data(TOKEN) and create["output"] == render.data(b"code")
    assert failed["error"] == "execution reverted" and failed["gasUsed"] == "0x4"
    [suicide] = failed["calls"]
    assert (suicide["type"], suicide["value"]) == ("SELFDESTRUCT", "0x8")
    assert "calls" not in suicide
