"""Proves that what the devnet serves is shaped like geth's own answers, and can be proven.

Method: answers recorded from geth are read into values, rendered again and must come out equal,
field by field; and blocks of a proven tree, as served, must pass every proof of a block.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.devnet.asking import ask
from unfork.devnet import render
from unfork.devnet.block import Block, Executed
from unfork.devnet.knobs import Knobs
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.devnet.tree import Tree
from unfork.proof import block as proof_block
from unfork.proof import rows as proof_rows
from unfork.proof import rpc as proof_rpc
from unfork.proof.block import Gap
from unfork.proof.finding import Outcome
from unfork.proof.header import Header
from unfork.proof.receipt import Log
from unfork.proof.transaction import Transaction

Json = dict[str, Any]


@pytest.fixture(scope="module")
def recorded(shared_data: Path) -> Json:
    loaded: Json = json.loads((shared_data / "geth-chain.json").read_bytes())
    return loaded


def answers(recorded: Json, method: str) -> list[Any]:
    """What geth answered to every recorded call of a method that found something."""
    return [
        each["result"] for each in recorded["io"] if each["method"] == method and each.get("result")
    ]


def test_blocks_and_transactions_of_geth_come_out_as_they_went_in(recorded: Json) -> None:
    served = [
        each
        for method in ("eth_getBlockByNumber", "eth_getBlockByHash")
        for each in answers(recorded, method)
    ]
    whole = [
        each
        for each in served
        if each["transactions"] and isinstance(each["transactions"][0], dict)
    ]
    hashes = [each for each in served if each not in whole]
    assert len(whole) >= 3 and len(hashes) >= 5

    for answer in whole:
        assert render.block(_block(answer, []), full=True) == answer
    for answer in hashes:
        full = {**recorded["blocks"][answer["hash"]]}
        assert render.block(_block(full, []), full=False) == answer


def test_transactions_of_every_type_come_out_as_they_went_in(recorded: Json) -> None:
    asked = {each["hash"]: each for each in answers(recorded, "eth_getTransactionByHash")}
    types = set()
    for answer in asked.values():
        held = _block(recorded["blocks"][answer["blockHash"]], [])
        [own] = [each for each in render.transactions(held) if each["hash"] == answer["hash"]]
        assert own == answer
        types.add(answer["type"])
    assert types == {"0x0", "0x1", "0x2", "0x3", "0x4"}


def test_receipts_and_logs_of_geth_come_out_as_they_went_in(recorded: Json) -> None:
    lists = answers(recorded, "eth_getBlockReceipts")
    # Before Byzantium a receipt had a state root instead of a status; the devnet has no such block.
    modern = [each for each in lists if all("status" in receipt for receipt in each)]
    assert modern
    for answer in modern:
        held = _block(recorded["blocks"][answer[0]["blockHash"]], answer)
        assert render.receipts(held) == answer
        assert render.logs(held) == [log for receipt in answer for log in receipt["logs"]]
    for answer in answers(recorded, "eth_getTransactionReceipt"):
        if "status" in answer:
            held = _block(recorded["blocks"][answer["blockHash"]], [answer])
            [own] = [
                each
                for each in render.receipts(held)
                if each["transactionHash"] == answer["transactionHash"]
            ]
            assert own == answer


def test_blocks_of_a_proven_tree_can_be_proven_as_served() -> None:
    tree = Tree(Knobs(seed=3, proven=True, density=4))
    tree.extend(25)
    rpc = Rpc(tree)
    types = set()
    for number in range(26):
        held = tree.at(number)
        assert held is not None
        whole = ask(rpc, "eth_getBlockByHash", data(held.hash), True)
        receipts = ask(rpc, "eth_getBlockReceipts", data(held.hash))
        claim = proof_rows.claim(proof_rpc.rows(whole, receipts))
        found = {each.check: each.outcome for each in proof_block.check(claim)}
        assert set(found.values()) == {Outcome.PROVEN}, found
        types |= {each["type"] for each in whole["transactions"]}
    assert types == {"0x0", "0x1", "0x2", "0x3", "0x4"}


def _block(answer: Json, receipts: list[Json]) -> Block:
    """A block as the devnet holds it, from geth's answers; what no receipt tells stays empty."""
    claim = proof_rows.claim(proof_rpc.rows(answer, receipts))
    by_hash = {each["transactionHash"]: each for each in receipts}
    header = claim.header
    assert isinstance(header, Header) and claim.transactions is not None
    transactions = []
    for own, transaction in zip(answer["transactions"], claim.transactions, strict=True):
        assert isinstance(transaction, Transaction)
        receipt = by_hash.get(own["hash"], {"logs": []})
        created = receipt.get("contractAddress")
        transactions.append(
            Executed(
                transaction=transaction,
                hash=_bytes(own["hash"]),
                sender=_bytes(own["from"]),
                status=_number(receipt.get("status")),
                gas_used=_number(receipt.get("gasUsed")),
                cumulative_gas_used=_number(receipt.get("cumulativeGasUsed")),
                effective_gas_price=_price(transaction, header),
                contract_address=None if created is None else _bytes(created),
                logs=tuple(
                    Log(
                        address=_bytes(log["address"]),
                        topics=tuple(_bytes(topic) for topic in log["topics"]),
                        data=_bytes(log["data"]),
                    )
                    for log in receipt["logs"]
                ),
                log_indexes=tuple(_number(log["logIndex"]) for log in receipt["logs"]),
                calls=(),
            )
        )
    withdrawals = claim.withdrawals or ()
    assert not isinstance(withdrawals, Gap)
    return Block(
        header=header,
        hash=claim.hash,
        size=_number(answer["size"]),
        transactions=tuple(transactions),
        withdrawals=tuple(withdrawals),
    )


def _price(own: Transaction, header: Header) -> int:
    """What a transaction pays: the base fee and as much of its tip as it allows."""
    if own.gas_price is not None:
        return own.gas_price
    base, tip, most = header.base_fee_per_gas, own.max_priority_fee_per_gas, own.max_fee_per_gas
    assert base is not None and tip is not None and most is not None
    return min(most, base + tip)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text[2:])


def _number(text: str | None) -> int:
    return 0 if text is None else int(text, 16)
