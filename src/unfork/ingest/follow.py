"""Owns the follower of a raw chain: it takes what the source hands on and makes it durable.

One `step` looks at what the source says next, decides (purely, in `chain.fork`), acts on the store
and reports what it did; `run` repeats it and outlives whatever can be outlived. Everything it knows
about the chain it reads from the store, so a process that dies here and starts again goes on at the
exact block.

Durability class: transactional. Invariants: nothing is unwound before a shared block is known; what
cannot be resolved stops with the data untouched (I9); it never waits for anything but its source
and its own store (I7).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, assert_never

from unfork import errors, telemetry
from unfork.chain import fork
from unfork.chain.block import BlockRef, Head
from unfork.chain.span import Span
from unfork.clock import Clock
from unfork.datasets.batch import Batch
from unfork.ingest.outage import Backoff

log = telemetry.logger(__name__)

#: Rounds in which a conflict or a fork too deep must be seen again before it halts ingestion: one
#: replica's wrong answer is no reason to call an operator.
HALT_ROUNDS = 3

#: Seconds that writing down an error may take; the app database must not hold ingestion up.
BOOK_TIMEOUT_S = 2.0


class State(Protocol):
    """What a store knows of its chain."""

    @property
    def position(self) -> BlockRef | None: ...
    @property
    def first(self) -> int | None: ...
    @property
    def floor(self) -> BlockRef | None: ...
    @property
    def head(self) -> BlockRef | None: ...


class Store(Protocol):
    """The verbs of a transactional follower that this one drives."""

    async def open(self) -> State: ...
    async def claim(self, *, chain_id: int, start: int) -> State: ...
    async def refs(self, span: Span) -> list[BlockRef]: ...
    async def commit(self, batch: Batch) -> State: ...
    async def unwind(self, to: BlockRef | None, *, tip: BlockRef | None = None) -> State: ...
    async def note(self, head: BlockRef) -> None: ...
    async def close(self) -> None: ...


class Source(Protocol):
    """The part of a source's contract that following needs."""

    @property
    def seen(self) -> Head | None: ...
    async def chain_id(self) -> int: ...
    def stream(
        self, after: BlockRef | None, *, recent: Sequence[BlockRef], start: int
    ) -> AsyncIterator[Batch | fork.Fork]: ...


class ErrorBook(Protocol):
    """Where an answer that could not be believed is written down."""

    async def record(
        self,
        *,
        worker_name: str,
        block_number: int | None,
        transaction_id: bytes | None,
        severity: Literal["FATAL", "WARN"],
        message: str,
        raw_data: bytes | None,
    ) -> None: ...
    async def resolve(self, *, worker_name: str, span: Span) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A batch became durable."""

    span: Span
    rows: int
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Unwound:
    """Blocks above an ancestor were undone."""

    #: The ancestor, None where everything held was orphaned.
    to: BlockRef | None
    depth: int
    state: State


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Nothing was changed; the source is asked again after a lower ref."""

    after: BlockRef


Event = Committed | Unwound | Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits of one chain's follower."""

    #: Named in indexing_errors.
    worker_name: str
    #: The first block to hold.
    start: int
    #: The deepest fork followed, MAX_REORG_DEPTH.
    depth_max: int
    #: Pause before a lagging source is asked again, in seconds.
    pause_s: float
    #: The last block to hold; None for no end.
    last: int | None = None
    #: Longest pause between two tries of a source or a database that is away, in seconds.
    backoff_s_max: float = 10.0
    #: Seconds a commit under way may take to end when the follower is told to stop.
    stop_grace_s: float = 10.0


