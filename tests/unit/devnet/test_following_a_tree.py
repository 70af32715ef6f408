"""Proves that every answer follows a real tree through its forks.

Method: a seeded tree that forks and flips back often; after every movement the answers are compared
with the tree itself, by number, by hash, by range and by transaction.
"""

from __future__ import annotations

import pytest

from tests.unit.devnet.asking import ask
from unfork.devnet import render
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.devnet.tree import Tree

KNOBS = {"fork_rate": 0.4, "fork_depth_max": 5, "finality_lag": 12, "hostile": True}


@pytest.mark.parametrize("keep_blocks", [None, 3], ids=["all-held", "few-held"])
@pytest.mark.parametrize("seed", range(4))
def test_answers_follow_the_tree(seed: int, keep_blocks: int | None) -> None:
    tree = Tree(Knobs(seed=seed, keep_blocks=keep_blocks, **KNOBS))
    keeps, forgets = Rpc(tree), Rpc(tree, keeps_replaced=False)
    forks = 0
    for _ in range(40):
        movement = tree.advance()
        forks += bool(movement.removed)
        path = _path(tree)
        assert ask(keeps, "eth_getBlockByNumber", "latest", True) == render.block(
            tree.head, full=True
        )
        # As far as a fork can have reached, and one block more.
        recent = path[-8:]
        criteria = {"fromBlock": hex(recent[0].number), "toBlock": "latest"}
        logs = [log for block in recent for log in render.logs(block)]
        assert ask(keeps, "eth_getLogs", criteria) == logs
        for block in recent:
            answer = ask(keeps, "eth_getBlockByNumber", hex(block.number), False)
            assert answer["hash"] == data(block.hash)
        _check_removed(keeps, forgets, movement.removed, path)
    assert forks >= 5


def _check_removed(keeps: Rpc, forgets: Rpc, removed: tuple[Block, ...], path: list[Block]) -> None:
    """Replaced blocks stay known by hash or not, and their transactions are where they are now."""
    places = {
        executed.hash: (data(block.hash), hex(position))
        for block in path
        for position, executed in enumerate(block.transactions)
    }
    for block in removed:
        hash = data(block.hash)
        assert ask(keeps, "eth_getBlockReceipts", hash) == render.receipts(block)
        assert ask(forgets, "eth_getBlockReceipts", hash) is None
        for executed in block.transactions:
            answer = ask(keeps, "eth_getTransactionReceipt", data(executed.hash))
            found = answer and (answer["blockHash"], answer["transactionIndex"])
            assert found == places.get(executed.hash)


def _path(tree: Tree) -> list[Block]:
    """The canonical blocks, found by parent links alone."""
    block = tree.head
    path = [block]
    while block.number:
        parent = tree.by_hash(block.header.parent_hash)
        assert parent is not None
        block = parent
        path.append(block)
    return path[::-1]
