"""Owns the filtered way of fetching: headers of every block, and the logs that pass a filter.

Near the head logs are asked for by block hash, so they are of that very block or there are none.
Deep below the head one request covers many blocks. Such an answer says less than it seems: a node
that lags cuts the range without a word, and a block without logs leaves no trace of which fork was
read. So a range is believed only when it is *sealed*: the same request asks for the last block of
the range before and after the logs, both times it must be the block whose header we hold, and our
headers must link down from it through the whole range. A node that has that block has all blocks
below it, and they are the ones we hold.

Even so, the answers of one request may come from several machines behind one address, and one that
lags gives no logs where the others vouch for the block. So a block that the range shows without
logs, while its header does not rule them out, is asked for again by its hash, where a node that
does not know the block says so.

Invariants: a piece whose headers do not link, or whose seals do not fit, is thrown away whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from unfork.chain import span as spans
from unfork.chain.block import BlockRef, Head
from unfork.chain.span import Span
from unfork.datasets.scope import Scope
from unfork.errors import MethodMissing, RangeTooLarge, Unbelievable
from unfork.proof import receipt
from unfork.sources import ahead, answers, checks
from unfork.sources.decode import Whole
from unfork.sources.endpoint import Endpoint
from unfork.sources.fetching import (
    Look,
    absent,
    at_least,
    decoded,
    head_calls,
    outline_call,
    read_head,
    ref_call,
)
from unfork.sources.piece import Piece, join
from unfork.sources.rpc import Call, Rpc
from unfork.sources.waiting import gather

#: Providers that cut an answer without a word cut it at a round number of logs.
ROUND_LOGS = 1000

_Logs = dict[int, list[answers.Log]]


class FilteredLogs:
    """Headers, and logs by hash near the head and by range below it."""

    def __init__(self, rpc: Rpc, scope: Scope, *, depth: int, rows_max: int) -> None:
        assert scope.kind == "logs"
        self._rpc = rpc
        self._scope = scope
        self._filter = _filter(scope)
        #: Blocks below the head that are never asked for by range.
        self._depth = depth
        #: Logs of one range above which the next ranges are made smaller.
        self._rows_max = rows_max

    async def look(self, number: int, *, is_expected: bool) -> Look:
        return await self._rpc.settle(lambda endpoint: self._look(endpoint, number))

    async def fetch(self, span: Span, head: Head) -> Piece:
        """A piece is asked for again as a whole where its parts turn out to be of two forks."""
        for attempt in range(self._rpc.settings.attempts_max):
            try:
                return await self._fetch(span, head)
            except Unbelievable as error:
                failure = error
            await self._rpc.clock.sleep(self._rpc.backoff_s(attempt))
        raise failure

    def piece_max(self) -> int:
        return self._rpc.endpoints[0].abilities.log_range.size

    def ahead_max(self) -> int:
        # Headers are small, and a range that is cut short by the count of blocks ahead would make
        # the size of ranges meaningless: several ranges may be under way.
        return max(self._rpc.settings.prefetch_blocks, ahead.PIECES * self.piece_max())

    async def _look(self, endpoint: Endpoint, number: int) -> Look:
        calls = [outline_call(number), *head_calls(endpoint)]
        got = await self._rpc.exchange(endpoint, calls)
        head = read_head(endpoint, got[1:])
        block = got[0].read(answers.OUTLINE)
        if block is None:
            return Look(head=head, piece=None)
        with got[0].doubted():
            checks.placed(block, number)
        piece = self._piece([block], await self._by_hash(endpoint, [block]))
        return Look(head=at_least(head, piece.last), piece=piece)

    async def _fetch(self, span: Span, head: Head) -> Piece:
        logs: _Logs = {}
        seals: list[BlockRef] = []
        deep = span_below(span, head.latest.number - self._depth)
        first = span.first
        while deep is not None and first <= deep.last:
            left = Span(first, deep.last)
            covered, found, seal = await self._rpc.settle(partial(self._range, span=left))
            logs.update(found)
            seals.append(seal)
            first = covered.last + 1
        parts = list(spans.split(span, self._rpc.settings.batch_size))
        known = first - 1
        pieces = await gather(*(self._part(part, logs, known) for part in parts))
        for below, above in pairwise(pieces):
            if above.parent != below.last:
                raise _torn(above.refs[0])
        held = {ref.number: ref for piece in pieces for ref in piece.refs}
        for seal in seals:
            if held[seal.number] != seal:
                raise _torn(seal)
        return join(pieces)

    async def _part(self, part: Span, logs: _Logs, known: int) -> Piece:
        """Some headers with their logs; those above `known` have no logs yet."""
        return await self._rpc.settle(lambda e: self._outlined(e, part, logs, known))

    async def _outlined(self, endpoint: Endpoint, part: Span, logs: _Logs, known: int) -> Piece:
        calls = [outline_call(number) for number in range(part.first, part.last + 1)]
        blocks: list[answers.Outline] = []
        for number, answer in enumerate(await self._rpc.exchange(endpoint, calls), part.first):
            block = answer.read(answers.OUTLINE)
            if block is None:
                raise absent(endpoint, number)
            blocks.append(block)
            with answer.doubted():
                checks.placed(block, number)
                checks.linked(blocks[-2:])
        found = {block.hash: logs.get(checks.number_of(block), []) for block in blocks}
        open_ = [
            block
            for number, block in enumerate(blocks, part.first)
            if number > known or (not found[block.hash] and self._may_hold(block))
        ]
        asked = await self._by_hash(endpoint, open_)
        found.update(zip((block.hash for block in open_), asked, strict=True))
        return self._piece(blocks, [found[block.hash] for block in blocks])

    def _may_hold(self, block: answers.Outline) -> bool:
        """Whether a block may have logs that pass the filter, by all that its header says.

        An empty bloom over transactions rules nothing out: there are chains that never fill it.
        """
        if block.transactions is not None and not block.transactions:
            return False
        bloom = checks.bloom_of(block)
        if bloom is None or not any(bloom):
            return True
        wanted = [self._scope.addresses, *self._scope.topics]
        return all(not values or receipt.may_hold(bloom, values) for values in wanted)

    def _piece(self, blocks: Sequence[answers.Outline], logs: Sequence[list[answers.Log]]) -> Piece:
        wholes = [
            Whole(block=block, logs=checks.logs(block, block.transactions, own))
            for block, own in zip(blocks, logs, strict=True)
        ]
        return decoded(wholes, self._scope, self._rpc.settings.checks)

    async def _by_hash(
        self, endpoint: Endpoint, blocks: Sequence[answers.Outline]
    ) -> list[list[answers.Log]]:
        """The logs of each block by its hash; by sealed ranges of one where a node lacks that."""
        if not blocks:
            return []
        if endpoint.abilities.logs_by_hash:
            try:
                return await self._asked_by_hash(endpoint, blocks)
            except MethodMissing:
                endpoint.abilities.logs_by_hash = False
        found: list[list[answers.Log]] = []
        for block in blocks:
            number = checks.number_of(block)
            _, logs, seal = await self._range(endpoint, Span(number, number))
            if seal.hash != checks.hash_of(block):
                raise _torn(seal)
            found.append(logs.get(number, []))
        return found

    async def _asked_by_hash(
        self, endpoint: Endpoint, blocks: Sequence[answers.Outline]
    ) -> list[list[answers.Log]]:
        filters = [{**self._filter, "blockHash": block.hash} for block in blocks]
        calls = [Call("eth_getLogs", (wanted,), answers.LOGS) for wanted in filters]
        found: list[list[answers.Log]] = []
        for block, answer in zip(blocks, await self._rpc.exchange(endpoint, calls), strict=True):
            logs = answer.read(answers.LOGS)
            if logs is None:
                raise absent(endpoint, checks.number_of(block))
            self._only_wanted(block, logs)
            found.append(logs)
        return found

    async def _range(self, endpoint: Endpoint, span: Span) -> tuple[Span, _Logs, BlockRef]:
        """The logs of as much of a span as the endpoint takes at once, with their seal."""
        reach = endpoint.abilities.log_range
        while True:  # Ends: each turn halves the reach, and a single block cannot be halved.
            part = Span(span.first, min(span.first + reach.size - 1, span.last))
            try:
                found, seal = await self._sealed(endpoint, part)
            except RangeTooLarge:
                if not reach.refused(len(part)):
                    raise
                continue
            if sum(map(len, found.values())) > self._rows_max:
                reach.refused(len(part))  # By ourselves: a commit would not hold much more.
            else:
                reach.succeeded(len(part))
            return part, found, seal

    async def _sealed(self, endpoint: Endpoint, part: Span) -> tuple[_Logs, BlockRef]:
        seal = ref_call(part.last)
        bounds = {"fromBlock": hex(part.first), "toBlock": hex(part.last)}
        calls = [seal, Call("eth_getLogs", ({**self._filter, **bounds},), answers.LOGS), seal]
        if endpoint.abilities.batch.size >= len(calls):
            got = await self._rpc.exchange(endpoint, calls)
        else:
            got = [(await self._rpc.exchange(endpoint, [call]))[0] for call in calls]
        before, after = got[0].read(answers.REF), got[2].read(answers.REF)
        logs = got[1].read(answers.LOGS)
        if before is None or after is None or logs is None:
            raise absent(endpoint, part.last)
        checks.placed(before, part.last)
        if before.hash != after.hash:
            raise _torn(BlockRef(part.last, checks.hash_of(before)))
        if len(part) > 1 and len(logs) >= ROUND_LOGS and len(logs) % ROUND_LOGS == 0:
            raise RangeTooLarge(f"{endpoint.name} gave exactly {len(logs)} logs: probably cut")
        with got[1].doubted():
            self._only_wanted(before, logs)
            return _by_number(part, before, logs), BlockRef(part.last, checks.hash_of(before))

    def _only_wanted(self, block: answers.Ref, logs: Sequence[answers.Log]) -> None:
        """A node that ignores the filter would store what the recorded scope does not say."""
        addresses = set(self._filter.get("address", ()))
        for log in logs:
            is_wanted = not addresses or log.address.lower() in addresses
            for place, values in enumerate(self._filter.get("topics", ())):
                if values is not None:
                    topic = log.topics[place].lower() if place < len(log.topics) else None
                    is_wanted = is_wanted and topic in values
            if not is_wanted:
                raise Unbelievable(
                    f"block {log.block_number}: a log that the filter does not ask for",
                    block_number=checks.quantity(log.block_number, block, "blockNumber"),
                    block_hash=log.block_hash,
                )


def span_below(span: Span, last: int) -> Span | None:
    """The part of a span at or below a number."""
    return Span(span.first, min(span.last, last)) if span.first <= last else None


def _by_number(part: Span, block: answers.Ref, logs: Sequence[answers.Log]) -> _Logs:
    found: _Logs = {}
    for log in logs:
        number = checks.quantity(log.block_number, block, "blockNumber")
        if number not in part:
            raise Unbelievable(
                f"blocks {part} were asked for logs, one of block {number} came",
                block_number=number,
                block_hash=log.block_hash,
            )
        found.setdefault(number, []).append(log)
    return found


def _filter(scope: Scope) -> dict[str, Any]:
    """The scope as eth_getLogs takes it."""
    wanted: dict[str, Any] = {}
    if scope.addresses:
        wanted["address"] = ["0x" + address.hex() for address in scope.addresses]
    topics = [
        None if values is None else ["0x" + value.hex() for value in values]
        for values in scope.topics
    ]
    while topics and topics[-1] is None:
        topics.pop()  # To a node it would mean that there must be a topic at that position.
    if topics:
        wanted["topics"] = topics
    return wanted


def _torn(ref: BlockRef) -> Unbelievable:
    return Unbelievable(
        f"block {ref.number} (0x{ref.hash.hex()}) does not fit the blocks around it",
        block_number=ref.number,
        block_hash="0x" + ref.hash.hex(),
    )
