"""What every source that reads contracts promises, through every fault that a node has.

Method: a devnet tree whose fork puts another contract at the same address; a source that sees it
through one endpoint or two; the answers are compared with what the tree says of that very block.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.nodes import (
    DevnetWire,
    ScriptedWire,
    SteppedClock,
    chain_config,
    evm_source,
    failure,
    grown,
    result,
)
from unfork.chain.block import BlockRef
from unfork.devnet import abi, contract_calls, faults
from unfork.devnet.block import Block
from unfork.devnet.faults import Fault
from unfork.devnet.orders import Style
from unfork.devnet.protocol import RpcError
from unfork.devnet.tree import Tree
from unfork.errors import SourceUnavailable, StateMissing, Unbelievable
from unfork.sources.evm import EvmSource
from unfork.sources.source import ContractCall, Returned, Source

BATCHED = {"batched": {}, "one-by-one": {"batch_size": 1}, "narrow": {"concurrency": 1}}


@pytest.fixture(params=BATCHED)
def settings(request: pytest.FixtureRequest) -> Mapping[str, int]:
    return BATCHED[request.param]


def ref(block: Block) -> BlockRef:
    return BlockRef(block.number, block.hash)


def forked() -> tuple[Tree, bytes, Block, Block]:
    """A tree, an address, and two blocks of two forks at which another contract stands there."""
    tree = grown(0, seed=5, density=3, hostile=True)
    while not (created := [one for one in tree.head.transactions if one.contract_address]):
        tree.extend()
    address, old = created[0].contract_address, tree.head
    assert address is not None
    tree.fork(depth=1, length=2, style=Style.REDEPLOYED)
    new = tree.at(old.number)
    assert new is not None and tree.metadata(address, old.hash) != tree.metadata(address, new.hash)
    return tree, address, old, new


def questions(tree: Tree, *blocks: Block) -> list[ContractCall]:
    """Everything a token is asked, of every contract, at each of the blocks."""
    contracts = sorted({log.address for block in chain(tree) for log in logs(block)})
    asked = (contract_calls.NAME, contract_calls.SYMBOL, contract_calls.DECIMALS)
    return [
        ContractCall(at=ref(block), address=address, data=data)
        for block in blocks
        for address in contracts
        for data in asked
    ]


def chain(tree: Tree) -> list[Block]:
    found = [tree.at(number) for number in range(tree.head.number + 1)]
    return [block for block in found if block is not None]


def logs(block: Block) -> list[Any]:
    return [log for executed in block.transactions for log in executed.logs]


def expected(tree: Tree, call: ContractCall) -> Returned:
    contract = tree.metadata(call.address, call.at.hash)
    try:
        output = b"" if contract is None else contract_calls.output(contract, call.data)
    except RpcError:
        return Returned(ok=False, output=b"")
    return Returned(ok=True, output=output)


async def check(source: Source, tree: Tree, *blocks: Block) -> None:
    calls = questions(tree, *blocks)
    assert len(calls) > 10
    assert await source.call(calls) == [expected(tree, call) for call in calls]


async def test_answers_are_of_the_very_block_also_where_forks_have_other_contracts(
    settings: Mapping[str, int],
) -> None:
    tree, address, old, new = forked()
    source = evm_source(DevnetWire(tree), chain=chain_config(**settings))

    await check(source, tree, old, new)
    before = tree.at(old.number - 1)
    assert before is not None
    at_old, at_new, at_before = await source.code(
        [(ref(old), address), (ref(new), address), (ref(before), address)]
    )

    assert at_old and at_new and at_old != at_new and at_before == b""


async def test_a_node_that_takes_only_numbers_answers_for_the_block_under_its_hash() -> None:
    tree, address, old, new = forked()
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.HashRefused())
    source = evm_source(wire)

    await check(source, tree, new)
    assert wire.faults.counts["HashRefused"] > 0
    with pytest.raises(SourceUnavailable, match="a fork has replaced it"):
        await source.call([ContractCall(at=ref(old), address=address, data=contract_calls.NAME)])


async def test_by_number_a_fork_between_question_and_answer_is_noticed() -> None:
    tree, address, old, new = forked()
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.HashRefused())
    source = evm_source(wire)
    call = ContractCall(at=ref(new), address=address, data=contract_calls.NAME)
    await source.call([call])

    def away(request: Any) -> None:
        if request["method"] == "eth_call":
            tree.switch(old.hash)

    wire.before = away
    with pytest.raises(SourceUnavailable, match="a fork has replaced it"):
        await source.call([call])


async def test_an_endpoint_that_lacks_the_block_is_replaced_by_one_that_has_it() -> None:
    tree, _, _, new = forked()
    lagging, good = DevnetWire(tree, name="lagging"), DevnetWire(tree, name="good")
    lagging.faults.switch_on(faults.Lag(blocks=5))
    source = evm_source(lagging, good)

    await check(source, tree, new)
    assert lagging.faults.counts["Lag"] > 0


async def test_a_pruned_endpoint_is_replaced_by_an_archive_and_alone_it_is_told() -> None:
    tree = grown(20, density=3)
    pruned, archive = DevnetWire(tree, name="pruned"), DevnetWire(tree, name="archive")
    pruned.faults.switch_on(faults.Pruned(keeps_blocks=5))
    old = tree.at(10)
    assert old is not None

    await check(evm_source(pruned, archive), tree, old)
    assert pruned.faults.counts["Pruned"] > 0
    clock = SteppedClock()
    alone = evm_source(pruned, clock=clock)
    await check(alone, tree, tree.head)
    with pytest.raises(StateMissing, match="archive node"):
        await alone.call(questions(tree, old))
    assert clock.slept == [], "what is gone is not waited for"


FAULTS: tuple[Fault, ...] = (
    faults.TooManyRequests(strikes_max=2),
    faults.BadGateway(strikes_max=2),
    faults.CutBody(strikes_max=2),
    faults.CutSocket(strikes_max=2),
    faults.Silence(strikes_max=2),
    faults.BatchCap(calls_max=3),
    faults.NodeError(strikes_max=3, methods=frozenset({"eth_call"})),
    faults.NodeError(strikes_max=3, code=-32005, message="request rate limited"),
    faults.Lag(blocks=2, strikes_max=3),
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_a_fault_costs_time_and_changes_no_answer(fault: Fault) -> None:
    tree, _, _, new = forked()
    wire = DevnetWire(tree)
    wire.faults.switch_on(fault)
    source = evm_source(wire, chain=chain_config(attempts_max=40))

    await check(source, tree, new)
    assert wire.faults.counts[fault.name] > 0


def scripted(error: tuple[int, str] | None = None, value: Any = None) -> EvmSource:
    """A node that answers every call of a contract with one error or value."""

    def answer(request: Any) -> Any:
        if isinstance(request, list):
            return [answer(each) for each in request]
        if request["method"] == "eth_chainId":
            return result(request, "0x1")
        return result(request, value) if error is None else failure(request, *error)

    return evm_source(ScriptedWire(answer), chain=chain_config(attempts_max=2))


REVERTS = (
    (3, "execution reverted"),
    (3, "execution reverted: header not found"),
    (3, "execution reverted: missing trie node, rate limit exceeded"),
    (-32000, "execution reverted"),
    (-32000, "Execution reverted"),
    (-32015, "VM execution error."),
    (-32000, "invalid opcode: INVALID"),
    (-32000, "out of gas"),
    (-32000, "invalid jump destination"),
    (-32000, "stack underflow (0 <=> 1)"),
    (-32603, "VM Exception while processing transaction: reverted with reason string 'no'"),
    (-32603, "EVM error InvalidFEOpcode"),
)


@pytest.mark.parametrize(("code", "message"), REVERTS)
async def test_what_a_contract_refuses_is_an_answer(code: int, message: str) -> None:
    call = ContractCall(at=BlockRef(7, bytes(32)), address=bytes(20), data=b"")

    assert await scripted((code, message)).call([call, call]) == [
        Returned(ok=False, output=b""),
        Returned(ok=False, output=b""),
    ]


PRUNED = (
    (-32000, "missing trie node 1a2b (path ) state 0x3c is not available"),
    (-32000, "required historical state unavailable (reexec=128)"),
    (-32000, "historical state 1a2b is not available"),
    (-32000, "state at block #10 is pruned"),
    (4444, "pruned history unavailable"),
    (-32002, "No state available for block 10"),
    (-32000, "World state unavailable"),
    (-32000, "distance to target block exceeds maximum proof window"),
    (-32614, "this request needs an archive node"),
)


@pytest.mark.parametrize(("code", "message"), PRUNED)
async def test_a_state_that_is_gone_is_told_as_such(code: int, message: str) -> None:
    call = ContractCall(at=BlockRef(7, bytes(32)), address=bytes(20), data=b"")

    with pytest.raises(StateMissing, match="archive node"):
        await scripted((code, message)).call([call])


@pytest.mark.parametrize("value", ["", "1234", "0x123", "0xzz"])
async def test_what_is_no_data_is_not_believed(value: str) -> None:
    call = ContractCall(at=BlockRef(7, bytes(32)), address=bytes(20), data=b"")

    with pytest.raises(Unbelievable):
        await scripted(value=value).call([call])


async def test_every_call_names_its_block_by_hash_and_brings_the_same_gas() -> None:
    tree = grown(3, density=3)
    wire = DevnetWire(tree)
    source = evm_source(wire)
    call = ContractCall(at=ref(tree.head), address=bytes(20), data=abi.selector("name()"))

    assert await source.call([call]) == [Returned(ok=True, output=b"")]
    asked = [one for one in wire.calls if one["method"] == "eth_call"]
    assert [one["params"][1] for one in asked] == [
        {"blockHash": "0x" + tree.head.hash.hex(), "requireCanonical": False}
    ]
    assert asked[0]["params"][0]["gas"] == hex(30_000_000)
    assert await source.call([]) == []
