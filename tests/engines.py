"""The whole engine for tests: a devnet whose blocks go into the raw store, and workers on Spark.

The chain moves when the test says so; every loop of a worker is a step that the test takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.batches import batch, ref
from tests.sparks import Chain
from unfork import wiring, wiring_jobs
from unfork.config import load
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Movement, Tree
from unfork.hot.store import HotStore
from unfork.jobs import catalog
from unfork.jobs.lease import Lease, Leases
from unfork.jobs.worker import Happened, Worker
from unfork.testing import derived
from unfork.wiring_jobs import Computing

#: Rounds after which work that does not end is a mistake.
ROUNDS_MAX = 200


@dataclass
class Engine:
    """A chain, its stores and the workers that derive from it."""

    chain: Chain
    tree: Tree
    store: HotStore
    computing: Computing
    #: Whether its blocks are stored with their traces.
    has_traces: bool = True
    workers: list[Worker] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def worker(self) -> Worker:
        """The first worker."""
        return self.workers[0]

    @property
    def blocks(self) -> list[Block]:
        """The chain as it is."""
        found = [self.tree.at(number) for number in range(self.tree.head.number + 1)]
        assert all(found)
        return [block for block in found if block is not None]

    async def grow(self, blocks: int) -> None:
        """Adds blocks, committed at once."""
        await self.take(self.tree.extend(blocks))

    async def fork(self, *, depth: int, length: int, style: Style = Style.REPLACED) -> None:
        """Replaces the last blocks by others."""
        await self.take(self.tree.fork(depth=depth, length=length, style=style))

    async def take(self, movement: Movement) -> None:
        """Lets the raw store follow a movement of the chain."""
        if movement.removed:
            ancestor = self.tree.at(movement.removed[-1].number - 1)
            assert ancestor is not None
            await self.store.unwind(ref(ancestor), tip=ref(movement.head))
        await self.commit(movement.added)

    async def commit(self, blocks: Sequence[Block]) -> None:
        if blocks:
            head, finalized = self.tree.head, self.tree.finalized
            given = {} if self.has_traces else {"scope": Scope()}
            await self.store.commit(batch(*blocks, head=head, finalized=finalized, **given))

    async def settle(self) -> None:
        """Lets all workers do what there is to do, to the end."""
        for _ in range(ROUNDS_MAX):
            moved = [await worker.follow() for worker in self.workers]
            again = await asyncio.gather(*(worker.dispatch() for worker in self.workers))
            started = any(worker.is_running for worker in self.workers)
            for worker in self.workers:
                await worker.settled()
            if not (any(moved) or any(again) or started):
                return
        raise AssertionError(f"there is no end of it: {self.happened[-5:]}")

    async def restart(self, config: Mapping[str, Any]) -> None:
        """Ends the workers and starts one that has read the configuration as it is now."""
        for worker in self.workers:
            await worker.stop()
        self.workers.clear()
        loaded, self.computing = _computing(self.chain, config, traces=self.has_traces)
        await self.hire(loaded, "worker-again")

    async def hire(self, loaded: load.Loaded, name: str) -> None:
        """One worker more."""
        place = self.chain.place
        where = wiring.Urls(raw=place.dsn, app=place.app_dsn or place.dsn)
        worker = wiring_jobs.worker(
            self.computing,
            where,
            loaded.config.chains[0],
            name=name,
            listener=self.happened.append,
        )
        self.workers.append(await self.stack.enter_async_context(worker))

    async def rows(self, dataset: str, order: str) -> list[dict[str, Any]]:
        """What people read under a dataset's name."""
        text = f'SELECT * FROM {{app}}."{dataset}" ORDER BY {order}'
        found = await self.chain.place.app_rows(text)
        return [{name: _plain(value) for name, value in row.items()} for row in found]

    async def check(self) -> None:
        """The built-in datasets that are computed are what the chain says, to the last row."""
        views = await self.chain.place.app_rows(
            f"SELECT viewname AS name FROM pg_views WHERE schemaname = '{self.chain.place.app}'"
        )
        computed = {row["name"] for row in views}
        everything = derived.everything(self.blocks, traces=self.has_traces)
        for name, expected in everything.items():
            if name in computed:
                difference = derived.difference(expected, await self.rows(name, "1"))
                assert not difference, f"{name}: {difference}"

    async def leases(self) -> list[Lease]:
        """Every lease there is."""
        return await Leases(self.chain.place.name, self.chain.place.app_database()).all()

    async def release(self, *jobs: str) -> None:
        """Lets what failed be tried again at once, as a person may."""
        leases = Leases(self.chain.place.name, self.chain.place.app_database())
        for job in jobs:
            await leases.release(job)

    async def watermarks(self) -> dict[str, int | None]:
        """How far each dataset has come."""
        rows = await self.chain.place.app_rows(
            "SELECT worker_name, block_number FROM {app}.indexing_checkpoints"
        )
        return {row["worker_name"]: row["block_number"] for row in rows}


@asynccontextmanager
async def engine(
    chain: Chain,
    knobs: Knobs | None = None,
    *,
    tree: Tree | None = None,
    workers: int = 1,
    config: Mapping[str, Any] | None = None,
    finality_depth_min: int = 10,
    traces: bool = True,
) -> AsyncIterator[Engine]:
    """An engine over an empty chain."""
    place = chain.place
    loaded, computing = _computing(chain, config, traces=traces)
    tree = tree or Tree(knobs or Knobs(density=4, hostile=True, finality_lag=20, block_time_s=7200))
    store = place.store(chain=place.chain(finality_depth_min=finality_depth_min, traces=traces))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    made = Engine(chain=chain, tree=tree, store=store, computing=computing, has_traces=traces)
    async with made.stack:
        for number in range(workers):
            await made.hire(loaded, f"worker-{number}")
        await made.commit(made.blocks)
        yield made
        for worker in made.workers:
            await worker.stop()


def _computing(
    chain: Chain, config: Mapping[str, Any] | None, *, traces: bool
) -> tuple[load.Loaded, Computing]:
    """The configuration of a chain with these settings, and its jobs."""
    document = {**yaml.safe_load(chain.file.read_text()), **(config or {})}
    document["chains"] = [{**one, "traces": traces} for one in document["chains"]]
    chain.file.write_text(yaml.safe_dump(document))
    loaded = load.load(chain.file)
    return loaded, wiring_jobs.prepared(loaded, catalog.read(loaded), chain.spark)


def _plain(value: Any) -> Any:
    """A value of Postgres as the oracle has it."""
    return int(value) if type(value).__name__ == "Decimal" else value
