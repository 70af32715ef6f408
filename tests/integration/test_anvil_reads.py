"""Goal: a real node answers contract reads for the block that is named, or says that it cannot.

Method: anvil mines only when told to. A contract that returns a word of its storage has another one
in every block; the same source that jobs use asks for it by the hashes of those blocks, before and
after the node has replaced some.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.integration import anvil_node
from tests.integration.anvil_node import Node
from unfork.chain.block import BlockRef
from unfork.clock import Clock
from unfork.config.tree import Chain
from unfork.config.tree import Source as Settings
from unfork.errors import SourceUnavailable
from unfork.sources.evm import EvmSource
from unfork.sources.source import ContractCall, Returned

PROGRAM = anvil_node.binary()

pytestmark = pytest.mark.skipif(
    PROGRAM is None,
    reason="anvil is not installed: npm install --prefix .tools @foundry-rs/anvil",
)

#: Keeps a word that it is sent, and returns it where it is sent none.
STORED = "3615600c57600035600055005b60005460005260206000f3"
#: Reverts; does what no contract may; loops without end.
REVERTS, INVALID, ENDLESS = "60006000fd", "fe", "5b600056"
ADDRESSES = {code: bytes([index]) * 20 for index, code in enumerate((STORED, REVERTS), 0x51)}
ADDRESSES |= {code: bytes([index]) * 20 for index, code in enumerate((INVALID, ENDLESS), 0x61)}


def shown(data: bytes) -> str:
    return "0x" + data.hex()


async def mined(node: Node) -> BlockRef:
    """One block more."""
    await node.ask("anvil_mine", "0x1")
    block = await node.ask("eth_getBlockByNumber", "latest", False)
    return BlockRef(int(block["number"], 16), bytes.fromhex(block["hash"][2:]))


async def stored(node: Node, value: int) -> BlockRef:
    """A block after which the contract holds a value."""
    (account, *_) = await node.ask("eth_accounts")
    sent = {
        "from": account,
        "to": shown(ADDRESSES[STORED]),
        "data": shown(value.to_bytes(32, "big")),
        "gas": hex(100_000),
    }
    await node.ask("eth_sendTransaction", sent)
    return await mined(node)


def calls(code: str, *refs: BlockRef) -> list[ContractCall]:
    return [ContractCall(at=ref, address=ADDRESSES[code], data=b"") for ref in refs]


def words(*values: int) -> list[Returned]:
    return [Returned(ok=True, output=value.to_bytes(32, "big")) for value in values]


async def test_a_real_node_answers_for_the_block_that_is_named_by_its_hash() -> None:
    assert PROGRAM is not None
    async with anvil_node.running(PROGRAM) as node:
        settings = Settings(urls=(node.url,), attempts_max=2, backoff_ms_max=10)
        source = EvmSource(Chain(name="anvil", source=settings), clock=Clock(), random=Random(1))
        try:
            before = await mined(node)
            # What the node is told about its state, it takes into that of its head as well.
            await mined(node)
            for code, address in ADDRESSES.items():
                await node.ask("anvil_setCode", shown(address), "0x" + code)
            refs = [await stored(node, value) for value in (7, 8, 9)]

            assert await source.call(calls(STORED, *refs)) == words(7, 8, 9)
            assert source._rpc.endpoints[0].abilities.state_by_hash, "it was asked by hash"
            assert await source.call(calls(STORED, before)) == [Returned(ok=True, output=b"")]
            refused = [Returned(ok=False, output=b"")]
            for code in (REVERTS, INVALID, ENDLESS):
                assert await source.call(calls(code, refs[0])) == refused, code
            codes = await source.code([(before, ADDRESSES[STORED]), (refs[0], ADDRESSES[STORED])])
            assert codes == [b"", bytes.fromhex(STORED)]

            await node.ask("anvil_rollback", 2)
            other = await stored(node, 88)
            assert other.number == refs[1].number and other.hash != refs[1].hash
            assert await source.call(calls(STORED, refs[0], other)) == words(7, 88)
            with pytest.raises(SourceUnavailable, match="a fork has replaced it"):
                await source.call(calls(STORED, refs[1]))
        finally:
            await source.close()