@dataclass(slots=True)
class Follower:
    """One chain, from one source into one store."""

    store: Store
    source: Source
    book: ErrorBook
    policy: Policy
    clock: Clock = field(default_factory=Clock)
    #: Told of every event, for progress; must not block.
    listener: Callable[[Event], None] = lambda event: None
    _state: State | None = None
    _stream: AsyncIterator[Batch | fork.Fork] | None = None
    _search: fork.Search | None = None
    _asked: BlockRef | None = None
    _halts: int = 0
    #: Whether the source or the database is away and is being asked again.
    is_waiting: bool = False
    #: The highest block with an error written down and not settled yet; None when all are settled.
    _unsettled: int | None = 0
    _settling: asyncio.Task[None] | None = None
    _writing: bool = False

    @property
    def state(self) -> State:
        """What the store said last."""
        assert self._state is not None, "start() comes first"
        return self._state

    @property
    def is_behind(self) -> bool:
        """Whether there are blocks that the store does not hold yet, or nobody has looked."""
        seen = self.source.seen
        if self._state is None or self._state.position is None or seen is None:
            return True
        return self._state.position.number < seen.latest.number

    async def start(self) -> None:
        """Opens the store and checks that it holds the chain that the source serves."""
        await self.store.open()
        chain_id = await self.source.chain_id()
        self._state = await self.store.claim(chain_id=chain_id, start=self.policy.start)
        await self._forget()

    async def step(self) -> Event:
        """Takes the source's next word and acts on it; safe to repeat after any error."""
        try:
            if self._stream is None:
                self._stream = await self._open_stream()
            said = await anext(self._stream)
            event = await (self._take(said) if isinstance(said, Batch) else self._resolve(said))
        except StopAsyncIteration:
            await self._close_stream()
            raise errors.SourceUnavailable("the source ended its stream") from None
        except BaseException:
            await self._close_stream()
            raise
        self.listener(event)
        return event

    async def close(self) -> None:
        """Gives up the stream and the store; safe to repeat."""
        await self._close_stream()
        if self._settling is not None:
            await asyncio.wait({self._settling})
        await self.store.close()

    async def run(self, until: Callable[[State], bool], stopping: asyncio.Event) -> None:
        """Steps until `until` holds or `stopping` is set; waits out what passes by itself.

        An endpoint or database that is away, hangs or refuses is asked again for ever, with
        backoff. What a person must look at (Misconfigured, Inconsistent) is raised.
        """
        backoff = Backoff(limit_s=self.policy.backoff_s_max)
        started = False
        while not stopping.is_set():
            work = asyncio.create_task(self.step() if started else self.start())
            try:
                if not await self._finished(work, stopping):
                    return
                started = True
                self.is_waiting = False
                backoff.reset()
                if until(self.state):
                    return
            except errors.DatabaseUnavailable as error:
                started = False
                await self._pause(backoff, error, stopping)
            except errors.ParentMismatch as error:
                # The answer to a commit was lost, or another hand moved the position: look again.
                started = False
                await self._pause(backoff, error, stopping)
                if backoff.tries > HALT_ROUNDS:
                    raise
            except errors.RowRefused as error:
                await self._note(error, "FATAL")
                raise
            except errors.Retryable as error:
                if isinstance(error, errors.Unbelievable):
                    await self._note(error, "WARN")
                await self._pause(backoff, error, stopping)

    # What a step is made of.

    async def _take(self, batch: Batch) -> Event:
        """Commits a batch; one that continues a lower block we asked about is an acceptance."""
        if self._search is not None:
            assert self._asked is not None and batch.parent == self._asked
            history = await self._history(self._asked.number)
            outcome = self._search.accepted(history, self._asked)
            if not isinstance(outcome, fork.Ancestor) or outcome.ref != batch.parent:
                return await self._act(outcome, tip=batch.last)
            unwound = await self._unwind(outcome.ref, tip=batch.last)
            self._search, self._asked = None, None
            self.listener(unwound)
        self._halts = 0
        if self.policy.last is not None and batch.span.first <= self.policy.last:
            batch = batch.until(self.policy.last)
        self._writing = True
        try:
            self._state = await self.store.commit(batch)
        finally:
            self._writing = False
        self._settle(batch.span.last)
        return Committed(span=batch.span, rows=batch.rows, state=self._state)

    async def _resolve(self, event: fork.Fork) -> Event:
        """Decides what a fork means, from our own blocks as deep as the round needs them."""
        position = self.state.position
        await self._close_stream()
        if position is None:
            raise errors.Unbelievable("the source reports a fork although nothing is held")
        if self._search is None:
            self._search = fork.Search(
                position=position, floor=self.state.floor, depth_max=self.policy.depth_max
            )
        lowest = min([event.refuted.number, *(ref.number for ref in event.sample)])
        outcome = self._search.declined(await self._history(lowest), event)
        tip = max(event.sample, default=None)
        return await self._act(outcome, tip=tip)

    async def _act(self, outcome: fork.Outcome, *, tip: BlockRef | None) -> Event:
        """Does what an outcome asks for."""
        match outcome:
            case fork.Ancestor(ref):
                unwound = await self._unwind(ref, tip=tip)
                await self._forget()
                return unwound
            case fork.Restart():
                unwound = await self._unwind(None, tip=tip)
                await self._forget()
                return unwound
            case fork.NeedsOlder(ref):
                return await self._ask(ref)
            case fork.AtFloor(floor):
                await self.clock.sleep(self.policy.pause_s)
                return await self._ask(floor)
            case fork.Conflict(ours, theirs):
                return await self._halt(
                    errors.ForkConflict(
                        f"the source has {theirs} where we hold {ours} as final; nothing was "
                        f"changed. Check the source, or unwind by hand: unfork unwind --to "
                        f"{max(ours.number - 1, 0)}",
                        ours=str(ours),
                        theirs=str(theirs),
                    )
                )
            case fork.TooDeep(depth, depth_max):
                return await self._halt(
                    errors.ForkTooDeep(
                        f"the fork is at least {depth} blocks deep, MAX_REORG_DEPTH is {depth_max}"
                        f"; nothing was changed. Check the source, raise reorg_depth_max, or unwind"
                        f" by hand: unfork unwind --to N",
                        depth=depth,
                        depth_max=depth_max,
                    )
                )
            case _:
                assert_never(outcome)

    async def _unwind(self, ref: BlockRef | None, *, tip: BlockRef | None) -> Unwound:
        position, first = self.state.position, self.state.first
        assert position is not None and first is not None
        self._writing = True
        try:
            self._state = await self.store.unwind(ref, tip=tip)
        finally:
            self._writing = False
        depth = position.number - (first - 1 if ref is None else ref.number)
        telemetry.event(log, "unwound", to=ref or "nothing", depth=depth, tip=tip or "unknown")
        return Unwound(to=ref, depth=depth, state=self._state)

    async def _ask(self, ref: BlockRef) -> Asked:
        self._asked = ref
        await self._close_stream()
        return Asked(after=ref)

    async def _halt(self, error: errors.Inconsistent) -> Asked:
        """Raises once the same verdict came often enough; before that, asks all over again."""
        self._halts += 1
        if self._halts >= HALT_ROUNDS:
            raise error
        await self.clock.sleep(self.policy.pause_s)
        position = self.state.position
        assert position is not None
        await self._forget()
        return Asked(after=position)

    # What it stands on.

    async def _open_stream(self) -> AsyncIterator[Batch | fork.Fork]:
        after = self._asked or self.state.position
        recent: list[BlockRef] = []
        if after is not None:
            floor, first = self.state.floor, self.state.first
            lowest = max(
                floor.number if floor else (first or 0), after.number - self.policy.depth_max, 0
            )
            recent = await self.store.refs(Span(min(lowest, after.number), after.number))
        first_number = self.state.first if self.state.first is not None else self.policy.start
        return self.source.stream(after, recent=recent, start=first_number)

    async def _history(self, lowest: int) -> list[BlockRef]:
        """Our refs from the position down to where the search may step next, and our first one."""
        position, first = self.state.position, self.state.first
        assert position is not None and first is not None
        bottom = max(first, lowest - 2 * (position.number - lowest + 1))
        refs = await self.store.refs(Span(min(bottom, position.number), position.number))
        return refs if bottom == first else [*await self.store.refs(Span(first, first)), *refs]

    async def _forget(self) -> None:
        """Drops what was learnt about a fork: the next look starts at the position."""
        self._search, self._asked = None, None
        await self._close_stream()

    async def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()

    # What goes on around it.

    async def _finished(self, work: asyncio.Task[object], stopping: asyncio.Event) -> bool:
        """Awaits the work; False where the follower was told to stop first."""
        told = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({work, told}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and self._writing:
                await asyncio.wait({work}, timeout=self.policy.stop_grace_s)
            if work.done():
                work.result()
                return True
            return False
        finally:
            for task in (work, told):
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await told
            with contextlib.suppress(asyncio.CancelledError, errors.UnforkError):
                await work

    async def _pause(
        self, backoff: Backoff, error: errors.UnforkError, stopping: asyncio.Event
    ) -> None:
        self.is_waiting = True
        seen = self.source.seen
        if seen is not None and not isinstance(error, errors.DatabaseUnavailable):
            # Nothing is committed meanwhile: whoever watches must see how far the head has gone.
            await self._quietly(self.store.note(seen.latest))
        delay_s = backoff.next()
        level = logging.WARNING if backoff.worth_telling() else logging.DEBUG
        telemetry.event(
            log, "waiting", level=level, code=error.code, reason=error.message, delay_s=delay_s
        )
        sleep = asyncio.create_task(self.clock.sleep(delay_s))
        told = asyncio.create_task(stopping.wait())
        await asyncio.wait({sleep, told}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sleep, told):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _note(self, error: errors.UnforkError, severity: Literal["FATAL", "WARN"]) -> None:
        """Writes down an answer that could not be believed; never in the way of ingestion."""
        block_number = error.fields.get("block_number")
        self._unsettled = max(self._unsettled or 0, block_number or 0)
        await self._quietly(
            self.book.record(
                worker_name=self.policy.worker_name,
                block_number=block_number,
                transaction_id=error.fields.get("transaction_id"),
                severity=severity,
                message=error.message,
                raw_data=error.fields.get("raw"),
            )
        )

    def _settle(self, last: int) -> None:
        """Marks the errors of blocks that are now stored as resolved, beside ingestion (I7)."""
        if self._unsettled is not None and (self._settling is None or self._settling.done()):
            self._settling = asyncio.create_task(self._settled(last))

    async def _settled(self, last: int) -> None:
        done = self.book.resolve(worker_name=self.policy.worker_name, span=Span(0, last))
        if await self._quietly(done) and self._unsettled is not None and last >= self._unsettled:
            self._unsettled = None

    async def _quietly(self, call: Awaitable[object]) -> bool:
        """Awaits a call that ingestion does not depend on; False where it failed."""
        try:
            async with asyncio.timeout(BOOK_TIMEOUT_S):
                await call
        except (errors.UnforkError, TimeoutError) as error:
            telemetry.event(log, "errors_unreachable", level=logging.WARNING, reason=str(error))
            return False
        return True
