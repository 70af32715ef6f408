"""Owns one simulated world of derived data: a chain that forks, a real raw store, a real app side,
and workers that are late, die, pause and race each other. Everything is drawn from one seed.

In half of the worlds each dataset is computed from the blocks themselves, which a worker may read
from a raw store that is ahead of the app side or on another fork. In the other half everything is
computed from the rows of one dataset, which are corrected now and then.

After every move each dataset is compared with a full computation, in plain Python, over the chain
up to its watermark; what is ahead of the watermark or orphaned must not be read.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tests import toy
from tests.batches import batch, ref
from tests.places import Place
from tests.simulation.derived_checks import Checks
from tests.simulation.test_crash_points import Crash
from tests.workers import Worker, partitions
from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.app.generations import Generation
from unfork.app.versions import PartitionRead
from unfork.chain.block import BlockRef
from unfork.chain.span import Span, aligned
from unfork.database.queries import Query
from unfork.datasets.derivation import Mode
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot.advance import Upstream
from unfork.hot.store import HotStore
from unfork.jobs.finished import Committed, Discarded, Finished
from unfork.jobs.lease import Lease
from unfork.jobs.rewind import TooDeep, rewind
from unfork.jobs.state import Kind
from unfork.jobs.verdict import AsRead

HEADERS = Scope(kind="logs")
#: Blocks of one backfill.
RANGE = 6
#: Runs under way at once at most.
PENDING_MAX = 5


@dataclass
class Pending:
    """A run that has read its blocks and is not committed yet."""

    worker: Worker
    run: Finished


@dataclass
class Inputs:
    """What a run reads, at one moment."""

    chain: Sequence[BlockRef]
    contents: toy.Contents
    as_read: AsRead


class DerivedWorld:
    """One run."""

    def __init__(self, seed: int, place: Place, *datasets: DerivedDataset) -> None:
        self.place = place
        self.datasets = datasets or toy.EVERY
        self.dice = random.Random(seed)
        dice = self.dice
        self.tree = Tree(
            Knobs(seed=dice.randrange(50), density=0, block_time_s=dice.choice([12, 9000, 30_000]))
        )
        self.store: HotStore | None = None
        self.finality: int | None = dice.choice([None, 4, 9])
        #: What corrections have added to blocks; None where no dataset is computed from another.
        self.added: dict[bytes, list[toy.Transfer]] | None = {} if dice.random() < 0.5 else None
        if toy.SEEN in self.datasets:
            # What is looked up matters where it is corrected.
            self.added = {}
        self.statements = 0
        self.crash_at: int | None = None
        self.told: list[str] = []
        self.raw = place.database()
        self.upstream = Upstream(place.name, self.raw)
        first = Worker(place, self.upstream, name="worker-0", probe=self._probe)
        self.workers = [first] + [
            Worker(place, self.upstream, name=f"worker-{n}", time=first.time, probe=self._probe)
            for n in (1, 2)
        ]
        self.time = first.time
        self.pending: list[Pending] = []
        self.committed = 0
        self.discarded = 0
        self.deaths = 0
        self.forks = 0
        self.is_quiet = False
        self.checks = self.reader()

    def reader(self, *, by_build: bool = False) -> Checks:
        """Somebody who reads the app side and knows the chain."""
        return Checks(self.place, self._parent, *self.datasets, added=self.added, by_build=by_build)

    async def begin(self) -> None:
        """A chain of a few blocks, and every dataset registered."""
        chain = self.place.chain(finality_depth_min=2, reorg_depth_max=14)
        self.store = self.place.store(chain=chain)
        await self.store.open()
        await self.store.claim(chain_id=1337, start=0)
        await self.workers[0].register(*self.datasets, first=0)
        self.tree.extend(8)
        await self.grow()
        await self.follow()

    async def run(self, moves: int) -> None:
        """Moves, compares, and lets everything come to rest at the end."""
        try:
            await self.begin()
            for number in range(moves):
                self.told.append(f"-- {number}")
                await self._move()
                self.checks.compare()
            await self.rest()
        finally:
            self.close()

    def close(self) -> None:
        """Ends the reader's connection."""
        self.checks.close()

    def _probe(self, statement: str) -> None:
        self.statements += 1
        if self.statements == self.crash_at:
            self.told.append(f"crash {statement}")
            self.crash_at = None
            raise Crash(statement)

    async def _move(self) -> None:
        dice = self.dice
        if dice.random() < 0.2:
            self.crash_at = self.statements + dice.randrange(1, 60)
        move = dice.choices(
            [self.grow, self.fork, self.follow, self.plan, self.commit, self.pass_time, self.odd],
            [5, 3, 7, 12, 9, 1, 1],
        )[0]
        try:
            await move()
        except Crash:
            self.deaths += 1
        self.crash_at = None

    # The chain and its raw store.

    def _blocks(self, first: int, last: int) -> list[Block]:
        found = [self.tree.at(number) for number in range(first, last + 1)]
        for block in found:
            assert block is not None
            toy.TIMES[block.hash] = datetime.fromtimestamp(block.header.timestamp, UTC)
        return [block for block in found if block is not None]

    def _parent(self, block: BlockRef) -> BlockRef | None:
        known = self.tree.by_hash(block.hash)
        assert known is not None, "a block that no chain ever had"
        return BlockRef(block.number - 1, known.header.parent_hash) if block.number else None

    async def grow(self) -> None:
        """More blocks, of which the raw store takes some or all."""
        assert self.store is not None
        if self.dice.random() < 0.7:
            self.tree.extend(self.dice.randrange(1, 5))
        while True:
            held = (await self.store.state()).position
            first = held.number + 1 if held else 0
            if first > self.tree.head.number or self.dice.random() < 0.1:
                return
            last = min(first + self.dice.randrange(4), self.tree.head.number)
            final = None
            if self.finality is not None and self.tree.head.number > self.finality + 2:
                final = self._blocks(0, self.tree.head.number - self.finality)[-1]
            blocks = self._blocks(first, last)
            await self.store.commit(
                batch(*blocks, head=self.tree.head, finalized=final, scope=HEADERS)
            )
            self.told.append(f"raw {first}..{last}")

    async def fork(self) -> None:
        """Another branch, and the raw store goes over to it; an operator's word, now and then."""
        assert self.store is not None
        state = await self.store.state()
        if state.position is None:
            return
        by_operator = self.dice.random() < 0.06
        lowest = state.floor.number if state.floor and not by_operator else -1
        room = min(self.tree.head.number, self.tree.head.number - lowest)
        if room < 1:
            return
        depth = self.dice.randrange(1, room + 1)
        tip = self.tree.head.hash
        length = max(0, depth + self.dice.choice([-1, 0, 1, 2]))
        self.tree.fork(depth=depth, length=length, style=self.dice.choice(list(Style)))
        if self.dice.random() < 0.2:
            self.tree.switch(tip)
        await self._go_over(by_operator=by_operator)
        await self.grow()

    async def _go_over(self, *, by_operator: bool) -> None:
        """Unwinds the raw store to the highest block that it shares with the chain."""
        assert self.store is not None
        state = await self.store.state()
        shared = None
        for held in reversed(await self.raw_chain()):
            block = self.tree.at(held.number)
            if block is not None and block.hash == held.hash:
                shared = held
                break
        if shared == state.position:
            return
        below = state.floor is not None and (shared is None or shared.number < state.floor.number)
        if below and not by_operator:
            return
        await self.store.unwind(shared, tip=ref(self.tree.head), operator=by_operator)
        self.forks += 1
        self.told.append(f"raw unwound to {shared}{' by an operator' if by_operator else ''}")

    async def raw_chain(self) -> list[BlockRef]:
        """The blocks that the raw store holds."""
        # Over a connection of its own: the store's is for one task at a time.
        text = f'SELECT number, hash FROM "{self.place.raw}".blocks ORDER BY number'
        async with self.raw.session() as session:
            rows = await session.rows(Query("raw_chain", text))
        return [BlockRef(row["number"], row["hash"]) for row in rows]

    # The app side and its workers.

    async def follow(self) -> None:
        """The app side takes over what happened, or some of it."""
        worker = self.dice.choice(self.workers)
        worker.refs._blocks_max = self.dice.choice([1, 3, 100])
        for _ in range(self.dice.choice([1, 1, 10])):
            applied = await worker.refs.step()
            if applied is None:
                break
            self.told.append(f"app {applied.before.position} -> {applied.after.position}")

    async def inputs(
        self, worker: Worker, dataset: DerivedDataset, *, from_raw: bool = False
    ) -> Inputs:
        """The chain, as far as the dataset's inputs include it, and what its blocks hold."""
        # What was final before something was read was final when it was read.
        state = await worker.refs.state()
        as_read = AsRead(epoch=state.epoch, floor=state.floor.number if state.floor else None)
        if self.added is not None and dataset.name != toy.MOVES.name:
            chain, contents = await self._moves(worker)
            return Inputs(chain, contents, as_read)
        chain = await self.raw_chain() if from_raw else self.checks.path(state.position)
        added = {hash: tuple(more) for hash, more in (self.added or {}).items()}
        return Inputs(
            chain, lambda block: [*toy.transfers(block), *added.get(block.hash, ())], as_read
        )

    async def _moves(self, worker: Worker) -> tuple[list[BlockRef], toy.Contents]:
        """The rows of the dataset that the others are computed from, at one moment."""
        app = f'"{self.place.app}"'
        held: dict[bytes, list[toy.Transfer]] = {}
        async with worker.database.session() as session, session.transaction():
            await session.run(Query("moment", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            (build,) = await session.rows(
                Query(
                    "watermark",
                    f"SELECT g.table_name, c.cursor_value, c.cursor_hash FROM {app}.generations g"
                    f" JOIN {app}.dataset_cursors c ON c.generation_id = g.id"
                    " WHERE g.dataset = 'moves' AND g.state = 'served'",
                )
            )
            if build["cursor_value"] is None:
                return [], toy.transfers
            mark = BlockRef(build["cursor_value"], build["cursor_hash"])
            for row in await session.rows(
                Query(
                    "moves",
                    f'SELECT * FROM {app}."{build["table_name"]}" WHERE block_number <='
                    f" {mark.number} ORDER BY block_number, transfer_index",
                )
            ):
                held.setdefault(row["block_hash"], []).append(toy.transfer(row))
        return self.checks.path(mark), lambda block: held.get(block.hash, [])

    async def plan(self) -> None:
        """Claims something sensible, reads it, and keeps it for later."""
        if len(self.pending) >= PENDING_MAX:
            return
        worker = self.dice.choice(self.workers)
        for dataset in self.dice.sample(self.datasets, min(3, len(self.datasets))):
            found = await self.planned(worker, dataset)
            if found is not None:
                self.pending.append(Pending(worker, found))
                return

    async def planned(self, worker: Worker, dataset: DerivedDataset) -> Finished | None:
        """A run that was claimed and has read its inputs, None where there was nothing to do."""
        build = await worker.build(dataset)
        known = await self.inputs(worker, dataset, from_raw=self.dice.random() < 0.4)
        again = await worker.leases.reclaim(
            build, worker=worker.name, config_hash=build.config_hash
        )
        if again is not None:
            return await self._computed(worker, build, again, seen=await self._open(worker, build))
        chain = known.chain
        if not chain:
            return None
        if dataset.is_serial and self.dice.random() < 0.5 and await self._rewind(worker, build):
            return None
        if dataset.mode is not Mode.CURSOR:
            span = await self._partition_span(worker, build, chain)
            kind = Kind.RECOMPUTE
        else:
            kind, span = self._cursor_span(build, chain)
        return None if span is None else await self._claimed(worker, build, kind, span)

    async def _rewind(self, worker: Worker, build: Generation) -> bool:
        """Undoes a serial dataset down to what has to be corrected; whether anything was done."""
        wrong = [
            one.span.first
            for one in await worker.unprocessed()
            if one.generation_id == build.id and one.span.first < build.next
        ]
        if not wrong:
            return False
        to = max(min(wrong), build.first) - 1
        told = await rewind(self.place.name, worker.database, build, to=to)
        self.told.append(f"{build.dataset.name} rewound to {to}: {told}")
        return not isinstance(told, TooDeep)

    def _cursor_span(
        self, build: Generation, chain: Sequence[BlockRef]
    ) -> tuple[Kind, Span | None]:
        dice, last = self.dice, chain[-1].number
        kind = dice.choice([Kind.LIVE, Kind.LIVE, Kind.BACKFILL, Kind.RECOMPUTE])
        if build.dataset.is_serial:
            kind = dice.choice([Kind.LIVE, Kind.BACKFILL])
        first = build.next
        if kind is Kind.RECOMPUTE:
            if build.next == 0:
                return kind, None
            first = dice.randrange(0, build.next)
            last = min(last, build.next - 1)
        elif first <= last and kind is Kind.BACKFILL and not build.dataset.is_serial:
            first = max(first, aligned(dice.randrange(first, last + 1), RANGE).first)
        last = min(first + dice.randrange(RANGE), last)
        return kind, Span(first, last) if first <= last else None

    async def _partition_span(
        self, worker: Worker, build: Generation, chain: Sequence[BlockRef]
    ) -> Span | None:
        every = partitions(build.dataset, chain)
        wanted = [part for part in every if await worker._is_wanted(build, part)]
        if not wanted and self.dice.random() < 0.1:
            wanted = every
        if not wanted:
            return None
        start = self.dice.randrange(len(wanted))
        last = wanted[start]
        for part in wanted[start + 1 : start + self.dice.randrange(1, 4)]:
            if part.span.first == last.span.last + 1:
                last = part
        return Span(wanted[start].span.first, last.span.last)

    async def _open(self, worker: Worker, build: Generation) -> list[int]:
        return [one.id for one in await worker.unprocessed() if one.generation_id == build.id]

    async def _claimed(
        self, worker: Worker, build: Generation, kind: Kind, span: Span
    ) -> Finished | None:
        seen = await self._open(worker, build)
        lease = await worker.claim(build, span, kind=kind, config_hash=build.config_hash)
        return None if lease is None else await self._computed(worker, build, lease, seen=seen)

    async def _computed(
        self, worker: Worker, build: Generation, lease: Lease, *, seen: Sequence[int]
    ) -> Finished | None:
        """Reads what a lease is for, as it is now; gives it back where it is not there."""
        dataset, span = build.dataset, lease.span
        inputs = await self.inputs(worker, dataset, from_raw=self.dice.random() < 0.4)
        if not inputs.chain or inputs.chain[-1].number < span.last:
            if self.dice.random() < 0.5:
                await worker.leases.fail(lease, errors.SourceUnavailable("not there yet"))
            else:
                await worker.leases.give_back(lease)
            return None
        blocks = inputs.chain[span.first : span.last + 1]
        parts = self._parts(dataset, inputs.chain, span)
        if dataset.mode is Mode.PARTITION and not parts:
            await worker.leases.give_back(lease)
            return None
        is_corrected = lease.kind is Kind.RECOMPUTE and dataset.name == toy.MOVES.name
        if self.added is not None and is_corrected and self.dice.random() < 0.6:
            self.correct(self.dice.choice(blocks))
            inputs = await self.inputs(worker, dataset)
            if inputs.chain[span.first : span.last + 1] != blocks:
                await worker.leases.give_back(lease)
                return None
        run = await worker.compute(
            build,
            lease,
            blocks,
            parent=inputs.chain[span.first - 1] if span.first else None,
            contents=inputs.contents,
            earlier=inputs.chain[: span.first],
            seen=seen,
            partitions=parts,
            as_read=inputs.as_read,
            config_hash=build.config_hash,
        )
        if self.dice.random() < 0.15:
            try:
                run = await self.staged(worker, run)
            except errors.SchemaOutdated:
                # Its lease was lost meanwhile, and the place of its rows was cleared with it.
                self.told.append(f"{lease.job} {lease.span} lost its staging")
                return None
        self.told.append(f"{run.lease.job} {run.lease.kind} {run.anchor.span} read")
        return run

    def _parts(
        self, dataset: DerivedDataset, chain: Sequence[BlockRef], span: Span
    ) -> tuple[PartitionRead, ...]:
        """The partitions that make up a span, none where they do not fit it."""
        if dataset.mode is not Mode.PARTITION:
            return ()
        found = [
            part
            for part in partitions(dataset, chain[: span.last + 1])
            if part.span.first >= span.first
        ]
        return tuple(found) if found and found[0].span.first == span.first else ()

    def correct(self, block: BlockRef) -> None:
        """From now on whoever reads the block finds one transfer more in it."""
        assert self.added is not None
        more = self.added.setdefault(block.hash, [])
        sender, receiver = self.dice.sample(toy.ACCOUNTS, 2)
        index = len(toy.transfers(block)) + len(more)
        amount = self.dice.randrange(1, 1000)
        more.append(toy.Transfer(index, sender, receiver, amount, "corrected"))
        self.told.append(f"{block} corrected")

    async def staged(self, worker: Worker, run: Finished) -> Finished:
        """The same run as its tasks leave it, with attempts that died, or emptied by a crash."""
        tasks = self.dice.randrange(1, 4)
        staged = await worker.stage(run, tasks=tasks, dead=self.dice.random() < 0.5)
        if self.dice.random() < 0.2:
            name = f"staging_{run.lease.token}"
            async with worker.database.session() as session:
                await session.run(Query("crash", f'TRUNCATE "{self.place.app}".{name}'))
            self.told.append(f"{name} was emptied")
        return staged

    async def commit(self) -> None:
        """Commits a run that was read some time ago, or has its worker die over it."""
        if not self.pending:
            return
        dice = self.dice
        one = self.pending.pop(dice.randrange(len(self.pending)))
        fate = dice.random()
        if fate < 0.08:
            self.told.append(f"{one.run.lease.job} {one.run.anchor.span} forgotten")
            return
        if fate < 0.16:
            await one.worker.leases.fail(one.run.lease, ValueError("a job that throws"))
            return
        if fate < 0.3:
            await one.worker.leases.renew(one.run.lease)
        try:
            await self.commit_run(one.worker, one.run)
        except Crash:
            # The worker starts again and does not know whether it was in.
            self.pending.append(one)
            raise
        if dice.random() < 0.1:
            self.pending.append(one)

    async def commit_run(self, worker: Worker, run: Finished) -> Committed | Discarded:
        """Commits a run and counts what came of it."""
        outcome = await worker.commits.commit(run)
        self.told.append(f"{run.lease.job} {run.anchor.span} {outcome}")
        if isinstance(outcome, Committed):
            self.committed += 1
        else:
            self.discarded += 1
        return outcome

    async def pass_time(self) -> None:
        """Time passes, and somebody looks for workers that did not come back."""
        self.time.pass_s(self.dice.choice([5, 30, 200]))
        await self.dice.choice(self.workers).leases.reap()

    async def odd(self) -> None:
        """What happens seldom: blocks are released, a dataset is built anew beside the old one."""
        worker = self.workers[0]
        if self.dice.random() < 0.3:
            for dataset in self.datasets:
                await worker.leases.release(dataset.job)
            return
        dataset = self.dice.choice([toy.BALANCES, toy.FIRSTS, toy.MOVES])
        if dataset not in self.datasets:
            dataset = toy.MOVES
        old = await worker.build(dataset)
        config_hash = old.config_hash + "+"
        build = await worker.generations.build(dataset, config_hash=config_hash, first=0)
        chain = (await self.inputs(worker, dataset)).chain
        if chain and build.next <= chain[-1].number:
            span = Span(build.next, chain[-1].number)
            run = await self._claimed(worker, build, Kind.BACKFILL, span)
            if run is not None:
                await self.commit_run(worker, run)
        swapped = await worker.generations.swap(dataset.name)
        self.told.append(f"swap {dataset.name}: {swapped}")

    # The end.

    async def rest(self) -> None:
        """No more forks and deaths: everything catches up and nothing is left to do."""
        self.told.append("-- rest")
        self.pending.clear()
        self.time.pass_s(1000)
        worker = self.workers[0]
        await worker.leases.reap()
        await self.calm()
        while await worker.refs.step() is not None:
            pass
        for dataset in self.datasets:
            await worker.leases.release(dataset.job)
        self.time.pass_s(1000)
        for dataset in self.datasets:
            await self._finish(worker, dataset)
        self.checks.exact(self.contents)

    async def calm(self) -> None:
        """The chain forks no more, and the raw store holds all of it."""
        self.is_quiet = True
        self.tree.extend(6)
        self.finality = None
        while (await self.raw_chain())[-1:] != [ref(self.tree.head)]:
            await self._go_over(by_operator=True)
            await self.grow()

    def contents(self, block: BlockRef) -> list[toy.Transfer]:
        """What a block holds, all corrections included."""
        return [*toy.transfers(block), *(self.added or {}).get(block.hash, ())]

    async def _finish(self, worker: Worker, dataset: DerivedDataset) -> None:
        await worker.generations.abandon(dataset.name)
        is_redone = self.added is None or dataset.name != toy.MOVES.name
        for _ in range(200):
            build = await worker.build(dataset)
            failed = await worker.leases.reclaim(
                build, worker=worker.name, config_hash=build.config_hash
            )
            if failed is not None:
                await worker.leases.give_back(failed)
                continue
            inputs = await self.inputs(worker, dataset)
            head = inputs.chain[-1].number
            outdated = [
                one.span for one in await worker.unprocessed() if one.generation_id == build.id
            ]
            if dataset.mode is not Mode.CURSOR:
                every = partitions(dataset, inputs.chain)
                if build.next > head and not outdated:
                    return
                await self._surely(worker, build, Kind.RECOMPUTE, Span(0, every[-1].span.last))
            elif outdated and outdated[0].first < build.next:
                await self._mend(worker, build, outdated[0], head)
            elif build.next <= head:
                await self._extend(worker, build, head)
            elif not is_redone:
                # A correction whose run was lost: nobody but a backfill finds it.
                is_redone = True
                await self._surely(worker, build, Kind.RECOMPUTE, Span(0, head))
            else:
                return
        raise AssertionError(f"{dataset.name} never comes to rest")

    async def _extend(self, worker: Worker, build: Generation, head: int) -> None:
        """Adds the blocks up to what was computed ahead, and passes that."""
        await worker.commits.advance(build)
        build = await worker.build(build.dataset)
        ahead = [one for one in await worker.leases.all() if one.generation_id == build.id]
        last = min([one.span.first - 1 for one in ahead] + [head])
        if build.next <= last:
            await self._surely(worker, build, Kind.LIVE, Span(build.next, last))

    async def _mend(self, worker: Worker, build: Generation, span: Span, head: int) -> None:
        """Does again what is outdated: in place, undone and replayed, or from a build beside it."""
        if not build.dataset.is_serial:
            cut = Span(max(span.first, 0), min(span.last, build.next - 1))
            await self._surely(worker, build, Kind.RECOMPUTE, cut)
            return
        if await self._rewind(worker, build):
            return
        config_hash = build.config_hash + "*"
        new = await worker.generations.build(build.dataset, config_hash=config_hash, first=0)
        await self._surely(worker, new, Kind.BACKFILL, Span(0, head))
        await worker.generations.swap(build.dataset.name)

    async def _surely(self, worker: Worker, build: Generation, kind: Kind, span: Span) -> None:
        """A run that nothing stands in the way of."""
        seen = await self._open(worker, build)
        lease = await worker.claim(build, span, kind=kind, config_hash=build.config_hash)
        assert lease is not None, f"{build.table} {kind} {span}"
        inputs = await self.inputs(worker, build.dataset)
        run = await worker.compute(
            build,
            lease,
            inputs.chain[span.first : span.last + 1],
            parent=inputs.chain[span.first - 1] if span.first else None,
            contents=inputs.contents,
            earlier=inputs.chain[: span.first],
            seen=seen,
            partitions=self._parts(build.dataset, inputs.chain, span),
            as_read=inputs.as_read,
            config_hash=build.config_hash,
        )
        outcome = await self.commit_run(worker, run)
        assert isinstance(outcome, Committed), outcome
