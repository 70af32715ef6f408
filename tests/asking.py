"""A chain whose contracts are asked, for tests without Spark: stores, a node, and who asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tests import sparks
from tests.batches import batch, ref
from tests.nodes import DevnetWire, chain_config, evm_source
from tests.places import Place
from tests.workers import Worker
from unfork.chain.block import BlockRef
from unfork.clock import Clock
from unfork.datasets.scope import Scope
from unfork.devnet import contract_calls
from unfork.devnet.block import Block
from unfork.devnet.orders import Style
from unfork.devnet.protocol import RpcError
from unfork.devnet.tree import Movement, Tree
from unfork.hot.advance import Upstream
from unfork.hot.store import HotStore
from unfork.jobs import thread
from unfork.jobs.calling import Caller
from unfork.jobs.read import PLACE, Read
from unfork.jobs.spark import place as places
from unfork.jobs.spark import schema
from unfork.jobs.spark.asking import Asker, Question
from unfork.jobs.spark.kept import Moment
from unfork.sources.source import Source

HEADERS = Scope(kind="logs")
NAME = Read(name="name", of="logs", address="address", function="name()(text)")
LASTING = Read(
    name="name", of="logs", address="address", function="name()(text)", is_immutable=True
)


@dataclass
class Asking:
    """A chain that moves as the test says, and one who asks its contracts."""

    place: Place
    tree: Tree
    store: HotStore
    worker: Worker
    wire: DevnetWire
    caller: Caller

    async def grow(self, blocks: int = 1) -> None:
        await self.take(self.tree.extend(blocks))

    async def fork(self, *, depth: int, length: int, style: Style = Style.REDEPLOYED) -> None:
        await self.take(self.tree.fork(depth=depth, length=length, style=style))

    async def take(self, movement: Movement, *, follow: bool = True) -> None:
        """Lets the raw store follow a movement, and the app side where it is to."""
        if movement.removed:
            ancestor = self.tree.at(movement.removed[-1].number - 1)
            assert ancestor is not None
            await self.store.unwind(ref(ancestor), tip=ref(movement.head))
        if movement.added:
            await self.commit(*movement.added)
        if follow:
            await self.worker.follow()

    async def commit(self, *blocks: Block) -> None:
        made = batch(*blocks, head=self.tree.head, finalized=self.tree.finalized, scope=HEADERS)
        await self.store.commit(made)

    async def moment(self, last: BlockRef) -> Moment:
        """What a run that reads now knows of the chain."""
        state = await self.worker.refs.state()
        floor = -1 if state.floor is None else state.floor.number
        return Moment(last=last, floor=floor, epoch=state.epoch)

    async def ask(
        self, read: Read, *asked: tuple[Block, bytes], moment: Moment | None = None
    ) -> list[dict[str, Any]]:
        """The rows with the answers to some questions, in order."""
        table = pa.Table.from_pylist(
            [
                {"block_number": block.number, "block_hash": block.hash, "address": address}
                for block, address in asked
            ],
            schema.arrow(PLACE),
        )
        (found,) = await self.answers([(Question(read=read, asked=PLACE), table)], moment)
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    async def answers(
        self, asked: Sequence[tuple[Question, pa.Table]], moment: Moment | None = None
    ) -> list[pa.Table]:
        """The same for any questions; in a thread, as a run asks."""
        found = places.find(str(sparks.written(self.place)), self.place.name)
        moment = moment or await self.moment(ref(self.tree.head))
        asker = Asker(found, moment, self.caller.lend("run"))
        return await thread.run(lambda: asker.answers(asked))

    @property
    def asked(self) -> int:
        """Contracts asked so far."""
        return self.wire.methods.count("eth_call")

    async def kept(self) -> list[dict[str, Any]]:
        """The answers that are kept."""
        return await self.place.app_rows(
            "SELECT * FROM {app}.contract_reads ORDER BY block_number, address, data"
        )

    def truth(self, address: bytes, data: bytes, hash: bytes) -> tuple[bool, bytes]:
        """What a contract answers in the state after a block, as the chain itself has it."""
        contract = self.tree.metadata(address, hash)
        try:
            return True, b"" if contract is None else contract_calls.output(contract, data)
        except RpcError:
            return False, b""


@asynccontextmanager
async def asking(
    place: Place,
    tree: Tree,
    *,
    source: Source | None = None,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Asking]:
    """A chain with all its blocks held; `settings` are those of its source."""
    store = place.store(chain=place.chain(finality_depth_min=2))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    worker = Worker(place, Upstream(place.name, place.database()))
    wire = DevnetWire(tree)
    caller = Caller(source or evm_source(wire, chain=chain_config(**settings), clock=clock))
    made = Asking(place, tree, store, worker, wire, caller)
    blocks = [tree.at(number) for number in range(tree.head.number + 1)]
    await made.commit(*(block for block in blocks if block is not None))
    await worker.follow()
    yield made
    await caller.close()
