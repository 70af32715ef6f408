"""The EVM source survives what nodes do: every way of answering, every fault, forks in between.

Method: a devnet behind wires without sockets, with faults on a switch; what the source hands on is
compared with the oracle. Time is stepped, so no test waits.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import aclosing
from itertools import pairwise
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
from unfork.chain.fork import Fork
from unfork.chain.span import Span
from unfork.config.tree import Scope
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.devnet import faults, render
from unfork.devnet.faults import Fault
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.errors import MethodMissing, RangeTooLarge, SourceUnavailable, Unbelievable
from unfork.sources import receipts
from unfork.sources.evm import EvmSource
from unfork.testing import compare, oracle

RECEIPT_FIELDS = ("status", "gas_used", "cumulative_gas_used", "effective_gas_price")


async def follow(source: EvmSource, tree: Tree, *, start: int = 0) -> list[Batch]:
    """Batches up to the head; whatever else comes fails the test."""
    batches: list[Batch] = []
    async with aclosing(source.stream(None, start=start)) as stream:
        async for said in stream:
            assert isinstance(said, Batch), said
            batches.append(said)
            if said.last.number >= tree.head.number:
                return batches
    raise AssertionError("a stream never ends by itself")


def rows(batches: Sequence[Batch]) -> dict[str, list[Any]]:
    names = batches[0].tables
    return {
        name: [row for batch in batches for row in batch.tables[name].to_pylist()] for name in names
    }


def difference(batches: Sequence[Batch], tree: Tree) -> str:
    """How the rows differ from the canonical chain; also checks that batches link."""
    for below, above in pairwise(batches):
        assert above.parent == below.last
    first, last = batches[0].refs[0].number, batches[-1].last.number
    expected = oracle.canonical_rows(tree, first, last)
    return compare.differences(expected, rows(batches))


# Ways to get receipts.


@pytest.mark.parametrize(
    ("lacking", "way"),
    [
        ((), 0),
        ((faults.HashRefused(answer="error"),), 2),
        ((faults.HashRefused(answer="null"),), 2),
        ((faults.MethodMissing(methods=frozenset({"eth_getBlockReceipts"})),), 3),
    ],
    ids=["by hash", "by number, a hash is an error", "by number, a hash is null", "one by one"],
)
async def test_receipts_come_in_the_way_a_node_has_and_it_is_remembered(
    lacking: tuple[Fault, ...], way: int
) -> None:
    tree = grown(60, density=4)
    wire = DevnetWire(tree)
    for fault in lacking:
        wire.faults.switch_on(fault)
    source = evm_source(wire)
    assert difference(await follow(source, tree), tree) == ""
    assert source._rpc.endpoints[0].abilities.receipts == way
    wire.requests.clear()
    assert difference(await follow(source, tree), tree) == ""
    asked = wire.calls
    whole = [one["params"][0] for one in asked if one["method"] == "eth_getBlockReceipts"]
    assert bool(whole) == (way < receipts.WHOLE_WAYS)
    assert any(one["method"] == "eth_getTransactionReceipt" for one in asked) == (way == 3)


async def test_a_node_without_any_receipts_gives_logs_and_leaves_outcomes_unknown() -> None:
    tree = grown(40, density=4)
    wire = DevnetWire(tree)
    missing = frozenset({"eth_getBlockReceipts", "eth_getTransactionReceipt"})
    wire.faults.switch_on(faults.MethodMissing(methods=missing))
    batches = await follow(evm_source(wire), tree)
    found = rows(batches)
    expected = oracle.canonical_rows(tree, 0, 40)
    assert compare.difference(evm.LOGS, expected["logs"], found["logs"]) == ""
    assert found["transactions"]
    assert all(row[name] is None for row in found["transactions"] for name in RECEIPT_FIELDS)


async def test_a_node_that_has_nothing_at_all_is_a_matter_for_a_person() -> None:
    tree = grown(20, density=4)
    wire = DevnetWire(tree)
    missing = frozenset({"eth_getBlockReceipts", "eth_getTransactionReceipt", "eth_getLogs"})
    wire.faults.switch_on(faults.MethodMissing(methods=missing))
    with pytest.raises(MethodMissing):
        await follow(evm_source(wire), tree)


async def test_a_way_that_was_left_is_tried_again_after_a_while() -> None:
    tree = grown(20, density=4)
    wire, clock = DevnetWire(tree), SteppedClock()
    missing = faults.MethodMissing(methods=frozenset({"eth_getBlockReceipts"}))
    wire.faults.switch_on(missing)
    source = evm_source(wire, clock=clock)
    await follow(source, tree)
    assert source._rpc.endpoints[0].abilities.receipts == 3
    wire.faults.clear()
    clock.seconds += receipts.RETRY_WAYS_S + 1
    await follow(source, tree)
    assert source._rpc.endpoints[0].abilities.receipts == 0


@pytest.mark.parametrize("answer", ["null", "empty", "fewer"])
async def test_receipts_that_come_late_are_waited_for(answer: Any) -> None:
    tree = grown(12, density=4)
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.LateReceipts(answer=answer, asks=3))
    assert difference(await follow(evm_source(wire), tree), tree) == ""
    assert wire.faults.counts["LateReceipts"] > 0


async def test_an_empty_block_needs_no_receipts() -> None:
    tree = grown(5, density=0)
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.LateReceipts(answer="null", asks=10**6))
    assert difference(await follow(evm_source(wire), tree), tree) == ""
    assert "eth_getTransactionReceipt" not in wire.methods


async def test_receipts_of_another_block_are_never_taken() -> None:
    tree = grown(30, density=4)
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.OtherReceipts(rate=0.2))
    assert difference(await follow(evm_source(wire), tree), tree) == ""
    assert wire.faults.counts["OtherReceipts"] > 0


async def test_what_is_never_believable_is_told_with_the_block_and_the_answer() -> None:
    tree = grown(30, density=4)
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.OtherReceipts())
    with pytest.raises(Unbelievable) as caught:
        await follow(evm_source(wire), tree)
    fields = caught.value.fields
    block = tree.at(fields["block_number"])
    assert block is not None
    assert fields["block_hash"] == "0x" + block.hash.hex()
    assert fields["raw"].startswith(b"[{")
    assert len(fields["raw"]) <= 4096


# Traces.


@pytest.mark.parametrize(
    "missing", [(), ("trace_block",), ("debug_traceBlockByHash",)], ids=["both", "debug", "trace"]
)
async def test_traces_come_in_the_way_a_node_has(missing: tuple[str, ...]) -> None:
    tree = grown(40, density=4)
    wire = DevnetWire(tree)
    if missing:
        wire.faults.switch_on(faults.MethodMissing(methods=frozenset(missing)))
    batches = await follow(evm_source(wire, chain=chain_config(traces=True)), tree)
    assert difference(batches, tree) == ""
    assert sum(batch.tables["traces"].num_rows for batch in batches) > 0


async def test_traces_that_no_endpoint_has_are_a_matter_for_a_person() -> None:
    tree = grown(10, density=4)
    wire = DevnetWire(tree)
    missing = frozenset({"trace_block", "debug_traceBlockByHash"})
    wire.faults.switch_on(faults.MethodMissing(methods=missing))
    with pytest.raises(MethodMissing, match="traces: false"):
        await follow(evm_source(wire, chain=chain_config(traces=True)), tree)


# Faults.


@pytest.mark.parametrize(
    "fault",
    [
        faults.TooManyRequests(rate=0.2),
        faults.TooManyRequests(rate=0.2, is_date=True),
        faults.TooManyRequests(rate=0.2, retry_after_s=None),
        faults.BadGateway(rate=0.2),
        faults.BadGateway(rate=0.2, status=503),
        faults.Silence(rate=0.2),
        faults.CutBody(rate=0.2),
        faults.CutSocket(rate=0.2),
        faults.BatchCap(calls_max=3),
        faults.NodeError(rate=0.1),
        faults.NodeError(rate=0.1, code=-32005, message="request rate limited"),
        faults.NullBlock(rate=0.05),
        faults.LateReceipts(rate=0.5),
        faults.OtherReceipts(rate=0.1),
    ],
    ids=lambda fault: f"{fault.name}-{getattr(fault, 'status', '')}{getattr(fault, 'code', '')}",
)
@pytest.mark.parametrize("scope", [Scope(), Scope(kind="logs")], ids=["all", "logs"])
async def test_a_fault_costs_time_and_nothing_else(fault: Fault, scope: Scope) -> None:
    tree = grown(90, density=3)
    wire = DevnetWire(tree, faults.Faults(seed=7))
    wire.faults.switch_on(fault)
    source = evm_source(wire, chain=chain_config(scope=scope, attempts_max=12))
    batches = await follow(source, tree)
    expected = oracle.canonical_rows(tree, 0, 90)
    assert compare.differences(expected, rows(batches)) == ""
    if scope.kind == "all" or not isinstance(fault, faults.LateReceipts | faults.OtherReceipts):
        assert wire.faults.counts[fault.name] > 0


@pytest.mark.parametrize("seed", range(6))
async def test_a_schedule_of_faults_and_forks_ends_on_the_canonical_chain(seed: int) -> None:
    tree = grown(20, seed=seed, fork_rate=0.2, density=2)
    wire = DevnetWire(tree, faults.seeded(seed, turns=12, requests_per_turn=30, rate=0.2))
    source = evm_source(wire, chain=chain_config(attempts_max=10), seed=seed)
    held: list[BlockRef] = []
    for _ in range(25):
        tree.advance()
        await _settle(source, tree, held)
    wire.faults.clear()
    tree.extend(3)
    await _settle(source, tree, held)
    assert held == [
        block.ref for number in range(tree.head.number + 1) if (block := tree.at(number))
    ]


async def test_a_dead_first_endpoint_is_replaced_by_the_second() -> None:
    tree = grown(60, density=3)
    dead, alive = DevnetWire(tree, name="dead"), DevnetWire(tree, name="alive")
    dead.faults.switch_on(faults.BadGateway())
    assert difference(await follow(evm_source(dead, alive), tree), tree) == ""
    assert len(dead.requests) < 20 < len(alive.requests) + 20


async def test_endpoints_on_two_forks_never_mix_in_a_batch() -> None:
    ours, theirs = grown(40, seed=4), grown(40, seed=4)
    theirs.fork(depth=15, length=18, style=Style.REPLACED)
    one, two = DevnetWire(ours, name="one"), DevnetWire(theirs, name="two")
    for wire in (one, two):
        wire.faults.switch_on(faults.BadGateway(rate=0.4))
    source = evm_source(one, two, chain=chain_config(attempts_max=12, batch_size=4))
    held: list[BlockRef] = []
    async with aclosing(source.stream(None)) as stream:
        async for said in stream:
            if isinstance(said, Fork):
                break
            assert not held or said.parent == held[-1]
            held += said.refs
            assert {ref.hash for ref in said.refs} == set(said.tables["blocks"]["hash"].to_pylist())
            if said.last.number >= 40:
                break
    trees = (ours, theirs)
    assert any(all(tree.is_canonical(ref.hash) for ref in held) for tree in trees)


# Forks while the source works.


@pytest.mark.parametrize("at", [3, 7, 11, 16, 25])
@pytest.mark.parametrize("scope", [Scope(), Scope(kind="logs")], ids=["all", "logs"])
async def test_a_fork_in_the_middle_of_catching_up_never_mixes_two_forks(
    at: int, scope: Scope
) -> None:
    tree = grown(80, density=2)
    wire = DevnetWire(tree)
    forks = [70, 30, 75]

    def fork_now(request: Any) -> None:
        if forks and len(wire.requests) % at == 0:
            tree.fork(depth=forks.pop(), length=80, style=Style.REPLACED)

    wire.before = fork_now
    limits = {"finality_depth_min": 0}
    chain = chain_config(scope=scope, batch_size=4, attempts_max=8, limits=limits)
    source = evm_source(wire, chain=chain)
    held: list[BlockRef] = []
    told: dict[bytes, dict[str, list[Any]]] = {}
    await _settle(source, tree, held, told)
    assert not forks, "the chain forked while the source worked"
    assert held[-1] == tree.head.ref
    for ref in held:
        block = tree.by_hash(ref.hash)
        assert block is not None
        assert compare.differences(oracle.rows(block), told[ref.hash]) == ""


async def test_a_head_that_falls_while_catching_up_is_looked_at_again() -> None:
    tree = grown(60, density=2)
    wire = DevnetWire(tree)

    def fall(request: Any) -> None:
        if len(wire.requests) == 6:
            tree.fork(depth=50, length=3, style=Style.REPLACED)

    wire.before = fall
    held: list[BlockRef] = []
    await _settle(evm_source(wire), tree, held)
    assert held[-1] == tree.head.ref


async def test_a_contradiction_by_one_replica_alone_is_no_fork() -> None:
    tree = grown(30)
    before = [block.ref for number in range(31) if (block := tree.at(number))]
    wire = DevnetWire(tree)
    asked = 0

    class Flipping(DevnetWire):
        """Shows another head now and then, as a load balancer over two replicas does."""

        async def post(self, body: bytes) -> Any:
            nonlocal asked
            asked += 1
            if asked % 3 == 1 and b'"latest"' in body:
                other = grown(30)
                other.fork(depth=2, length=2, style=Style.REPLACED)
                return await DevnetWire(other).post(body)
            return await super().post(body)

    wire = Flipping(tree)
    source = evm_source(wire)
    async with aclosing(source.stream(before[-1], recent=before)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        while asked < 20:
            assert not coming.done()
            await asyncio.sleep(0)
        coming.cancel()
        await asyncio.wait({coming})


async def test_a_head_that_lags_for_a_while_neither_forks_nor_repeats() -> None:
    tree = grown(50)
    before = [block.ref for number in range(51) if (block := tree.at(number))]
    wire = DevnetWire(tree)
    lag = faults.Lag(blocks=30)
    wire.faults.switch_on(lag)
    async with aclosing(evm_source(wire).stream(before[-1], recent=before)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        while len(wire.requests) < 10:
            assert not coming.done()
            await asyncio.sleep(0)
        tree.extend(2)
        wire.faults.switch_off(lag)
        said = await coming
    assert isinstance(said, Batch)
    assert said.parent == before[-1]


async def test_a_block_that_is_announced_and_never_given_is_told() -> None:
    tree = grown(10)
    wire = DevnetWire(tree)
    gone = hex(11)
    tree.extend(5)

    class Pruned(DevnetWire):
        async def post(self, body: bytes) -> Any:
            return await super().post(body.replace(gone.encode(), hex(99).encode()))

    wire = Pruned(tree)
    head = tree.at(10)
    assert head is not None
    with pytest.raises(SourceUnavailable, match="does not give block 11"):
        async with aclosing(evm_source(wire).stream(head.ref)) as stream:
            await anext(stream)


# The head.


async def test_with_announcements_a_new_block_takes_one_request() -> None:
    tree = grown(10, density=4)
    wire = DevnetWire(tree)
    wire.announcing = True
    clock = SleepyClock()
    source = evm_source(wire, clock=clock)
    async with aclosing(source.stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        while not clock.is_waiting:
            await asyncio.sleep(0)
        for _ in range(3):
            wire.requests.clear()
            tree.extend()
            wire.announce()
            said = await coming
            assert isinstance(said, Batch) and said.last == tree.head.ref
            assert len(wire.requests) == 1, "block, receipts and head come together"
            coming = asyncio.ensure_future(anext(stream))
            await asyncio.sleep(0)
        coming.cancel()
        await asyncio.wait({coming})


async def test_an_unannounced_block_is_found_by_polling() -> None:
    tree = grown(10)
    wire = DevnetWire(tree)
    wire.announcing = True
    async with aclosing(evm_source(wire).stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        while len(wire.requests) < 3:
            await asyncio.sleep(0)
        tree.extend()
        said = await coming
    assert isinstance(said, Batch) and said.last == tree.head.ref


async def test_idle_polls_do_not_ask_for_receipts() -> None:
    tree = grown(10)
    wire = DevnetWire(tree)
    async with aclosing(evm_source(wire).stream(tree.head.ref)) as stream:
        coming = asyncio.ensure_future(anext(stream))
        while len(wire.requests) < 6:
            await asyncio.sleep(0)
        coming.cancel()
        await asyncio.wait({coming})
    assert set(wire.methods) == {"eth_chainId", "eth_getBlockByNumber"}


async def test_a_node_that_does_not_know_finality_is_not_asked_again() -> None:
    tree = grown(10)

    class Plain(DevnetWire):
        async def post(self, body: bytes) -> Any:
            return await super().post(body.replace(b'"finalized"', b'"decided"'))

    wire = Plain(tree)
    source = evm_source(wire)
    assert (await source.head()).finalized is None
    first = len(wire.calls)
    assert (await source.head()).finalized is None
    assert len(wire.calls) == first + 1


async def test_a_chain_too_young_for_finality_has_none_yet() -> None:
    tree = grown(5, finality_lag=None)
    head = await evm_source(DevnetWire(tree)).head()
    assert head.latest == tree.head.ref
    assert head.finalized is None


async def test_the_chain_id_falls_back_to_net_version() -> None:
    def answer(request: Any) -> Any:
        if request["method"] == "eth_chainId":
            return failure(request, -32601, "no")
        return result(request, "61")

    assert await evm_source(ScriptedWire(answer)).chain_id() == 61


# Blocks whose hashes prove nothing.


async def test_with_links_a_chain_of_made_up_hashes_is_followed() -> None:
    tree = grown(30, density=3, proven=False)
    assert difference(await follow(evm_source(DevnetWire(tree)), tree), tree) == ""


async def test_with_roots_a_proven_chain_is_followed_and_a_made_up_one_refused() -> None:
    chain = chain_config(checks="roots", attempts_max=2)
    proven = grown(20, density=3, proven=True)
    assert (
        difference(await follow(evm_source(DevnetWire(proven), chain=chain), proven), proven) == ""
    )
    made_up = grown(20, density=3, proven=False)
    with pytest.raises(Unbelievable, match="header_hash"):
        await follow(evm_source(DevnetWire(made_up), chain=chain), made_up)


async def test_with_roots_one_wrong_value_is_refused() -> None:
    tree = grown(20, density=3, proven=True)

    class Lying(DevnetWire):
        async def post(self, body: bytes) -> Any:
            reply = await super().post(body)
            lie = reply.body.replace(b'"value":"0x0"', b'"value":"0x7"')
            return type(reply)(status=200, headers={}, body=lie)

    lying = chain_config(checks="roots", attempts_max=2)
    with pytest.raises(Unbelievable, match="transaction"):
        await follow(evm_source(Lying(tree), chain=lying), tree)


async def test_with_roots_a_size_that_a_node_reckons_otherwise_refuses_no_block() -> None:
    tree = grown(20, density=3, proven=True)

    class Other(DevnetWire):
        async def post(self, body: bytes) -> Any:
            reply = await super().post(body)
            other = re.sub(rb'"size":"0x[0-9a-f]+"', b'"size":"0x7"', reply.body)
            return type(reply)(status=200, headers={}, body=other)

    chain = chain_config(checks="roots", attempts_max=2)
    found = rows(await follow(evm_source(Other(tree), chain=chain), tree))
    assert {row["size"] for row in found["blocks"]} == {7}


# Scope: logs.


async def test_the_scope_of_logs_holds_headers_and_the_wanted_logs() -> None:
    tree = grown(150, density=4)
    everything = oracle.canonical_rows(tree, 0, 150)["logs"]
    address = max(
        (row["address"] for row in everything), key=[r["address"] for r in everything].count
    )
    wanted = [row for row in everything if row["address"] == address]
    topic = wanted[0]["topic0"]
    scope = Scope(
        kind="logs",
        addresses=("0x" + address.hex(),),
        topics=(("0x" + topic.hex(), "0x" + "00" * 32), None),
    )
    wire = DevnetWire(tree)
    batches = await follow(evm_source(wire, chain=chain_config(scope=scope)), tree)
    found = rows(batches)
    assert set(found) == {"blocks", "logs"}
    expected = [row for row in wanted if row["topic0"] == topic]
    assert expected
    assert compare.difference(evm.LOGS, expected, found["logs"]) == ""
    headers = oracle.canonical_rows(tree, 0, 150)["blocks"]
    assert compare.difference(evm.BLOCKS, headers, found["blocks"]) == ""
    assert all(batch.scope.addresses == (address,) for batch in batches)
    by_hash = [one for one in wire.calls if "blockHash" in str(one["params"])]
    by_range = [one for one in wire.calls if "fromBlock" in str(one["params"])]
    assert by_hash and by_range, "by hash near the head, by range below"


@pytest.mark.parametrize(
    "limit",
    [
        *faults.RANGE_CAPS[:3],
        faults.ResultCap(logs_max=40),
        faults.ResultCap(logs_max=25, message=faults.RESULT_CAPS[2].message, code=-32602),
    ],
    ids=str,
)
async def test_ranges_shrink_at_a_providers_limit(limit: Any) -> None:
    tree = grown(400, density=3)
    wire = DevnetWire(tree)
    if isinstance(limit, faults.RangeCap):
        limit = faults.RangeCap(blocks_max=16, code=limit.code, message=limit.message)
    wire.faults.switch_on(limit)
    scope = Scope(kind="logs")
    batches = await follow(evm_source(wire, chain=chain_config(scope=scope)), tree)
    assert difference(batches, tree) == ""
    assert wire.faults.counts[limit.name] > 0


async def test_ranges_widen_again_when_a_limit_is_gone() -> None:
    tree = grown(1200, density=0)
    wire = DevnetWire(tree)
    cap = faults.RangeCap(blocks_max=4)
    wire.faults.switch_on(cap)
    source = evm_source(wire, chain=chain_config(scope=Scope(kind="logs"), log_range_blocks=256))
    reach = source._rpc.endpoints[0].abilities.log_range
    async with aclosing(source.fetch(Span(0, 100))) as batches:
        async for _ in batches:
            pass
    assert reach.size <= 8
    wire.faults.clear()
    async with aclosing(source.fetch(Span(0, 1100))) as batches:
        async for _ in batches:
            pass
    assert reach.size >= 64


async def test_a_single_block_above_a_limit_is_told() -> None:
    tree = grown(200, density=5)
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.ResultCap(logs_max=0))
    source = evm_source(wire, chain=chain_config(scope=Scope(kind="logs")))
    with pytest.raises(RangeTooLarge):
        await follow(source, tree)


async def test_logs_that_come_twice_are_taken_once() -> None:
    tree = grown(200, density=3)
    wire = DevnetWire(tree)
    wire.faults.switch_on(faults.DuplicateLogs())
    source = evm_source(wire, chain=chain_config(scope=Scope(kind="logs")))
    assert difference(await follow(source, tree), tree) == ""
    assert wire.faults.counts["DuplicateLogs"] > 0


@pytest.mark.parametrize("proven", [False, True], ids=["without blooms", "with blooms"])
@pytest.mark.parametrize("batch_size", [1, 20])
async def test_a_range_cut_short_by_a_lagging_replica_is_not_believed(
    batch_size: int, proven: bool
) -> None:
    """Each call of a batch may reach another replica: the seals fit, and logs are missing."""
    tree = grown(200, density=2, proven=proven)
    wire = DevnetWire(tree, faults.Faults(seed=2))
    lag = faults.Lag(blocks=120, rate=0.3, methods=frozenset({"eth_getLogs"}))
    wire.faults.switch_on(lag)
    chain = chain_config(scope=Scope(kind="logs"), batch_size=batch_size, attempts_max=30)
    batches = await follow(evm_source(wire, chain=chain), tree)
    assert difference(batches, tree) == ""
    assert wire.faults.counts["Lag"] > 10


async def test_blocks_that_rule_a_log_out_are_not_asked_for_by_hash() -> None:
    tree = grown(200, density=2, proven=True)
    wire = DevnetWire(tree)
    scope = Scope(kind="logs", addresses=("0x" + "77" * 20,))
    source = evm_source(wire, chain=chain_config(scope=scope))
    async with aclosing(source.fetch(Span(0, 100))) as batches:
        assert sum([len(batch.tables["logs"]) async for batch in batches]) == 0
    by_hash = [one for one in wire.calls if "blockHash" in str(one["params"])]
    assert len(by_hash) < 10, "only those whose bloom holds the address by chance"


async def test_an_answer_of_a_suspiciously_round_size_is_asked_for_in_parts() -> None:
    tree = grown(400, density=8)
    total = 0

    class Cutting(DevnetWire):
        """Cuts every answer about logs at a thousand, without a word."""

        async def post(self, body: bytes) -> Any:
            nonlocal total
            reply = await super().post(body)
            if b"fromBlock" not in body:
                return reply
            said = json.loads(reply.body)
            for one in said:
                if isinstance(one["result"], list) and len(one["result"]) > 1000:
                    one["result"] = one["result"][:1000]
                    total += 1
            return type(reply)(status=200, headers={}, body=json.dumps(said).encode())

    wire = Cutting(tree)
    source = evm_source(wire, chain=chain_config(scope=Scope(kind="logs")))
    assert difference(await follow(source, tree), tree) == ""
    assert total > 0


async def test_a_node_without_logs_by_hash_is_asked_by_sealed_ranges() -> None:
    tree = grown(100, density=3)

    class Old(DevnetWire):
        async def post(self, body: bytes) -> Any:
            return await super().post(body.replace(b'"blockHash"', b'"blockhash":5,"fromBlock"'))

    wire = Old(tree)
    source = evm_source(wire, chain=chain_config(scope=Scope(kind="logs"), attempts_max=2))
    source._rpc.endpoints[0].abilities.logs_by_hash = False
    assert difference(await follow(source, tree), tree) == ""


async def test_a_node_that_ignores_the_filter_is_not_believed() -> None:
    tree = grown(100, density=4)

    class Careless(DevnetWire):
        async def post(self, body: bytes) -> Any:
            return await super().post(body.replace(b'"address"', b'"ignored"'))

    scope = Scope(kind="logs", addresses=("0x" + "77" * 20,))
    source = evm_source(Careless(tree), chain=chain_config(scope=scope, attempts_max=2))
    with pytest.raises(Unbelievable, match="filter"):
        await follow(source, tree)


# Size.


async def test_what_is_fetched_ahead_is_bounded_by_bytes() -> None:
    tree = grown(120, density=12)
    wire = DevnetWire(tree)
    limits = {"batch_bytes_max": 100_000}
    source = evm_source(wire, chain=chain_config(limits=limits, prefetch_blocks=100))
    async with aclosing(source.stream(None)) as stream:
        highest = 0
        async for batch in stream:
            assert isinstance(batch, Batch)
            for _ in range(50):
                await asyncio.sleep(0)
            numbers = [
                int(one["params"][0], 16)
                for one in wire.calls
                if one["method"] == "eth_getBlockByNumber" and one["params"][0].startswith("0x")
            ]
            if batch.last.number > 30:
                highest = max(highest, max(numbers) - batch.last.number)
            if batch.last.number >= tree.head.number:
                break
    size = len(render.block(tree.at(60), full=True)["transactions"])  # type: ignore[arg-type]
    assert size > 0
    assert highest <= 40, "a hundred blocks would weigh several times the bound"


class SleepyClock(SteppedClock):
    """Never lets time pass; knows when somebody waits."""

    is_waiting = False

    async def sleep(self, seconds: float) -> None:
        self.is_waiting = seconds == 1.0 or self.is_waiting
        await asyncio.Event().wait()


async def _settle(
    source: EvmSource,
    tree: Tree,
    held: list[BlockRef],
    told: dict[bytes, dict[str, list[Any]]] | None = None,
) -> None:
    """Follows batches and forks until the head is held, as a follower would."""
    after: BlockRef | None = held[-1] if held else None
    for _ in range(300):
        if held and held[-1] == tree.head.ref:
            return
        if tree.head.ref in held:
            return  # The head only fell: a source waits, and so do we.
        try:
            async with aclosing(source.stream(after, recent=tuple(held))) as stream:
                said = await anext(stream)
        except (SourceUnavailable, Unbelievable):
            continue
        if isinstance(said, Batch):
            if said.parent is not None and held:
                del held[said.parent.number + 1 :]
                assert held[-1] == said.parent
            held += said.refs
            after = held[-1]
            _keep(said, told)
            continue
        shared = [ref for ref in said.sample if ref in held]
        if shared:
            del held[max(shared).number + 1 :]
            after = held[-1]
        else:
            lowest = min([said.refuted.number, *(ref.number for ref in said.sample)])
            after = held[lowest - 1] if lowest else None
            if not lowest:
                held.clear()
    raise AssertionError("never caught up")


def _keep(batch: Batch, told: dict[bytes, dict[str, list[Any]]] | None) -> None:
    if told is None:
        return
    for ref in batch.refs:
        told[ref.hash] = {name: [] for name in batch.tables}
    for name, table in batch.tables.items():
        for row in table.to_pylist():
            told[row[evm.BY_NAME[name].hash_column]][name].append(row)
