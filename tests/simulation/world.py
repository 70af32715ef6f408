"""Owns one simulated world: a chain that forks, nodes that fail, processes that die, real Postgres.

Everything that happens is drawn from one seed. The source, the follower and the store are the real
ones; only sockets and clocks are replaced, and while the database works nothing else moves, so that
a seed is the same run every time. After every movement of the head the follower is left alone until
it has caught up, and every table is compared with the canonical chain.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from typing import Any

from tests.places import Place
from unfork.app.indexing_errors import IndexingErrors
from unfork.chain.block import BlockRef
from unfork.config import tree as config
from unfork.devnet import faults as fault_kinds
from unfork.devnet.block import Block
from unfork.devnet.faults import Faults
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.rpc import Rpc
from unfork.devnet.tree import Tree
from unfork.ingest.follow import Committed, Event, Follower, Policy, Unwound
from unfork.sources.evm import EvmSource
from unfork.testing import compare, oracle, raw
from unfork.testing.clock import Turn, VirtualClock
from unfork.testing.wire import MemoryWire

#: Jumps of the clock without any step of the follower that count as standstill.
STANDSTILL = 3000

#: Times a process may die in one run.
DEATHS_MAX = 12


class Crash(BaseException):
    """The process died here: nothing after this point happens."""


class Turning:
    """Lets a database client work while the rest of the world stands still."""

    def __init__(self, inner: Any, turn: Turn) -> None:
        self._inner = inner
        self._turn = turn

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._inner, name)

        async def turned(*args: Any, **kwargs: Any) -> Any:
            with self._turn:
                return await method(*args, **kwargs)

        return turned


class World:
    """One run."""

    def __init__(self, seed: int, place: Place) -> None:
        self.seed = seed
        self.place = place
        self.random = random.Random(seed)
        dice = self.random
        lag = dice.choice([None, 4, 8, 16])
        # A replica may be as late as the whole run is long; where one may show a replaced branch,
        # forks of that depth must be allowed.
        is_stale = dice.random() < 0.5
        self.depth_max = 400 if is_stale else 25
        self.ordinary = tuple(
            fault
            for fault in fault_kinds.ORDINARY
            if is_stale or not isinstance(fault, fault_kinds.Stale)
        )
        self.tree = Tree(
            Knobs(
                seed=dice.randrange(40),
                density=dice.choice([0, 1, 1, 2, 3]),
                finality_lag=lag,
                fork_rate=0.35,
                fork_depth_max=dice.choice([1, 3, 8]),
                proven=dice.random() < 0.08,
                hostile=dice.random() < 0.5,
            )
        )
        self.start = dice.choice([0, 0, 1, 5])
        self.tree.extend(self.start + dice.randrange(1, 12))
        self.head_max = self.tree.head.number
        self.turn = Turn()
        self.clock = VirtualClock(self.turn)
        self.faults = [Faults(dice.getrandbits(32)) for _ in range(dice.choice([1, 1, 2]))]
        self.wires = [
            MemoryWire(
                Rpc(self.tree, faults, keeps_replaced=dice.random() < 0.5),
                clock=self.clock,
                turn=self.turn,
                url=f"memory://endpoint{number}",
            )
            for number, faults in enumerate(self.faults)
        ]
        scope = config.Scope(kind="logs" if dice.random() < 0.2 else "all")
        self.chain = place.chain(
            start=self.start,
            scope=scope,
            traces=scope.kind == "all" and dice.random() < 0.4,
            finality_depth_min=dice.choice([0, 2, 6]),
            reorg_depth_max=self.depth_max,
            batch_blocks_max=dice.choice([1, 3, 50]),
            source=config.Source(
                prefetch_blocks=dice.choice([1, 4, 16]),
                batch_size=dice.choice([1, 5, 20]),
                concurrency=dice.choice([1, 4]),
                log_range_blocks=dice.choice([2, 50]),
                checks="roots" if self.tree.knobs.proven else "links",
            ),
        )
        self.datasets = (
            ("blocks", "logs")
            if scope.kind == "logs"
            else ("blocks", "transactions", "logs", "withdrawals")
            + (("traces",) if self.chain.traces else ())
        )
        self.statements = 0
        self.crash_at: int | None = None
        self.outage_at: int | None = None
        self.deaths = 0
        self.progress_at = 0
        self.told: list[str] = []
        self.floor: int | None = None
        self.expected: dict[bytes, oracle.Rows] = {}
        self.reader = raw.RawReader.connect(place.dsn, place.raw, place.folder / "payloads")
        #: Called after every movement, once everything has come to rest and was compared.
        self.settled: Callable[[], None] = lambda: None
        self.stopping = asyncio.Event()
        self.follower: Follower | None = None
        self.task: asyncio.Task[None] | None = None

    async def run(self, moves: int) -> None:
        """Lives through the movements, comparing after each."""
        try:
            self._boot()
            await self._settle()
            self._compare()
            self.settled()
            for _ in range(moves):
                self._trouble()
                await self._move()
                await self._settle()
                self._compare()
                self.settled()
        finally:
            await self._end()
            await self.clock.close()
            self.reader.close()

    # The process.

    def _boot(self) -> None:
        """Starts a process: new connections, nothing remembered."""
        store = self.place.store(chain=self.chain, probe=self._probe, lock_wait_s=20.0)
        book = IndexingErrors(self.chain.name, self.place.database(), self.place.payloads())
        source = EvmSource(
            self.chain,
            clock=self.clock,
            random=random.Random(self.random.getrandbits(32)),
            wires=self.wires,
        )
        self.stopping = asyncio.Event()
        self.follower = Follower(
            store=Turning(store, self.turn),  # type: ignore[arg-type]
            source=source,
            book=Turning(book, self.turn),  # type: ignore[arg-type]
            policy=Policy(
                worker_name="raw_ingester", start=self.start, depth_max=self.depth_max, pause_s=1.0
            ),
            clock=self.clock,
            listener=self._heard,
        )
        self.progress_at = self.clock.jumps
        self.task = asyncio.create_task(self.follower.run(lambda state: False, self.stopping))

    async def _end(self) -> None:
        """Ends the process as SIGTERM does."""
        self.stopping.set()
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait({self.task})
        if self.follower is not None:
            await self.follower.close()

    async def _revive(self) -> None:
        """Looks why the process ended; a death is followed by a new process."""
        assert self.task is not None and self.follower is not None
        error = self.task.exception()
        if error is None or not isinstance(error, Crash):
            raise AssertionError(f"the follower ended by itself: {error!r}") from error
        self.deaths += 1
        self.told.append("died")
        self.crash_at = None
        await self.follower.close()
        self._boot()

    def _probe(self, statement: str) -> None:
        self.statements += 1
        if self.statements == self.crash_at:
            self.told.append(f"crash {statement}")
            raise Crash(statement)
        if self.statements == self.outage_at:
            self.told.append(f"outage {statement}")
            self.reader.terminate_others()

    def _heard(self, event: Event) -> None:
        self.progress_at = self.clock.jumps
        match event:
            case Committed(span=span):
                self.told.append(f"committed {span}")
            case Unwound(to=to, depth=depth):
                self.told.append(f"unwound {depth} to {to}")
            case _:
                self.told.append(str(event))

    # What happens to the chain and around it.

    async def _move(self) -> None:
        dice = self.random
        finalized = self.tree.finalized
        # Below this nothing is replaced: it is final, or deeper than forks are followed.
        lowest = finalized.number if finalized else max(self.head_max - self.depth_max, 0)
        room = self.tree.head.number - lowest
        kind = dice.choices(
            ["extend", "advance", "fork", "fall", "flap", "restart"], [5, 4, 6, 1, 2, 1]
        )[0]
        self.told.append(f"-- {kind} from {self.tree.head.ref}")
        if kind == "restart":
            await self._end()
            self.crash_at = None
            kind = "fork"  # A fork while the process is down.
            self._change("fork", room)
            self._boot()
        else:
            self._change(kind, room)
        self.head_max = max(self.head_max, self.tree.head.number)
        self.told.append(f"   head {self.tree.head.ref}")
        for wire in self.wires:
            if dice.random() < 0.7:
                wire.announce()

    def _change(self, kind: str, room: int) -> None:
        dice = self.random
        if kind == "advance":
            for _ in range(dice.randrange(1, 8)):
                self.tree.advance()
        elif kind == "extend" or room < 1:
            self.tree.extend(dice.randrange(1, 9))
        elif kind == "fork":
            depth = dice.randrange(1, room + 1)
            length = depth + dice.choice([-2, -1, 0, 0, 1, 1, 2, 9])
            # The head never falls below where we start: there would be nothing to compare.
            length = max(length, 0, self.start - (self.tree.head.number - depth))
            self.tree.fork(depth=depth, length=length, style=dice.choice(list(Style)))
        elif kind == "fall":
            depth = min(dice.randrange(1, room + 1), self.tree.head.number - self.start)
            self.tree.fork(depth=depth, length=0, style=Style.KEPT)
        else:
            tip = self.tree.head.hash
            depth = dice.randrange(1, room + 1)
            self.tree.fork(depth=depth, length=depth + 1, style=dice.choice(list(Style)))
            if dice.random() < 0.5:
                self.tree.switch(tip)

    def _trouble(self) -> None:
        """Faults of nodes for the next requests, and a death or an outage of the database."""
        dice = self.random
        for faults in self.faults:
            for _ in range(dice.choice([0, 0, 1, 2, 3])):
                fault = dataclasses.replace(
                    dice.choice(self.ordinary), rate=dice.choice([0.2, 0.6, 1.0])
                )
                first = faults.requests + dice.randrange(0, 10)
                faults.schedule(fault, first=first, last=first + dice.randrange(1, 25))
        if dice.random() < 0.45 and self.deaths < DEATHS_MAX:
            self.crash_at = self.statements + dice.randrange(1, 90)
        if dice.random() < 0.15:
            self.outage_at = self.statements + dice.randrange(1, 90)

    # What must hold.

    async def _settle(self) -> None:
        """Returns once the follower has caught up with the head, or holds all of a fallen one."""
        while not self._is_settled():
            assert self.task is not None
            if self.task.done():
                await self._revive()
            assert self.clock.jumps - self.progress_at < STANDSTILL, "the follower stands still"
            await self.turn.free()
            await asyncio.sleep(0)

    def _is_settled(self) -> bool:
        assert self.follower is not None and self.task is not None
        state = self.follower._state
        position = None if state is None else state.position
        if position is None or self.task.done():
            return False
        head = self.tree.head.ref
        return position == head or (position.number > head.number and self._holds(position, head))

    def _holds(self, position: BlockRef, head: BlockRef) -> bool:
        """Whether the chain that ends at our position goes through the node's head."""
        block = self.tree.by_hash(position.hash)
        while block is not None and block.number > head.number:
            block = self.tree.by_hash(block.header.parent_hash)
        return block is not None and block.ref == head

    def _compare(self) -> None:
        """Every table against the canonical chain, up to the node's head."""
        found = self.reader.snapshot(self.datasets)
        head = self.tree.head.number
        chain = found["chain"][0]
        for name in self.datasets:
            dataset = raw.evm.BY_NAME[name]
            actual = [row for row in found[name] if row[dataset.number_column] <= head]
            actual.sort(key=lambda row: tuple(row[column] for column in dataset.key))
            wanted = [
                row for number in range(self.start, head + 1) for row in self._rows(number)[name]
            ]
            if actual != wanted:
                raise AssertionError(compare.difference(dataset, wanted, actual) or "order differs")
        raw.check_journal(found)
        raw.check_lookups(found)
        self._check_floor(chain)

    def _rows(self, number: int) -> oracle.Rows:
        block = self.tree.at(number)
        assert isinstance(block, Block)
        if block.hash not in self.expected:
            self.expected[block.hash] = oracle.rows(block)
        return self.expected[block.hash]

    def _check_floor(self, chain: dict[str, Any]) -> None:
        number = chain["floor_number"]
        if self.floor is not None:
            assert number is not None and number >= self.floor, "the floor fell (I4)"
        self.floor = number
        if number is not None:
            block = self.tree.at(number)
            assert block is not None and block.hash == chain["floor_hash"], "floor off the chain"
