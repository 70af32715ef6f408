"""Owns one simulated world of contract reads: a chain that forks and puts other contracts at the
same addresses, nodes that lag, fail and forget, and workers that ask late, die and race.

Two datasets are computed in plain Python, in the place of Spark, by the same code that asks for a
real run: the answers of every contract that moved something in a block, and the tokens, which are
asked only where the job's own rows, in the state before the run, do not say enough. After every
move both are compared with a full computation over the chain up to their watermark, and every
answer that is kept with what the chain says of its block.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tests import sparks, toy
from tests.batches import batch, ref
from tests.nodes import DevnetWire, SteppedClock, chain_config, evm_source
from tests.places import Place
from tests.simulation.test_crash_points import Crash
from tests.workers import Worker
from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import Mode, Strategy
from unfork.datasets.scope import Scope
from unfork.devnet import contract_calls, faults
from unfork.devnet.block import Block
from unfork.devnet.faults import Fault
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.protocol import RpcError
from unfork.devnet.tree import Tree
from unfork.hot.advance import Upstream
from unfork.jobs import thread
from unfork.jobs.calling import Caller
from unfork.jobs.finished import Committed, Finished
from unfork.jobs.lease import Lease
from unfork.jobs.read import PLACE, Read
from unfork.jobs.spark import kept, schema
from unfork.jobs.spark import place as places
from unfork.jobs.spark.asking import Asker, Question
from unfork.jobs.spark.kept import Moment
from unfork.jobs.state import Kind as LeaseKind
from unfork.jobs.verdict import AsRead
from unfork.testing import derived, tokens

HEADERS = Scope(kind="logs")

#: What a node may do, or not do, from one move to the next.
TROUBLES: tuple[Fault, ...] = (
    faults.TooManyRequests(rate=0.4, retry_after_s=0),
    faults.BadGateway(rate=0.4),
    faults.CutBody(rate=0.3),
    faults.Silence(rate=0.3),
    faults.Silence(),
    faults.NodeError(methods=frozenset({"eth_call"}), rate=0.2),
    faults.NodeError(),
    faults.Lag(blocks=2),
    faults.Stale(movements=1),
    faults.Stale(movements=3),
    faults.HashRefused(),
    faults.BatchCap(calls_max=2),
    faults.Pruned(keeps_blocks=3),
)

ANSWERS = DerivedDataset(
    name="answers",
    job="answers",
    inputs=("blocks",),
    mode=Mode.CURSOR,
    strategy=Strategy.REPLACE,
    columns=(
        *PLACE,
        Column("ok", Kind.BOOL),
        Column("output", Kind.BYTES, nullable=True),
        Column("lasting", Kind.BYTES, nullable=True),
    ),
)
TOKENS = DerivedDataset(
    name="tokens",
    job="tokens",
    inputs=("blocks",),
    mode=Mode.CURSOR,
    strategy=Strategy.MERGE,
    key=("address",),
    columns=(
        Column("address", Kind.BYTES),
        Column("name", Kind.TEXT, nullable=True),
        Column("symbol", Kind.TEXT, nullable=True),
        Column("decimals", Kind.INT, nullable=True),
        Column("standard", Kind.TEXT, nullable=True),
        Column("remarks", Kind.TEXT, nullable=True),
        Column("block_number", Kind.INT),
        Column("block_hash", Kind.BYTES),
        Column("block_timestamp", Kind.TIME),
    ),
)

FUNCTIONS = {"name": "name()(text)", "symbol": "symbol()(text)", "decimals": "decimals()(uint8)"}
QUESTIONS = {
    name: Question(
        read=Read(name=name, of="blocks", address="address", function=function), asked=PLACE
    )
    for name, function in FUNCTIONS.items()
}
LASTING = Question(
    read=Read(
        name="symbol",
        of="blocks",
        address="address",
        function="symbol()(text)",
        is_immutable=True,
    ),
    asked=PLACE,
)

Row = dict[str, Any]


@dataclass
class Pending:
    """A run that has asked and is not committed yet."""

    worker: Worker
    run: Finished


class ReadsWorld:
    """One run."""

    def __init__(self, seed: int, place: Place) -> None:
        self.place = place
        self.dice = dice = random.Random(seed)
        self.tree = Tree(
            Knobs(
                seed=dice.randrange(50),
                density=3,
                hostile=True,
                finality_lag=dice.choice([None, 4, 9]),
            )
        )
        self.store = place.store(chain=place.chain(finality_depth_min=2, reorg_depth_max=14))
        upstream = Upstream(place.name, place.database())
        first = Worker(place, upstream, name="worker-0", probe=self._probe)
        self.workers = [
            first,
            Worker(place, upstream, name="worker-1", time=first.time, probe=self._probe),
        ]
        self.time = first.time
        self.wires = [DevnetWire(self.tree, name=name) for name in ("one", "two")]
        self.pending: list[Pending] = []
        self.told: list[str] = []
        self.statements = 0
        self.crash_at: int | None = None
        self.committed = self.failed = self.forks = self.deaths = 0

    async def run(self, moves: int) -> None:
        """Moves, compares, and lets everything come to rest at the end."""
        self.caller = Caller(
            evm_source(
                *self.wires,
                chain=chain_config(attempts_max=3, concurrency=4),
                clock=SteppedClock(),
            )
        )
        self.at = places.find(str(sparks.written(self.place)), self.place.name)
        await self.store.open()
        await self.store.claim(chain_id=1337, start=0)
        await self.workers[0].register(ANSWERS, TOKENS, first=0)
        self.tree.extend(6)
        await self.grow()
        try:
            for number in range(moves):
                self.told.append(f"-- {number}")
                await self._move()
                await self.check()
            await self.rest()
        finally:
            await self.caller.close()

    def _probe(self, statement: str) -> None:
        self.statements += 1
        if self.statements == self.crash_at:
            self.crash_at = None
            raise Crash(statement)

    async def _move(self) -> None:
        dice = self.dice
        if dice.random() < 0.15:
            self.crash_at = self.statements + dice.randrange(1, 40)
        moves = [self.grow, self.fork, self.follow, self.plan, self.commit, self.trouble]
        try:
            await dice.choices([*moves, self.pass_time], [4, 3, 6, 10, 8, 4, 3])[0]()
        except Crash as crash:
            self.told.append(f"died at {crash}")
            self.deaths += 1
        self.crash_at = None

    # The chain, its stores and its nodes.

    async def grow(self) -> None:
        """More blocks, of which the raw store takes some or all."""
        self.tree.extend(self.dice.randrange(1, 4))
        for wire in self.wires:
            wire.rpc.observe()
        await self._take()

    async def fork(self) -> None:
        """Another branch, on which other contracts stand at the same addresses, as often as not."""
        state = await self.store.state()
        lowest = state.floor.number if state.floor else 0
        room = self.tree.head.number - lowest
        if room < 1:
            return
        depth = self.dice.randrange(1, room + 1)
        tip = self.tree.head.hash
        self.tree.fork(
            depth=depth,
            length=max(1, depth + self.dice.choice([-1, 0, 1, 2])),
            style=self.dice.choice([Style.REDEPLOYED, Style.REDEPLOYED, *Style]),
        )
        if self.dice.random() < 0.2:
            self.tree.switch(tip)
        self.forks += 1
        for wire in self.wires:
            wire.rpc.observe()
        await self._take()

    async def _take(self) -> None:
        """The raw store goes over to the chain."""
        position = (await self.store.state()).position
        shared = position
        while shared is not None and not self.tree.is_canonical(shared.hash):
            shared = self._parent(shared)
        if shared != position:
            await self.store.unwind(shared, tip=ref(self.tree.head))
            self.told.append(f"raw unwound to {shared}")
        first = 0 if shared is None else shared.number + 1
        blocks = [self.tree.at(number) for number in range(first, self.tree.head.number + 1)]
        if blocks:
            await self.store.commit(
                batch(
                    *(block for block in blocks if block is not None),
                    head=self.tree.head,
                    finalized=self.tree.finalized,
                    scope=HEADERS,
                )
            )

    async def trouble(self) -> None:
        """A node begins to fail, or recovers."""
        wire = self.dice.choice(self.wires)
        wire.faults.clear()
        if self.dice.random() < 0.6:
            fault = self.dice.choice(TROUBLES)
            wire.faults.switch_on(fault)
            self.told.append(f"{wire.url[7:10]}: {fault.name}")

    async def follow(self) -> None:
        """The app side takes over what happened."""
        await self.dice.choice(self.workers).refs.step()

    async def pass_time(self) -> None:
        """Time passes, and somebody looks for workers that did not come back."""
        self.time.pass_s(self.dice.choice([5, 200, 200]))
        await self.dice.choice(self.workers).leases.reap()

    def _parent(self, block: BlockRef) -> BlockRef | None:
        known = self.tree.by_hash(block.hash)
        assert known is not None
        return BlockRef(block.number - 1, known.header.parent_hash) if block.number else None

    def path(self, tip: BlockRef | None) -> list[Block]:
        """The chain that a block is the head of."""
        found: list[Block] = []
        while tip is not None:
            block = self.tree.by_hash(tip.hash)
            assert block is not None
            found.append(block)
            tip = self._parent(tip)
        return found[::-1]

    # The workers.

    async def plan(self) -> None:
        """Claims blocks, asks, and keeps the run for later."""
        worker = self.dice.choice(self.workers)
        build = await worker.build(self.dice.choice([ANSWERS, TOKENS]))
        lease = await worker.leases.reclaim(
            build, worker=worker.name, config_hash=build.config_hash
        )
        if lease is None:
            state = await worker.refs.state()
            last = -1 if state.position is None else state.position.number
            first, kind = build.next, LeaseKind.LIVE
            if build.dataset.name == ANSWERS.name and first and self.dice.random() < 0.2:
                first, kind = self.dice.randrange(first), LeaseKind.RECOMPUTE
                last = build.next - 1
            last = min(first + self.dice.randrange(5), last)
            if first > last:
                return
            lease = await worker.claim(build, Span(first, last), kind=kind)
        if lease is not None:
            run = await self.computed(worker, build, lease)
            if run is not None:
                self.pending.append(Pending(worker, run))

    async def computed(self, worker: Worker, build: Generation, lease: Lease) -> Finished | None:
        """A run that was claimed, with what it was told; None where it was given up."""
        before = await worker.refs.state()
        as_read = AsRead(epoch=before.epoch, floor=before.floor.number if before.floor else None)
        # The raw store may be ahead of the app side, or on another fork.
        tip = before.position
        if self.dice.random() < 0.5:
            tip = (await self.store.state()).position
        chain, span = self.path(tip), lease.span
        if len(chain) <= span.last:
            await worker.leases.give_back(lease)
            return None
        blocks = chain[span.first : span.last + 1]
        moment = Moment(
            last=ref(blocks[-1]),
            floor=-1 if as_read.floor is None else as_read.floor,
            epoch=as_read.epoch,
        )
        parent = ref(chain[span.first - 1]) if span.first else None
        try:
            if build.dataset.name == ANSWERS.name:
                rows = await self._answers(blocks, moment)
            else:
                rows = await self._tokens(build, blocks, parent, moment)
        except errors.BlockReplaced:
            await worker.leases.give_back(lease)
            return None
        except errors.Retryable as error:
            self.failed += 1
            self.told.append(f"{lease.job} {span}: {error}")
            await worker.leases.fail(lease, error)
            again = [one for one in await worker.leases.all() if one.id == lease.id]
            assert all(one.attempt == lease.attempt for one in again), "it is nobody's fault"
            return None
        self.told.append(f"{lease.job} {lease.kind} {span} asked")
        return await worker.compute(
            build,
            lease,
            [ref(block) for block in blocks],
            parent=parent,
            rows=rows,
            as_read=as_read,
            config_hash=build.config_hash,
        )

    async def _answers(self, blocks: Sequence[Block], moment: Moment) -> list[Row]:
        asked = [(block, address) for block in blocks for address in moved(block)]
        name, lasting = await self._ask(asked, [QUESTIONS["name"], LASTING], moment)
        return [
            {
                **_place(block, address),
                "ok": first["ok"],
                "output": first["output"],
                "lasting": second["output"],
            }
            for (block, address), first, second in zip(asked, name, lasting, strict=True)
        ]

    async def _tokens(
        self,
        build: Generation,
        blocks: Sequence[Block],
        parent: BlockRef | None,
        moment: Moment,
    ) -> list[Row]:
        wanted = sorted({one for block in blocks for one in (*moved(block), *created(block))})

        def known() -> list[Row]:
            with kept.opened(self.at, moment) as store:
                return store.known(build, parent, wanted, ("address", "standard"))

        held = {row["address"]: row["standard"] for row in await thread.run(known)}
        asked: list[tuple[Block, bytes]] = []
        for block in blocks:
            for address in sorted({*moved(block), *created(block)}):
                is_new = address in created(block) or held.get(address) is None
                if (address in moved(block) and is_new) or (
                    address not in moved(block) and address in held
                ):
                    held[address] = moved(block).get(address)
                    asked.append((block, address))
        said = await self._ask(asked, list(QUESTIONS.values()), moment)
        rows = []
        for at, (block, address) in enumerate(asked):
            of = {name: said[place][at] for place, name in enumerate(QUESTIONS)}
            remarks = [f"{name} {of[name]['remark']}" for name in of if of[name]["remark"]]
            rows.append(
                {
                    **_place(block, address),
                    **{name: of[name]["value"] for name in of},
                    "standard": moved(block).get(address),
                    "remarks": "; ".join(remarks) or None,
                    "block_timestamp": datetime.fromtimestamp(block.header.timestamp, UTC),
                }
            )
        return rows

    async def _ask(
        self,
        asked: Sequence[tuple[Block, bytes]],
        questions: Sequence[Question],
        moment: Moment,
    ) -> list[list[Row]]:
        rows = [_place(block, address) for block, address in asked]
        table = pa.Table.from_pylist(rows, schema.arrow(PLACE))
        asker = Asker(self.at, moment, self.caller.lend(moment))
        given = [(question, table) for question in questions]
        return [one.to_pylist() for one in await thread.run(lambda: asker.answers(given))]

    async def commit(self) -> None:
        """Commits a run that has asked some time ago, or has its worker die over it."""
        if not self.pending:
            return
        one = self.pending.pop(self.dice.randrange(len(self.pending)))
        if self.dice.random() < 0.08:
            return
        outcome = await one.worker.commits.commit(one.run)
        self.told.append(f"{one.run.lease.job} {one.run.anchor.span} {type(outcome).__name__}")
        self.committed += isinstance(outcome, Committed)

    # What must hold.

    async def check(self) -> None:
        """Both datasets are what the chain says up to their watermark, and every kept answer is."""
        worker = self.workers[0]
        answers, found = await worker.build(ANSWERS), await worker.build(TOKENS)
        assert await worker.held(ANSWERS) == toy.ordered(self._expected(answers.watermark))
        expected = tokens.tokens(self.path(found.watermark), self.tree.metadata)
        assert await worker.held(TOKENS) == toy.ordered(list(expected.values()))
        state = await worker.refs.state()
        held = {block.number: block.hash for block in self.path(state.position)}
        for row in await self.place.app_rows("SELECT * FROM {app}.contract_reads"):
            told = self._truth(row["address"], row["data"], row["block_hash"])
            assert (row["ok"], row["output"]) == told
            if state.floor is not None and row["block_number"] <= state.floor.number:
                assert held[row["block_number"]] == row["block_hash"], "of a block that is gone"

    def _expected(self, watermark: BlockRef | None) -> list[Row]:
        rows = []
        for block in self.path(watermark):
            for address in moved(block):
                ok, output = self._truth(address, contract_calls.NAME, block.hash)
                _, lasting = self._truth(address, contract_calls.SYMBOL, block.hash)
                rows.append(
                    {
                        **_place(block, address),
                        "ok": ok,
                        "output": output if ok else None,
                        "lasting": lasting,
                    }
                )
        return rows

    def _truth(self, address: bytes, data: bytes, hash: bytes) -> tuple[bool, bytes]:
        contract = self.tree.metadata(address, hash)
        try:
            return True, b"" if contract is None else contract_calls.output(contract, data)
        except RpcError:
            return False, b""

    async def rest(self) -> None:
        """The nodes are well and the chain stands: everything catches up, and is exact."""
        self.told.append("-- rest")
        self.pending.clear()
        for wire in self.wires:
            wire.faults.clear()
        worker = self.workers[0]
        self.time.pass_s(1000)
        await worker.leases.reap()
        await worker.follow()
        for dataset in (ANSWERS, TOKENS):
            for _ in range(200):
                self.time.pass_s(1000)
                # A worker may have died over the same blocks too often.
                await worker.leases.release(dataset.job)
                build = await worker.build(dataset)
                lease = await worker.leases.reclaim(
                    build, worker=worker.name, config_hash=build.config_hash
                )
                if lease is None and build.next > self.tree.head.number:
                    break
                if lease is None:
                    last = min(build.next + 7, self.tree.head.number)
                    lease = await worker.claim(build, Span(build.next, last))
                assert lease is not None
                run = await self.computed(worker, build, lease)
                if run is not None:
                    await worker.commits.commit(run)
            else:
                raise AssertionError(f"{dataset.name} never comes to rest")
            assert (await worker.build(dataset)).watermark == ref(self.tree.head)
        await self.check()


def moved(block: Block) -> dict[bytes, str]:
    """The tokens of which a block moves something, each with its standard."""
    found: dict[bytes, str] = {}
    for row in derived.token_transfers([block]):
        found.setdefault(row["token_address"], row["standard"])
    return found


def created(block: Block) -> set[bytes]:
    """The addresses at which a block created a contract."""
    return {
        executed.contract_address
        for executed in block.transactions
        if executed.contract_address is not None and executed.status == 1
    }


def _place(block: Block, address: bytes) -> Row:
    return {"block_number": block.number, "block_hash": block.hash, "address": address}
