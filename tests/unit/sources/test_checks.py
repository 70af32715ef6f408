"""An answer is believed only if every part of it belongs to the block that was asked for.

Method: answers of a devnet block pass; each damage a node or a load balancer can do to them, one at
a time, is refused as Unbelievable with the block's number.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes import grown
from tests.unit.sources import answered
from tests.unit.sources.answered import Damage
from unfork.devnet.block import Block
from unfork.errors import Unbelievable
from unfork.sources import checks

OTHER = "0x" + "ab" * 32


@pytest.fixture(scope="module")
def busy() -> Block:
    """A block with several transactions and logs, two logs in one receipt among them."""
    tree = grown(60, density=8, seed=3)
    blocks = [tree.at(number) for number in range(1, 61)]
    found = next(
        block
        for block in blocks
        if block is not None
        and len(block.transactions) >= 4
        and any(len(each.logs) >= 2 for each in block.transactions)
    )
    return found


def with_logs(receipts: list[Any]) -> Any:
    return next(receipt for receipt in receipts if len(receipt["logs"]) >= 2)


def _swap(rows: list[Any]) -> None:
    rows[0], rows[1] = rows[1], rows[0]


def test_a_whole_block_is_believed(busy: Block) -> None:
    block = answered.block(busy)
    checks.placed(block, busy.number, "0x" + busy.hash.hex())
    checks.transactions(block)
    checks.receipts(block, answered.receipts(busy))
    checks.parity_traces(block, answered.parity_traces(busy))
    checks.frames(block, answered.frames(busy))
    hashes = [row.hash for row in block.transactions]
    logs = checks.logs(block, hashes, answered.logs(busy))
    assert len(logs) == sum(len(each.logs) for each in busy.transactions)


def test_a_block_of_another_number_is_refused(busy: Block) -> None:
    with pytest.raises(Unbelievable, match="was asked for"):
        checks.placed(answered.block(busy), busy.number + 1)


def test_a_block_of_another_hash_is_refused(busy: Block) -> None:
    with pytest.raises(Unbelievable, match="another one came") as caught:
        checks.placed(answered.block(busy), busy.number, OTHER)
    assert caught.value.fields["block_number"] == busy.number


@pytest.mark.parametrize("number", ["10", "0xzz", "-0x1", "0x_1", ""])
def test_a_number_that_is_none_is_refused(busy: Block, number: str) -> None:
    block = answered.block(busy, lambda said: said.update(number=number))
    with pytest.raises(Unbelievable):
        checks.placed(block, busy.number)


def test_blocks_that_do_not_link_are_refused() -> None:
    tree = grown(3)
    blocks = [answered.block(tree.at(number)) for number in (1, 2, 3)]  # type: ignore[arg-type]
    checks.linked(blocks)
    with pytest.raises(Unbelievable, match="its parent is not"):
        checks.linked([blocks[0], blocks[2]])


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda said: _swap(said["transactions"]), id="out of order"),
        pytest.param(lambda said: said["transactions"].pop(0), id="first one left out"),
        pytest.param(
            lambda said: said["transactions"].insert(1, said["transactions"][0]), id="twice"
        ),
        pytest.param(
            lambda said: said["transactions"].append(
                {**said["transactions"][0], "transactionIndex": hex(len(said["transactions"]))}
            ),
            id="twice, at the next place",
        ),
        pytest.param(
            lambda said: said["transactions"][1].update(blockHash=OTHER), id="of another block"
        ),
        pytest.param(
            lambda said: said["transactions"][1].update(transactionIndex="0x7fff"), id="misplaced"
        ),
        pytest.param(
            lambda said: said["transactions"][1].update(transactionIndex="one"), id="no position"
        ),
    ],
)
def test_transactions_that_are_not_all_of_the_block_in_order_are_refused(
    busy: Block, damage: Damage
) -> None:
    with pytest.raises(Unbelievable):
        checks.transactions(answered.block(busy, damage))


def test_positions_with_zeros_in_front_are_the_same_positions(busy: Block) -> None:
    def pad(said: Any) -> None:
        for row in said["transactions"]:
            row["transactionIndex"] = "0x0" + row["transactionIndex"][2:]

    checks.transactions(answered.block(busy, pad))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda said: said.pop(), id="one less"),
        pytest.param(lambda said: said.append(said[-1]), id="one more"),
        pytest.param(lambda said: said.clear(), id="none"),
        pytest.param(_swap, id="out of order"),
        pytest.param(lambda said: said[1].update(blockHash=OTHER), id="one of another block"),
        pytest.param(
            lambda said: [each.update(blockHash=OTHER) for each in said], id="all of another block"
        ),
        pytest.param(lambda said: said[0].update(transactionHash=OTHER), id="other transaction"),
        pytest.param(lambda said: said[1].update(transactionIndex="0x0"), id="misplaced"),
        pytest.param(
            lambda said: with_logs(said)["logs"][0].update(blockHash=OTHER), id="log elsewhere"
        ),
        pytest.param(
            lambda said: with_logs(said)["logs"][0].update(transactionHash=OTHER),
            id="log of another transaction",
        ),
        pytest.param(
            lambda said: with_logs(said)["logs"][0].update(transactionIndex="0xff"),
            id="log at another position",
        ),
        pytest.param(
            lambda said: with_logs(said)["logs"][0].update(removed=True), id="removed log"
        ),
    ],
)
def test_receipts_that_are_not_those_of_the_block_are_refused(busy: Block, damage: Damage) -> None:
    with pytest.raises(Unbelievable) as caught:
        checks.receipts(answered.block(busy), answered.receipts(busy, damage))
    assert caught.value.fields["block_number"] == busy.number
    assert caught.value.fields["block_hash"] == "0x" + busy.hash.hex()


def test_exact_duplicates_in_an_answer_about_logs_are_dropped(busy: Block) -> None:
    def double(said: Any) -> None:
        said[:] = [log for log in said for _ in range(2)]

    once = checks.logs(answered.block(busy), None, answered.logs(busy))
    assert checks.logs(answered.block(busy), None, answered.logs(busy, double)) == once


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda said: said.append({**said[0], "data": "0x12"}), id="contradictory"),
        pytest.param(lambda said: said[0].update(blockHash=OTHER), id="of another block"),
        pytest.param(lambda said: said[0].update(transactionHash=OTHER), id="other transaction"),
        pytest.param(lambda said: said[0].update(transactionIndex="0xffff"), id="beyond the block"),
        pytest.param(lambda said: said[0].update(logIndex="first"), id="no index"),
        pytest.param(lambda said: said[0].update(removed=True), id="removed"),
    ],
)
def test_logs_that_contradict_the_block_or_each_other_are_refused(
    busy: Block, damage: Damage
) -> None:
    block = answered.block(busy)
    hashes = [row.hash for row in block.transactions]
    with pytest.raises(Unbelievable):
        checks.logs(block, hashes, answered.logs(busy, damage))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda said: said[0].update(blockHash=OTHER), id="of another block"),
        pytest.param(lambda said: said[0].update(transactionHash=OTHER), id="other transaction"),
        pytest.param(
            lambda said: said.__setitem__(
                slice(None), [one for one in said if one["transactionPosition"] != 1]
            ),
            id="a transaction without traces",
        ),
        pytest.param(lambda said: said.reverse(), id="out of order"),
    ],
)
def test_traces_that_are_not_those_of_the_block_are_refused(busy: Block, damage: Damage) -> None:
    with pytest.raises(Unbelievable):
        checks.parity_traces(answered.block(busy), answered.parity_traces(busy, damage))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda said: said.pop(), id="one less"),
        pytest.param(lambda said: said.reverse(), id="out of order"),
        pytest.param(lambda said: said[0].update(txHash=OTHER), id="other transaction"),
    ],
)
def test_call_trees_that_are_not_those_of_the_block_are_refused(
    busy: Block, damage: Damage
) -> None:
    with pytest.raises(Unbelievable):
        checks.frames(answered.block(busy), answered.frames(busy, damage))
