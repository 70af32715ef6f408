"""Goal: what contracts answered is kept for its own block alone, and a fork never meets it.

Method: a devnet that puts another contract at the same address by forks; a real raw store and app
side; the node is asked through the real source, so what it was asked can be counted.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from tests.asking import LASTING, NAME, Asking, asking
from tests.batches import ref
from tests.nodes import ScriptedWire, chain_config, evm_source, result
from tests.places import Place
from unfork import errors
from unfork.clock import Clock
from unfork.datasets.dataset import Column, Kind
from unfork.devnet import abi, contract_calls, faults
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.jobs.read import PLACE, Read
from unfork.jobs.spark import asking as asker
from unfork.jobs.spark import schema
from unfork.jobs.spark.asking import Question


def created(*, finality_lag: int | None = None) -> tuple[Tree, bytes]:
    """A tree whose head creates a contract, and its address."""
    tree = Tree(Knobs(seed=5, density=3, fork_rate=0, finality_lag=finality_lag))
    while not (found := [one for one in tree.head.transactions if one.contract_address]):
        tree.extend()
    assert found[0].contract_address is not None
    return tree, found[0].contract_address


def name_of(made: Asking, address: bytes, block: Block) -> str | None:
    contract = made.tree.metadata(address, block.hash)
    return None if contract is None else contract.name.decode()


async def test_a_question_is_asked_once_a_block_whoever_asks_it(place: Place) -> None:
    tree, address = created()
    async with asking(place, tree) as made:
        head, parent = tree.head, tree.at(tree.head.number - 1)
        assert parent is not None
        first = await made.ask(NAME, (head, address), (head, address), (parent, address))
        assert made.asked == 2
        again = await made.ask(NAME, (head, address), (head, address), (parent, address))

    assert made.asked == 2 and again == first
    assert [row["value"] for row in first] == [name_of(made, address, head)] * 2 + [None]
    assert [row["remark"] for row in first] == [None, None, "empty"]
    assert all(row["ok"] for row in first)


async def test_an_address_redeployed_by_a_fork_is_asked_again(place: Place) -> None:
    tree, address = created()
    async with asking(place, tree) as made:
        old = tree.head
        (before,) = await made.ask(NAME, (old, address))
        await made.fork(depth=1, length=2)
        new = tree.at(old.number)
        assert new is not None and new.hash != old.hash
        (after,) = await made.ask(NAME, (new, address))

    assert before["value"] == name_of(made, address, old) != after["value"]
    assert after["value"] == name_of(made, address, new)
    assert made.asked == 2


async def test_answers_of_orphaned_blocks_go_with_them(place: Place) -> None:
    tree, address = created()
    async with asking(place, tree) as made:
        shared = tree.at(tree.head.number - 1)
        assert shared is not None
        await made.ask(NAME, (shared, address), (tree.head, address))
        await made.fork(depth=1, length=1)

        assert [row["block_hash"] for row in await made.kept()] == [shared.hash]


async def test_an_answer_of_another_fork_is_gone_once_the_floor_passes_it(place: Place) -> None:
    tree, address = created(finality_lag=4)
    async with asking(place, tree) as made:
        old, moment = tree.head, await made.moment(ref(tree.head))
        await made.fork(depth=1, length=2)
        # The run does not know yet that its block is gone; the node still has it.
        await made.ask(NAME, (old, address), moment=moment)
        assert [row["block_hash"] for row in await made.kept()] == [old.hash]
        await made.grow(8)
        state = await made.worker.refs.state()
        assert state.floor is not None and state.floor.number > old.number
        assert await made.kept() == []
        # One that comes even later is not kept at all: nobody could tell it from the chain's.
        (row,) = await made.ask(NAME, (old, address), moment=moment)
        assert row["value"] == name_of(made, address, old)
        assert await made.kept() == []
        # What was final when it was asked is.
        final = tree.at(old.number)
        assert final is not None
        await made.ask(NAME, (final, address))
        assert [row["block_hash"] for row in await made.kept()] == [final.hash]


async def test_an_immutable_answer_is_good_while_the_code_stays_and_its_block_too(
    place: Place,
) -> None:
    tree, address = created()
    async with asking(place, tree) as made:
        first = tree.head
        await made.ask(LASTING, (first, address))
        await made.grow(2)
        (later,) = await made.ask(LASTING, (tree.head, address))
        assert later["value"] == name_of(made, address, first)
        assert made.asked == 1, "the code was looked at, the contract was not asked"
        # The same contract by another block: what was answered before is of another fork.
        await made.fork(depth=3, length=3, style=Style.KEPT)
        new = tree.at(first.number)
        assert new is not None and tree.metadata(address, new.hash) == tree.metadata(
            address, first.hash
        )
        await made.ask(LASTING, (tree.head, address))
        assert made.asked == 2


async def test_an_immutable_answer_is_not_used_while_the_app_side_holds_another_fork(
    place: Place,
) -> None:
    tree, address = created()
    async with asking(place, tree) as made:
        await made.grow(1)
        at = tree.at(tree.head.number - 1)
        assert at is not None
        await made.ask(LASTING, (at, address))
        # The raw store is on another fork already, where the same code stands there.
        await made.take(tree.fork(depth=2, length=3, style=Style.KEPT), follow=False)
        await made.ask(LASTING, (tree.head, address), moment=await made.moment(ref(tree.head)))

        assert made.asked == 2


async def test_what_no_call_can_carry_is_a_row_with_a_remark(place: Place) -> None:
    tree, address = created()
    read = Read(
        name="balance",
        of="rows",
        address="token",
        function="balanceOf(uint8)(uint256)",
        arguments=("amount",),
    )
    columns = (*PLACE, Column("amount", Kind.INT))
    at = {"block_number": tree.head.number, "block_hash": tree.head.hash}
    rows = [
        {**at, "address": address, "amount": 300},
        {**at, "address": b"short", "amount": 3},
        {**at, "address": address, "amount": 3},
    ]
    async with asking(place, tree) as made:
        table = pa.Table.from_pylist(rows, schema.arrow(columns))
        (found,) = await made.answers([(Question(read=read, asked=columns), table)])

    told = [(row["ok"], row["remark"], row["value"]) for row in found.to_pylist()]
    assert told == [(False, "argument", None), (False, "address", None), (True, "empty", None)]
    assert made.asked == 1


async def test_an_answer_without_end_is_cut_and_said_to_be_long(place: Place) -> None:
    tree, address = created()
    endless = "0x" + "ab" * (asker.OUTPUT_BYTES_MAX * 4)

    def answer(request: Any) -> Any:
        return result(request, "0x539" if request["method"] == "eth_chainId" else endless)

    node = evm_source(ScriptedWire(answer), chain=chain_config())
    async with asking(place, tree, source=node) as made:
        for _ in range(2):
            (row,) = await made.ask(NAME, (tree.head, address))
            assert (row["ok"], row["output"], row["remark"], row["value"]) == (
                True,
                None,
                "long",
                None,
            )
        (kept,) = await made.kept()
        assert len(kept["output"]) == asker.OUTPUT_BYTES_MAX + 1


async def test_what_reverts_is_an_answer_and_kept_as_one(place: Place) -> None:
    tree = Tree(Knobs(seed=9, density=4, hostile=True))
    tree.extend(28)
    tokens = {log.address for number in range(29) for log in _logs(tree.at(number))}
    reverting = [
        one for one in tokens if (found := tree.metadata(one, tree.head.hash)) and not found.name
    ]
    assert reverting
    async with asking(place, tree) as made:
        rows = await made.ask(NAME, *((tree.head, address) for address in sorted(tokens)))
        for row in rows:
            ok, output = made.truth(row["address"], contract_calls.NAME, tree.head.hash)
            assert (row["ok"], row["output"]) == (ok, output if ok else None)
            assert (row["remark"] == "reverted") is (row["address"] in reverting)
        count = made.asked
        assert await made.ask(NAME, *((tree.head, one) for one in sorted(tokens))) == rows
        assert made.asked == count


async def test_a_node_that_lost_the_state_is_told_and_nothing_is_kept(place: Place) -> None:
    tree, address = created()
    async with asking(place, tree) as made:
        await made.grow(3)
        made.wire.faults.switch_on(faults.Pruned(keeps_blocks=2))
        old = tree.at(tree.head.number - 3)
        assert old is not None
        with pytest.raises(errors.StateMissing, match="archive node"):
            await made.ask(NAME, (old, address))
        assert await made.kept() == []
        made.wire.faults.clear()
        (row,) = await made.ask(NAME, (old, address))
        assert row["value"] == name_of(made, address, old)


async def test_a_run_that_is_given_up_waits_for_the_node_no_longer(place: Place) -> None:
    tree, address = created()
    async with asking(place, tree, clock=Clock(), request_timeout_s=3600) as made:
        made.wire.faults.switch_on(faults.Silence(methods=frozenset({"eth_call"})))
        asked = asyncio.Event()
        made.wire.before = lambda request: asked.set() if "eth_call" in str(request) else None
        waiting = asyncio.create_task(made.ask(NAME, (tree.head, address)))
        await asked.wait()
        made.caller.give_up("run")

        with pytest.raises(errors.SourceUnavailable, match="given up"):
            await waiting


def _logs(block: Block | None) -> list[Any]:
    assert block is not None
    return [log for executed in block.transactions for log in executed.logs]


def test_the_name_that_is_asked_is_the_function_of_the_standard() -> None:
    assert NAME.signature.selector == contract_calls.NAME == abi.selector("name()")
