"""Owns the EVM source: a chain seen over JSON-RPC, followed block by block.

One look at the node asks for the next block, the tip and the final block together. At the head the
look itself brings the block; further behind, pieces are fetched side by side. Announcements only
say when to look; polling says it too, always, so a subscription that falls silent costs latency and
no block.

What ends a stream is a Fork: the next block does not continue the last one, or the node has
another block at a height we hold. A head that is merely lower is a lagging replica, and waited for.
Before a Fork is told, a sample of the node's chain is fetched that links in itself and contradicts
what we hold; a contradiction that does not show again was one replica's.

Invariants: batches link, to `after` and to each other; a block is whole or not handed on; when a
stream or fetch ends, nothing of it is left running.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from unfork import telemetry
from unfork.chain import fork
from unfork.chain.block import BlockRef, Head
from unfork.chain.fork import Fork
from unfork.chain.span import Span
from unfork.clock import Clock
from unfork.config.tree import Chain
from unfork.datasets.batch import Batch
from unfork.datasets.scope import Scope
from unfork.errors import ConfigInvalid, SourceUnavailable, Unbelievable
from unfork.sources import answers, checks, fetching, wire
from unfork.sources.ahead import Ahead, Pace
from unfork.sources.contracts import Contracts
from unfork.sources.endpoint import Endpoint
from unfork.sources.fetching import Fetcher, WholeBlocks
from unfork.sources.known import Known
from unfork.sources.logs import FilteredLogs
from unfork.sources.piece import Piece, join
from unfork.sources.rpc import Rpc
from unfork.sources.source import ContractCall, Returned
from unfork.sources.waiting import cancel, within
from unfork.sources.wire import Wire

#: Refs in the first sample of a fork; each further one in a row has twice as many.
SAMPLE_MIN = 8
SAMPLE_MAX = 64
#: Connections to announcements that fail before the first success end the attempts.
_ANNOUNCING_FAILURES_MAX = 3
#: Seconds between two connections to announcements, at least.
_RECONNECT_S_MIN = 0.5
#: How many times its tables a piece weighs while it is made: as text, then as parsed answers.
_WEIGHT_UNDER_WAY = 8

_log = telemetry.logger(__name__)


class EvmSource:
    """One EVM chain over one or several JSON-RPC endpoints."""

    def __init__(
        self,
        chain: Chain,
        *,
        clock: Clock,
        random: random.Random,
        wires: Sequence[Wire] | None = None,
    ) -> None:
        settings = chain.source
        if wires is None:
            wires = wire.connect(settings.urls, connections=settings.concurrency)
        if not wires:
            raise ConfigInvalid(f"chain {chain.name} has no source.urls: name an endpoint")
        self._chain = chain
        self._settings = settings
        self._clock = clock
        self._rpc = Rpc(wires, settings, clock=clock, random=random)
        self._contracts = Contracts(self._rpc)
        self.scope = scope_of(chain)
        self._forks_in_a_row = 0
        self._head: Head | None = None
        self._head_at = 0.0

    async def chain_id(self) -> int:
        """The number the chain calls itself; raises WrongChain where endpoints differ in it."""
        return await self._rpc.chain_id()

    @property
    def seen(self) -> Head | None:
        """The tip as it was last seen; None before the first look."""
        return self._head

    async def head(self) -> Head:
        """The tip as the first healthy endpoint sees it now."""
        return self._seen(await self._rpc.settle(self._ask_head))

    async def stream(
        self, after: BlockRef | None, *, recent: Sequence[BlockRef] = (), start: int = 0
    ) -> AsyncGenerator[Batch | Fork, None]:
        """Batches that continue `after`, for ever; a Fork ends the stream."""
        known = Known(recent, after, keep=self._chain.reorg_depth_max)
        fetcher = self._fetcher()
        bell = asyncio.Event()
        listening = [
            asyncio.ensure_future(self._listen(endpoint, bell)) for endpoint in self._rpc.endpoints
        ]
        misses = 0
        is_expected = False
        try:
            while True:
                bell.clear()
                number = start if known.last is None else known.last.number + 1
                look = await fetcher.look(number, is_expected=is_expected)
                self._seen(look.head)
                if known.is_contradicted(look):
                    sample = await self._sample(known, look.head)
                    if sample is not None:
                        self._forks_in_a_row += 1
                        assert known.last is not None
                        yield Fork(sample=sample, refuted=known.last)
                        return
                elif look.piece is not None:
                    misses = 0
                    for batch in self._batches([look.piece]):
                        known.add(batch.refs)
                        yield batch
                    async with aclosing(self._catch_up(known, fetcher)) as behind:
                        async for batch in behind:
                            yield batch
                    is_expected = not self._is_at_head(known) or await self._rung(bell)
                    continue
                elif look.head.latest.number >= number:
                    misses += 1
                    if misses >= self._settings.attempts_max:
                        raise SourceUnavailable(
                            f"the node's head is {look.head.latest.number}, but it does not give "
                            f"block {number}: it may have pruned it, or still be loading it",
                            block_number=number,
                        )
                is_expected = await self._rung(bell)
        finally:
            await cancel(*listening)

    async def fetch(self, span: Span) -> AsyncGenerator[Batch, None]:
        """The blocks of a span, ascending; meant for blocks that are final."""
        fetcher = self._fetcher()
        known = Known((), None, keep=1)
        tries = 0
        await self.head()
        while known.last is None or known.last.number < span.last:
            first = span.first if known.last is None else known.last.number + 1
            ahead = self._ahead(fetcher, first)
            try:
                ahead.extend(span.last)
                while (pieces := await self._linked(ahead, known)) is not None:
                    if not pieces:
                        tries += 1
                        break
                    tries = 0
                    for batch in self._batches(pieces):
                        known.add(batch.refs)
                        yield batch
            finally:
                await ahead.close()
            if tries >= self._settings.attempts_max:
                raise Unbelievable(
                    f"blocks {span} do not link at block {first}; fetch only final blocks",
                    block_number=first,
                )

    async def call(self, calls: Sequence[ContractCall]) -> list[Returned]:
        """What contracts answer, in the order of the calls, each in the state after its block."""
        return await self._contracts.call(calls)

    async def code(self, places: Sequence[tuple[BlockRef, bytes]]) -> list[bytes]:
        """The code at addresses, each in the state after a block; empty where there is none."""
        return await self._contracts.code(places)

    async def close(self) -> None:
        """Gives up connections; safe to repeat."""
        await self._rpc.close()

    # Catching up.

    async def _catch_up(self, known: Known, fetcher: Fetcher) -> AsyncGenerator[Batch, None]:
        """Batches up to the head; ends early where blocks do not link or are gone: look again."""
        assert known.last is not None and self._head is not None
        if self._is_at_head(known):
            return
        ahead = self._ahead(fetcher, known.last.number + 1)
        try:
            ahead.extend(self._head.latest.number)
            while True:
                try:
                    pieces = await self._linked(ahead, known)
                except SourceUnavailable as error:
                    if error.fields.get("is_absent"):
                        return
                    raise
                if not pieces:
                    return
                if self._clock.now() - self._head_at >= self._settings.poll_interval_ms / 1000:
                    ahead.extend((await self.head()).latest.number)
                for batch in self._batches(pieces):
                    known.add(batch.refs)
                    yield batch
        finally:
            await ahead.close()

    async def _linked(self, ahead: Ahead, known: Known) -> list[Piece] | None:
        """The next piece and those that are there already, as far as they link; None at the end."""
        pieces: list[Piece] = []
        last = known.last
        room = self._chain.batch_blocks_max
        while not pieces or (ahead.is_ready and room > 0):
            piece = await ahead.next()
            if piece is None:
                return pieces or None
            if last is not None and piece.parent != last:
                return pieces
            pieces.append(piece)
            last = piece.last
            room -= len(piece.refs)
        return pieces

    def _batches(self, pieces: Sequence[Piece]) -> list[Batch]:
        """The pieces as batches within the bounds of a commit."""
        chain = self._chain
        batches: list[Batch] = []
        held: list[Piece] = []
        left = list(reversed(pieces))
        while left:
            piece = left.pop()
            fitting = piece.fitting(
                blocks=chain.batch_blocks_max - sum(len(one.refs) for one in held),
                rows=chain.batch_rows_max - sum(one.rows for one in held),
                size=chain.batch_bytes_max - sum(one.bytes for one in held),
            )
            if not fitting and held:
                batches.append(self._batch(held))
                held = []
                left.append(piece)
                continue
            fitting = max(fitting, 1)  # A single block may exceed the bounds.
            if fitting < len(piece.refs):
                piece, rest = piece.cut(fitting)
                left.append(rest)
            held.append(piece)
        if held:
            batches.append(self._batch(held))
        self._forks_in_a_row = 0
        return batches

    def _batch(self, pieces: Sequence[Piece]) -> Batch:
        assert self._head is not None
        whole = join(pieces)
        return Batch(
            parent=whole.parent,
            refs=whole.refs,
            tables=whole.tables,
            head=fetching.at_least(self._head, whole.last),
            scope=self.scope,
        )

    def _fetcher(self) -> Fetcher:
        if self.scope.kind == "logs":
            return FilteredLogs(
                self._rpc,
                self.scope,
                depth=self._chain.finality_depth_min,
                rows_max=self._chain.batch_rows_max,
            )
        return WholeBlocks(self._rpc, self.scope)

    def _ahead(self, fetcher: Fetcher, first: int) -> Ahead:
        async def fetch(span: Span) -> Piece:
            assert self._head is not None
            return await fetcher.fetch(span, self._head)

        pace = Pace(
            blocks_ahead_max=fetcher.ahead_max,
            rows_max=self._chain.batch_rows_max,
            bytes_max=self._chain.batch_bytes_max // _WEIGHT_UNDER_WAY,
        )
        # Twice what can be asked at once: enough to keep every place for a request taken.
        pieces_max = 2 * self._settings.concurrency
        return Ahead(
            fetch, first=first, pace=pace, piece_max=fetcher.piece_max, pieces_max=pieces_max
        )

    # Forks.

    async def _sample(self, known: Known, head: Head) -> tuple[BlockRef, ...] | None:
        """The node's chain at and below our last block; None where it does not contradict us."""
        assert known.last is not None
        size = min(SAMPLE_MIN << min(self._forks_in_a_row, 8), SAMPLE_MAX)
        last = min(known.last.number, head.latest.number)
        span = Span(max(0, last - size + 1), last)
        try:
            sample = await self._rpc.settle(lambda endpoint: self._ask_refs(endpoint, span))
        except SourceUnavailable as error:
            if error.fields.get("is_absent"):
                return None
            raise
        if fork.contradicts(known.refs(), sample):
            return sample
        telemetry.event(_log, "source.fork_unconfirmed", level=logging.DEBUG, at=known.last)
        return None

    async def _ask_refs(self, endpoint: Endpoint, span: Span) -> tuple[BlockRef, ...]:
        calls = [fetching.ref_call(n) for n in range(span.first, span.last + 1)]
        blocks: list[answers.Ref] = []
        for number, answer in enumerate(await self._rpc.exchange(endpoint, calls), span.first):
            block = answer.read(answers.REF)
            if block is None:
                raise fetching.absent(endpoint, number)
            with answer.doubted():
                checks.placed(block, number)
            blocks.append(block)
        # Blocks fetched while the node moved to another fork do not link: then they are no sample.
        checks.linked(blocks)
        return tuple(BlockRef(checks.number_of(b), checks.hash_of(b)) for b in blocks)

    # The head.

    async def _ask_head(self, endpoint: Endpoint) -> Head:
        got = await self._rpc.exchange(endpoint, fetching.head_calls(endpoint))
        return fetching.read_head(endpoint, got)

    def _is_at_head(self, known: Known) -> bool:
        """Whether nothing above our last block was seen yet."""
        assert known.last is not None and self._head is not None
        return self._head.latest.number <= known.last.number

    def _seen(self, head: Head) -> Head:
        self._head, self._head_at = head, self._clock.now()
        return head

    async def _rung(self, bell: asyncio.Event) -> bool:
        """Waits for an announcement or the next poll; whether it was announced."""
        if bell.is_set():
            return True
        pause_s = self._settings.poll_interval_ms / 1000
        return await within(self._clock, pause_s, bell.wait()) is not None

    async def _listen(self, endpoint: Endpoint, bell: asyncio.Event) -> None:
        """Rings the bell for every announcement of one endpoint, as long as the stream lives."""
        failures = 0
        has_worked = False
        while True:
            try:
                async with aclosing(wire.hints(endpoint.wire)) as hints:
                    async for _ in hints:
                        failures = 0
                        has_worked = True
                        bell.set()
            except SourceUnavailable as error:
                level = logging.INFO if has_worked else logging.DEBUG
                telemetry.event(
                    _log, "source.announcements_lost", level=level, reason=error.message
                )
            else:
                return
            failures += 1
            if not has_worked and failures >= _ANNOUNCING_FAILURES_MAX:
                return
            await self._clock.sleep(_RECONNECT_S_MIN + self._rpc.backoff_s(failures))


def scope_of(chain: Chain) -> Scope:
    """What the configuration asks for."""
    wanted = chain.scope
    if wanted.kind == "all":
        return Scope(kind="all", traces=chain.traces)
    topics = tuple(
        None
        if value is None
        else tuple(_bytes(one) for one in ((value,) if isinstance(value, str) else value))
        for value in wanted.topics
    )
    return Scope(kind="logs", addresses=tuple(map(_bytes, wanted.addresses)), topics=topics)


def _bytes(text: str) -> bytes:
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise ConfigInvalid(f"scope: {text!r} is not hex; write it as 0x…") from None
