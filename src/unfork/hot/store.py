"""Owns the hot store of one chain: a follower whose commits and unwinds are single transactions.

Durability class: transactional. Rows, lookups, position, floor and journal move together or not at
all, so `recover` at the start has nothing to remove.

Invariants:
- Nothing is committed without the right parent, nor with a stale token or epoch (I5).
- The floor never falls but by an operator's word, and nothing at or below it is unwound (I4).
- A commit that is run twice refuses the second time with ParentMismatch and changes nothing; an
  unwind that is run twice changes nothing the second time (I8).
- Every write goes over the one connection that holds the writer lock.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from unfork import errors, telemetry
from unfork.chain import finality
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.config import tree
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.datasets.batch import Batch
from unfork.hot import events, lookups, orphans, owner, rows, schema, state, writer
from unfork.hot.partitions import Partitions
from unfork.hot.payloads import PayloadStore, Stored
from unfork.hot.state import ChainState

log = telemetry.logger(__name__)

#: Rows above which a batch is encoded beside the event loop instead of on it.
ROWS_ON_LOOP = 500

#: Blocks that one transaction of an operator's unwind takes away at most.
STEP_BLOCKS = 1000

#: Blocks by which the floor rises between two prunings of orphaned rows.
PRUNE_EVERY = 1000


class HotStore:
    """The one writer of a chain's raw tables."""

    def __init__(
        self,
        chain: tree.Chain,
        database: Database,
        payloads: PayloadStore,
        *,
        inline_max_bytes: int = 8192,
        denormalize_events: bool = False,
        lock_timeout_ms: int = 500,
        lock_wait_s: float = 10.0,
        stream_keep_s: float = 604_800.0,
    ) -> None:
        self._chain = chain
        self._database = database
        self._payloads = payloads
        self._inline_max_bytes = inline_max_bytes
        self._denormalize_events = denormalize_events
        self._lock_wait_s = lock_wait_s
        self._stream_keep_s = stream_keep_s
        self._schema = schema.name(chain.name)
        self._queries = schema.bound(chain.name)
        self._datasets = schema.datasets(chain.family)
        self._policy = finality.Policy(
            depth_min=chain.finality_depth_min, depth_max=chain.reorg_depth_max
        )
        self._partitions = Partitions(
            schema=self._schema,
            datasets=self._datasets,
            sizes=chain.partition_sizes,
            queries=self._queries,
            lock_timeout_ms=lock_timeout_ms,
        )
        self._session: Session | None = None
        self._backend: writer.Backend | None = None
        self._token = 0
        self._pruning: asyncio.Task[None] | None = None
        self._prune_at = 0
        self._state: ChainState | None = None

    async def open(self) -> ChainState:
        """Connects, takes the writer lock and makes earlier writers stale; may be called again.

        Raises SchemaOutdated, WriterBusy, DatabaseUnavailable.
        """
        self._cut()
        session = self._session = await self._database.connect()
        try:
            await schema.migrations(self._chain.name).require(session)
            self._backend = await writer.take(
                session,
                self._queries,
                schema=self._schema,
                mine=self._backend,
                wait_s=self._lock_wait_s,
            )
            name, family = self._chain.name, self._chain.family
            await session.run(self._queries["chain_create"], name=name, family=family)
            row = await session.row(self._queries["chain_take"])
            assert row is not None
            self._token, self._state = row["token"], state.from_row(row)
            self._partitions.forget()
            await self._recover(session, self._state)
        except BaseException:
            self._cut()
            raise
        return self._state

    async def claim(self, *, chain_id: int, start: int) -> ChainState:
        """Records which chain this is and where it starts, or compares with what is recorded."""
        session, known = self._opened()
        async with self._cut_when_away():
            await owner.take(session, self._queries, self._payloads)
        if known.chain_id is not None and known.chain_id != chain_id:
            raise errors.WrongChain(
                f"{self._schema} holds chain {known.chain_id}, the source serves {chain_id}; "
                "give each chain a name of its own"
            )
        if known.first is not None and known.first != start:
            raise errors.StartMismatch(
                f"{self._schema} starts at block {known.first}, not at {start}; "
                "keep the start or use `unfork reset`"
            )
        if known.chain_id is None or known.first is None:
            async with self._writing():
                query = self._queries["chain_claim"]
                row = await session.row(query, chain_id=chain_id, first=start)
            assert row is not None
            known = self._state = state.from_row(row)
        return known

    async def state(self) -> ChainState:
        """The chain row as it is now."""
        session, _ = self._opened()
        async with self._cut_when_away():
            row = await session.row(self._queries["chain_read"])
        assert row is not None
        self._state = state.from_row(row)
        return self._state

    async def refs(self, span: Span) -> list[BlockRef]:
        """The blocks held in the span, ascending."""
        session, _ = self._opened()
        async with self._cut_when_away():
            found = await session.rows(
                self._queries["refs_in_span"], first=span.first, last=span.last
            )
        return [BlockRef(row["number"], row["hash"]) for row in found]

    async def commit(self, batch: Batch) -> ChainState:
        """Moves forward by a batch that continues the position, in one transaction.

        Raises ParentMismatch where it does not (nothing is written), WriterReplaced, RowRefused,
        PartitionBusy, DatabaseUnavailable. After DatabaseUnavailable the batch may or may not be
        in: `open` says.
        """
        session, known = self._opened()
        rows.check(batch, self._datasets)
        async with self._cut_when_away():
            await self._partitions.ensure(session, batch.span, batch.scope.datasets)
        copies, stored = await self._prepared(batch, known.seq + 1)
        async with self._writing() as held:
            self._require_parent(held, batch)
            await self._require_payloads(stored)
            for copy in copies:
                query = self._queries.of(
                    "commit_rows", copy.table, table=copy.table, columns=copy.columns
                )
                await session.copy(query, copy.data)
            moved = await self._advance(session, held, batch, stored)
        self._state = moved
        self._prune_in_time(moved)
        return moved

    async def unwind(
        self, to: BlockRef | None, *, tip: BlockRef | None = None, operator: bool = False
    ) -> ChainState:
        """Goes back to a ref we hold, in one transaction; None removes everything.

        `tip` is the other side's, for the journal. Raises ParentMismatch where we do not hold
        `to`, ForkConflict where it lies below the floor; an operator may go there, which starts a
        new epoch. An operator's unwind may be long: it goes down in steps of `STEP_BLOCKS`, each a
        transaction and a journal entry of its own. Safe to repeat.
        """
        session, _ = self._opened()
        while True:  # Ends: each turn takes blocks away, or there are none above.
            async with self._writing() as held:
                moved = await self._retreat(session, held, to, tip, operator)
            self._state = moved
            if moved.position == to:
                return moved

    async def note(self, head: BlockRef) -> None:
        """Writes down the source's tip while no commit does, over a connection of its own."""
        async with self._database.session() as session:
            query = self._queries["chain_head"]
            await session.run(query, number=head.number, hash=head.hash, token=self._token)

    async def prune(self) -> int:
        """Removes orphaned rows older than `orphan_keep_blocks` below the floor.

        Runs over a connection of its own, in bounded steps. A commit starts it by itself every
        `PRUNE_EVERY` blocks and does not wait for it.
        """
        _, known = self._opened()
        below = known.floor.number - self._chain.orphan_keep_blocks if known.floor else 0
        if below <= 0:
            return 0
        return await orphans.prune(
            self._database,
            self._queries,
            self._datasets,
            below=below,
            stream_keep_s=self._stream_keep_s,
        )

    async def close(self) -> None:
        """Gives up the lock and the connection; safe to repeat."""
        self._cut()
        pruning, self._pruning = self._pruning, None
        if pruning is not None:
            pruning.cancel()
            await asyncio.wait({pruning})

    async def _recover(self, session: Session, known: ChainState) -> None:
        """Checks that nothing lies beyond the position, as transactions promise."""
        beyond = await session.row(
            self._queries["chain_beyond"],
            position=known.position.number if known.position else -1,
            hash=known.position.hash if known.position else b"",
        )
        if beyond is not None:
            raise errors.Inconsistent(
                f"{self._schema}.blocks holds block {beyond['number']}, which the position "
                f"{known.position} does not include; was a table changed by hand?"
            )

    def _prune_in_time(self, known: ChainState) -> None:
        """Starts a pruning beside the commits, when enough has become old since the last."""
        floor = known.floor.number if known.floor else 0
        is_due = floor - self._chain.orphan_keep_blocks > 0 and floor >= self._prune_at
        if is_due and (self._pruning is None or self._pruning.done()):
            self._prune_at = floor + PRUNE_EVERY
            self._pruning = asyncio.create_task(self._prune_quietly())

    async def _prune_quietly(self) -> None:
        try:
            removed = await self.prune()
        except errors.UnforkError as error:
            # Nothing depends on it: the next one comes by itself.
            telemetry.event(log, "prune_failed", chain=self._chain.name, error=str(error))
        else:
            telemetry.event(log, "orphans_pruned", chain=self._chain.name, rows=removed)

    def _opened(self) -> tuple[Session, ChainState]:
        """The connection and what we know; after an outage the store must be opened again."""
        if self._session is None or self._state is None:
            raise errors.DatabaseUnavailable(f"the hot store of {self._chain.name} is not open")
        return self._session, self._state

    def _cut(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.cut()

    @asynccontextmanager
    async def _cut_when_away(self) -> AsyncIterator[None]:
        """After an outage, a lost lock or a crash the connection is given up."""
        try:
            yield
        except errors.UnforkError as error:
            if isinstance(error, errors.DatabaseUnavailable | errors.WriterReplaced):
                self._cut()
            raise
        except BaseException:
            self._cut()
            raise

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[ChainState]:
        """A transaction that holds the chain row, with our right to write checked under it."""
        session, known = self._opened()
        locked = session.transaction(self._queries["chain_lock"])
        async with self._cut_when_away(), locked as row:
            assert row is not None
            held = state.from_row(row)
            if row["token"] != self._token or held.epoch != known.epoch or held.seq != known.seq:
                raise errors.WriterReplaced(
                    f"another writer or an operator took {self._schema} over "
                    f"(token {row['token']}, ours is {self._token})"
                )
            yield held

    async def _prepared(self, batch: Batch, seq: int) -> tuple[list[rows.Copy], list[Stored]]:
        """The batch as COPY data, with its large values stored."""
        tables = {}
        stored: list[Stored] = []
        for dataset in self._datasets:
            table = batch.tables.get(dataset.name)
            if table is not None and table.num_rows:
                tables[dataset.name], moved = await rows.offload(
                    table, dataset, self._payloads, self._inline_max_bytes
                )
                stored += moved
        if self._denormalize_events and "transactions" in tables and "logs" in tables:
            summaries = events.summaries(tables["transactions"], tables["logs"])
            tables["transactions"] = tables["transactions"].append_column("events", summaries)
        if batch.rows <= ROWS_ON_LOOP:
            return rows.encode(tables, self._datasets, seq=seq), stored
        return await asyncio.to_thread(rows.encode, tables, self._datasets, seq=seq), stored

    def _require_parent(self, held: ChainState, batch: Batch) -> None:
        if held.position is not None:
            if batch.parent != held.position:
                raise errors.ParentMismatch(
                    f"blocks {batch.span} continue {batch.parent}, the position is {held.position}",
                    position=held.position,
                    parent=batch.parent,
                )
        elif batch.span.first != held.first:
            raise errors.ParentMismatch(
                f"blocks {batch.span} do not start at {held.first}, where this store begins",
                position=None,
                parent=batch.parent,
            )

    async def _require_payloads(self, stored: list[Stored]) -> None:
        """Makes sure that what we stored is still there, now that nobody can sweep it away."""
        lost = await self._payloads.missing(stored) if stored else []
        if lost:
            raise errors.Retryable(
                f"payload {lost[0].ref} was swept while it was being used again; it is stored anew"
            )

    async def _advance(
        self, session: Session, held: ChainState, batch: Batch, stored: list[Stored]
    ) -> ChainState:
        """Writes everything about a commit but its rows."""
        if stored:
            unique = {one.hash: one for one in stored}.values()
            await session.run(
                self._queries["commit_payloads"],
                hashes=[one.hash for one in unique],
                refs=[one.ref for one in unique],
                sizes=[one.size for one in unique],
            )
        finalized = finality.believed(batch.head)
        seen = [held.finalized_seen, finalized.number if finalized else None]
        assert held.first is not None
        floor = finality.floor_number(
            policy=self._policy,
            position=batch.last.number,
            head=batch.head.latest.number,
            finalized=finalized.number if finalized else None,
            is_held=finalized is not None and await self._is_held(session, batch, finalized),
            floor=held.floor.number if held.floor else None,
        )
        row = await session.row(
            self._queries["commit_chain"],
            seq=held.seq + 1,
            epoch=held.epoch,
            first=batch.span.first,
            last=batch.span.last,
            hash=batch.last.hash,
            parent_hash=batch.parent.hash if batch.parent else None,
            floor=floor if floor is not None and floor >= held.first else None,
            finalized_seen=max((n for n in seen if n is not None), default=None),
            head_number=batch.head.latest.number,
            head_hash=batch.head.latest.hash,
            scope_digest=batch.scope.digest(),
            scope=json.dumps(batch.scope.document()),
        )
        assert row is not None
        return state.from_row(row)

    async def _retreat(
        self,
        session: Session,
        held: ChainState,
        to: BlockRef | None,
        tip: BlockRef | None,
        operator: bool,
    ) -> ChainState:
        """Moves the rows above `to` away and writes everything else about an unwind."""
        if to == held.position:
            return held
        if held.position is None:
            raise errors.ParentMismatch(f"nothing is held, so {to} is not", position=None)
        if to is not None:
            await self._require_held(session, to)
        below = held.floor is not None and (to is None or to.number < held.floor.number)
        if below and not operator:
            raise errors.ForkConflict(
                f"an unwind to {to or 'nothing'} would remove block {held.floor}, which is final; "
                "an operator may do it with `unfork unwind`",
                floor=held.floor,
            )
        final, to = to, await self._step(session, held.position, to) if operator else to
        target = to.number if to else -1
        above = {"target": target, "position": held.position.number}
        await session.run(self._queries["unwind_plan"])
        for dataset in self._datasets:
            query = self._queries.of(
                "unwind_rows",
                dataset.name,
                table=dataset.name,
                orphaned=f"orphaned_{dataset.name}",
                number=dataset.number_column,
                columns=schema.columns(dataset),
            )
            await session.run(query, seq=held.seq + 1, **above)
        for lookup in lookups.LOOKUPS:
            query = self._queries.of("unwind_lookup", lookup.table, table=lookup.table)
            await session.run(query, **above)
        assert held.first is not None
        fork = {"old_tip": _document(held.position), "new_tip": _document(tip)}
        floor = final if below else held.floor
        row = await session.row(
            self._queries["unwind_chain"],
            seq=held.seq + 1,
            epoch=held.epoch + below,
            target=target,
            first=max(target + 1, held.first),
            last=held.position.number,
            ref_number=to.number if to else None,
            ref_hash=to.hash if to else None,
            fork=json.dumps(fork),
            floor_number=floor.number if floor else None,
            floor_hash=floor.hash if floor else None,
            # Whoever called a block final that an operator then removed is not believed again.
            finalized_seen=None if below else held.finalized_seen,
        )
        assert row is not None
        return state.from_row(row)

    async def _step(
        self, session: Session, position: BlockRef, to: BlockRef | None
    ) -> BlockRef | None:
        """The block that one transaction of an operator's long way down leads to."""
        number = position.number - STEP_BLOCKS
        row = None
        if number > (to.number if to else -1):
            row = await session.row(self._queries["ref_at"], number=number)
        return BlockRef(row["number"], row["hash"]) if row else to

    async def _is_held(self, session: Session, batch: Batch, ref: BlockRef) -> bool:
        """Whether a block is ours once the batch is in."""
        if ref.number >= batch.span.first:
            return ref in batch.refs
        row = await session.row(self._queries["ref_at"], number=ref.number)
        return row is not None and row["hash"] == ref.hash

    async def _require_held(self, session: Session, to: BlockRef) -> None:
        row = await session.row(self._queries["ref_at"], number=to.number)
        if row is None or row["hash"] != to.hash:
            ours = BlockRef(row["number"], row["hash"]) if row else None
            raise errors.ParentMismatch(
                f"{to} is not a block we hold (at that number: {ours}); nothing was unwound",
                ours=ours,
                wanted=to,
            )


def _document(ref: BlockRef | None) -> dict[str, object] | None:
    """A ref as JSON."""
    return None if ref is None else {"number": ref.number, "hash": "0x" + ref.hash.hex()}
