"""Plays with a real node: transactions, blocks and every way anvil has to take blocks back.

All choices come from one seed. The node's clock is its own, so hashes differ between runs; what is
done does not. What happened is counted, so that a test can insist that it really met what it is
about.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from tests.integration import evm_code
from tests.integration.anvil_node import Node
from unfork.proof import keccak, rlp

Request = dict[str, Any]

#: Blocks that one action takes back at most; below anvil's finality of 64.
DEPTH_MAX = 12
#: Bytes of the largest call, beyond what is stored inline.
DATA_SIZE_MAX = 9_000
FEE = 100 * 10**9


class Player:
    """Makes the moves of one run."""

    def __init__(self, node: Node, seed: int, *, impersonates: bool = True) -> None:
        self.node = node
        self.random = Random(seed)
        #: Whether transactions without a real signature are sent, too.
        self._impersonates = impersonates
        #: What happened, by name.
        self.counts: Counter[str] = Counter()
        self._accounts: list[str] = []
        self._contracts: list[str] = []
        #: How each transaction was asked for, by its hash: asked again, it has the same hash.
        self._requests: dict[str, Request] = {}
        #: Snapshots that can still be gone back to, with their heights.
        self._snapshots: list[tuple[str, int]] = []

    async def begin(self) -> None:
        """Looks at the node's accounts and gives it a first few blocks to lose."""
        self._accounts = (await self.node.ask("eth_accounts"))[:6]
        for topics in range(3):
            await self._create(evm_code.creation(evm_code.emitter(topics=topics)))
        await self._mine(1)
        await self._mine(self.random.randint(2, 6))

    async def act(self) -> str:
        """Makes one move and says which."""
        moves = (
            (self.transact, 12),
            (self.mine, 4),
            (self.reorganize, 4),
            (self.roll_back, 2),
            (self.roll_back_and_resend, 4),
            (self.redeploy, 3),
            (self.take_snapshot, 2),
            (self.revert, 2),
        )
        (move,) = self.random.choices([m for m, _ in moves], [w for _, w in moves])
        await move()
        self.counts[move.__name__] += 1
        return move.__name__

    async def transact(self) -> None:
        """Some transactions, spread over one or more blocks."""
        for _ in range(self.random.randint(1, 3)):
            for _ in range(self.random.randint(1, 5)):
                await self._send_any()
            if self.random.random() < 0.2:
                latest = await self.node.ask("eth_getBlockByNumber", "latest", False)
                later = int(latest["timestamp"], 16) + self.random.randint(1, 5_000)
                await self.node.ask("evm_setNextBlockTimestamp", later)
            await self._mine(1)

    async def mine(self) -> None:
        """Blocks without anything in them."""
        await self._mine(self.random.randint(1, 5))

    async def reorganize(self) -> None:
        """Replaces the last blocks at once, by empty ones or with transactions in them."""
        depth = await self._depth()
        pairs: list[Any] = []
        senders = self.random.sample(self._accounts, 3)
        for sender in senders[: self.random.randint(0, 3)]:
            offset = self.random.randrange(depth)
            call = {"from": sender, "to": await self._any_contract(), "data": self._data()}
            pairs.append([call, offset])
        await self._forget_above(await self.node.height() - depth)
        await self.node.ask("anvil_reorg", depth, pairs)
        if pairs:
            self.counts["reorganized with transactions"] += 1

    async def roll_back(self) -> None:
        """The head falls; what comes next may be the same again or something else."""
        depth = await self._depth()
        await self._forget_above(await self.node.height() - depth)
        await self.node.ask("anvil_rollback", depth)

    async def roll_back_and_resend(self) -> None:
        """The same transactions come again, in other blocks, after other ones, or not at all."""
        depth = await self._depth()
        height = await self.node.height()
        removed = await self._hashes(height - depth + 1, height)
        await self._forget_above(height - depth)
        await self.node.ask("anvil_rollback", depth)
        if self.random.random() < 0.5:
            await self._mine(self.random.randint(1, depth))
        for hash in removed:
            request = self._requests.get(hash)
            if request is None or self.random.random() < 0.2:
                continue
            nonce = await self.node.ask("eth_getTransactionCount", request["from"], "pending")
            if nonce == request["nonce"]:
                if request["from"] not in self._accounts:
                    await self._endow(request["from"])
                assert await self.node.ask("eth_sendTransaction", request) == hash
                self.counts["transactions moved"] += 1
            if self.random.random() < 0.3:
                await self._mine(1)
        await self._mine(1)

    async def redeploy(self) -> None:
        """An address gets another contract, by a fork that creates something else there."""
        sender = self.random.choice(self._accounts)
        first, second = self.random.sample(range(5), 2)
        logs = self.random.random() < 0.5
        height = await self.node.height()
        await self._create(evm_code.creation(evm_code.emitter(topics=first), logs=logs), sender)
        await self._mine(1)
        address = self._contracts[-1]
        await self._call(address)
        await self._mine(self.random.randint(1, 2))
        if self.random.random() < 0.5:
            await self.pause()
        await self._forget_above(height)
        await self.node.ask("anvil_rollback", await self.node.height() - height)
        await self._create(evm_code.creation(evm_code.emitter(topics=second, times=2)), sender)
        await self._mine(1)
        if self._contracts[-1] == address:
            self.counts["addresses used again"] += 1
        await self._call(self._contracts[-1])
        await self._mine(1)

    async def take_snapshot(self) -> None:
        """Remembers a state to go back to, and goes on."""
        snapshot = await self.node.ask("evm_snapshot")
        self._snapshots.append((snapshot, await self.node.height()))
        await self.transact()

    async def revert(self) -> None:
        """Goes back to a remembered state, whatever happened since."""
        if not self._snapshots:
            await self.take_snapshot()
            await self.pause()
        index = self.random.randrange(len(self._snapshots))
        snapshot, height = self._snapshots[index]
        del self._snapshots[index:]
        if await self.node.height() - height > 2 * DEPTH_MAX:
            return  # It has become too old to be gone back to.
        assert await self.node.ask("evm_revert", snapshot)
        self.counts["reverted"] += 1
        if self.random.random() < 0.6:
            await self.transact()

    async def pause(self) -> None:
        """A moment in which a follower may see what is about to vanish; tests put theirs here."""

    # What moves are made of.

    async def _depth(self) -> int:
        """Blocks to take back, few more often than many."""
        most = min(DEPTH_MAX, await self.node.height() - 1)
        return min(self.random.randint(1, most) for _ in range(3))

    async def _mine(self, blocks: int) -> None:
        for _ in range(blocks):
            await self.node.ask("evm_mine")

    async def _hashes(self, first: int, last: int) -> list[str]:
        wanted = range(max(first, 0), last + 1)
        calls = [("eth_getBlockByNumber", (hex(n), False)) for n in wanted]
        blocks = await self.node.ask_all(calls)
        return [hash for block in blocks for hash in block["transactions"]]

    async def _forget_above(self, height: int) -> None:
        self._snapshots = [each for each in self._snapshots if each[1] <= height]

    async def _send_any(self) -> None:
        kinds = (
            (self._transfer, 3),
            (self._call_any, 6),
            (self._call_through_relay, 2),
            (self._fail, 2),
            (self._create_any, 3),
            (self._impersonate, int(self._impersonates)),
        )
        (send,) = self.random.choices([k for k, _ in kinds], [w for _, w in kinds])
        await send()

    async def _transfer(self) -> None:
        to = self.random.choice([*self._accounts, "0x" + self.random.randbytes(20).hex()])
        value = self.random.choice((0, 1, self.random.randrange(10**18)))
        await self._send(to=to, value=hex(value), gas=hex(30_000))

    async def _call_any(self) -> None:
        await self._call(await self._any_contract())

    async def _call(self, address: str) -> None:
        await self._send(to=address, data=self._data())

    async def _call_through_relay(self) -> None:
        await self._create(evm_code.creation(evm_code.relay()))
        relay = self._contracts[-1]
        inner = self.random.choice(("0x", self._data()))
        target = (await self._any_contract())[2:].rjust(64, "0")
        await self._send(to=relay, data="0x" + target + inner[2:])

    async def _fail(self) -> None:
        if self.random.random() < 0.5:
            await self._send(to=await self._any_contract())
        else:
            await self._send(data="0x" + evm_code.refusal().hex())
        self.counts["failing transactions"] += 1

    async def _create_any(self) -> None:
        topics, times = self.random.randint(0, 4), self.random.randint(1, 3)
        runtime = evm_code.emitter(topics=topics, times=times)
        logs = self.random.random() < 0.5
        await self._create(evm_code.creation(runtime, logs=logs))

    async def _create(self, code: bytes, sender: str | None = None) -> None:
        hash = await self._send(sender, data="0x" + code.hex())
        request = self._requests[hash]
        self._contracts.append(_created(request["from"], int(request["nonce"], 16)))

    async def _impersonate(self) -> None:
        sender = "0x" + bytes([0xAB] * 19 + [self.random.randrange(3)]).hex()
        await self._endow(sender)
        await self._send(sender, to=await self._any_contract(), data=self._data())
        self.counts["impersonated transactions"] += 1

    async def _endow(self, sender: str) -> None:
        await self.node.ask("anvil_impersonateAccount", sender)
        await self.node.ask("anvil_setBalance", sender, hex(10**20))

    async def _send(self, sender: str | None = None, /, **fields: str) -> str:
        """Sends a transaction with everything that shapes its hash spelled out."""
        sender = sender or self.random.choice(self._accounts)
        nonce = await self.node.ask("eth_getTransactionCount", sender, "pending")
        request: Request = {"from": sender, "nonce": nonce, "gas": hex(2_000_000), **fields}
        match self.random.randrange(3):
            case 0:
                request |= {"gasPrice": hex(FEE), "type": "0x0"}
            case 1:
                keys = ["0x" + self.random.randbytes(32).hex()]
                entry = {"address": self._accounts[0], "storageKeys": keys}
                request |= {"gasPrice": hex(FEE), "type": "0x1", "accessList": [entry]}
            case _:
                tip = hex(self.random.randrange(10**9))
                request |= {"maxFeePerGas": hex(FEE), "maxPriorityFeePerGas": tip}
        hash: str = await self.node.ask("eth_sendTransaction", request)
        self._requests[hash] = request
        return hash

    async def _any_contract(self) -> str:
        """A contract, mostly one that no fork has taken away."""
        for address in self.random.sample(self._contracts, min(5, len(self._contracts))):
            if await self.node.ask("eth_getCode", address, "latest") != "0x":
                return address
        await self._create(evm_code.creation(evm_code.emitter(topics=2)))
        return self._contracts[-1]

    def _data(self) -> str:
        size = self.random.choice((1, 31, 32, 64, 100, 129, 300))
        if self.random.random() < 0.05:
            size = DATA_SIZE_MAX
            self.counts["large calls"] += 1
        return "0x" + self.random.randbytes(size).hex()


def _created(sender: str, nonce: int) -> str:
    """The address of the contract that a sender's transaction creates."""
    return "0x" + keccak.keccak256(rlp.encode([bytes.fromhex(sender[2:]), nonce]))[12:].hex()
