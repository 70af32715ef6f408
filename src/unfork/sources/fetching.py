"""Owns the contract of what fetches pieces, and the whole-block way of fetching them.

A fetcher turns a span into a piece through one endpoint at a time: a piece that fails any check is
thrown away whole and asked for again, so nothing of one fork is ever kept beside another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from unfork.chain.block import BlockRef, Head
from unfork.chain.span import Span
from unfork.datasets.scope import Scope
from unfork.errors import MethodMissing, SourceUnavailable, Unbelievable
from unfork.proof import rows as proof_rows
from unfork.proof.columns import RECKONED
from unfork.proof.finding import Outcome as Verdict
from unfork.sources import answers, checks, decode, receipts, tracing
from unfork.sources.decode import Whole
from unfork.sources.endpoint import Endpoint
from unfork.sources.piece import Piece
from unfork.sources.rpc import Answer, Call, Rpc
from unfork.sources.traces import Trace

#: Requests for blocks that make up one piece at most. Decoding has a price a piece, which blocks
#: so light that a request of them weighs little should share; heavy ones come in smaller pieces.
REQUESTS_A_PIECE = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one endpoint shows at one moment: its tip, and one block that was asked for."""

    head: Head
    #: The block, None where the endpoint does not have it.
    piece: Piece | None


class Fetcher(Protocol):
    """Fetches what a scope asks for."""

    async def look(self, number: int, *, is_expected: bool) -> Look:
        """The tip, and block `number` if it is there; `is_expected` where it probably is."""
        ...

    async def fetch(self, span: Span, head: Head) -> Piece:
        """The blocks of a span that is at or below the head."""
        ...

    def piece_max(self) -> int:
        """Blocks asked for in one piece at most."""
        ...

    def ahead_max(self) -> int:
        """Blocks fetched ahead of the commit at most."""
        ...


class WholeBlocks:
    """Blocks with transactions, receipts, withdrawals and, on request, traces."""

    def __init__(self, rpc: Rpc, scope: Scope) -> None:
        self._rpc = rpc
        self._scope = scope

    async def look(self, number: int, *, is_expected: bool) -> Look:
        return await self._rpc.settle(lambda e: self._look(e, number, is_expected))

    async def fetch(self, span: Span, head: Head) -> Piece:
        return await self._rpc.settle(lambda endpoint: self._fetch(endpoint, span))

    def piece_max(self) -> int:
        return REQUESTS_A_PIECE * self._rpc.settings.batch_size

    def ahead_max(self) -> int:
        return self._rpc.settings.prefetch_blocks

    async def _look(self, endpoint: Endpoint, number: int, is_expected: bool) -> Look:
        about_head = head_calls(endpoint)
        calls = [block_call(number), *about_head]
        # The receipts come along unasked by hash only when the block is probably there: they are
        # the dearest call of a provider's price list.
        can_guess = endpoint.abilities.receipts < receipts.WHOLE_WAYS and not self._scope.traces
        if is_expected and can_guess:
            calls.append(receipts.by_number(number))
        got = await self._rpc.exchange(endpoint, calls)
        head = read_head(endpoint, got[1 : 1 + len(about_head)])
        block = got[0].read(answers.BLOCK)
        if block is None:
            return Look(head=head, piece=None)
        with got[0].doubted():
            checks.placed(block, number)
            checks.transactions(block)
        guessed = self._guessed(block, got[-1]) if is_expected and can_guess else None
        piece = await self._complete(endpoint, [block], [got[0]], guessed)
        return Look(head=at_least(head, piece.last), piece=piece)

    async def _fetch(self, endpoint: Endpoint, span: Span) -> Piece:
        calls = [block_call(number) for number in range(span.first, span.last + 1)]
        got = await self._rpc.exchange(endpoint, calls)
        blocks: list[answers.Block] = []
        for number, answer in enumerate(got, span.first):
            block = answer.read(answers.BLOCK)
            if block is None:
                raise absent(endpoint, number)
            blocks.append(block)
            with answer.doubted():
                checks.placed(block, number)
                checks.transactions(block)
                checks.linked(blocks[-2:])
        return await self._complete(endpoint, blocks, got, None)

    async def _complete(
        self,
        endpoint: Endpoint,
        blocks: Sequence[answers.Block],
        origins: Sequence[Answer],
        guessed: receipts.Outcome | None,
    ) -> Piece:
        """Adds to blocks what belongs to them and decodes all of it."""
        if guessed is not None:
            outcomes = [guessed]
        else:
            outcomes = await receipts.fetch(self._rpc, endpoint, blocks)
        traces: list[list[Trace] | None] = [None] * len(blocks)
        if self._scope.traces:
            traces = list(await tracing.fetch(self._rpc, endpoint, blocks))
        wholes = [
            Whole(block=block, receipts=outcome.receipts, logs=outcome.logs, traces=rows)
            for block, outcome, rows in zip(blocks, outcomes, traces, strict=True)
        ]
        with origins[0].doubted():
            return decoded(wholes, self._scope, self._rpc.settings.checks)

    def _guessed(self, block: answers.Block, answer: Answer) -> receipts.Outcome | None:
        """Receipts that came with the block, if they are its own; otherwise they are asked for."""
        if not block.transactions:
            return receipts.NOTHING
        try:
            return receipts.believed(block, answer)
        except (MethodMissing, SourceUnavailable, Unbelievable):
            return None


def decoded(wholes: Sequence[Whole], scope: Scope, depth: str) -> Piece:
    """The piece made of checked blocks; with `roots` its rows must prove themselves too."""
    blocks = [whole.block for whole in wholes]
    tables = decode.tables(wholes, scope)
    if depth == "roots":
        _proven(tables, is_filtered=scope.kind == "logs")
    refs = tuple(BlockRef(checks.number_of(b), checks.hash_of(b)) for b in blocks)
    first = refs[0].number
    parent = None if first == 0 else BlockRef(first - 1, checks.parent_of(blocks[0]))
    return Piece(parent=parent, refs=refs, tables=tables)


def block_call(number: int) -> Call:
    """Asks for the block at a number, with its transactions."""
    return Call("eth_getBlockByNumber", (hex(number), True), answers.BLOCK)


def outline_call(number: int) -> Call:
    """Asks for the block at a number, with the hashes of its transactions."""
    return Call("eth_getBlockByNumber", (hex(number), False), answers.OUTLINE)


def ref_call(number: int) -> Call:
    """Asks for the block at a number, to know its place alone."""
    return Call("eth_getBlockByNumber", (hex(number), False), answers.REF)


def head_calls(endpoint: Endpoint) -> list[Call]:
    """Asks for the tip and, where the endpoint knows of it, the final block."""
    latest = Call("eth_getBlockByNumber", ("latest", False), answers.REF)
    final = Call("eth_getBlockByNumber", ("finalized", False), answers.REF, is_optional=True)
    return [latest, final] if endpoint.abilities.finalized else [latest]


def read_head(endpoint: Endpoint, got: Sequence[Answer]) -> Head:
    """The tip in the answers to `head_calls`."""
    latest = got[0].read(answers.REF)
    if latest is None:
        raise SourceUnavailable(f"{endpoint.name} has no latest block", endpoint=endpoint.name)
    with got[0].doubted():
        tip = BlockRef(checks.number_of(latest), checks.hash_of(latest))
    return Head(latest=tip, finalized=_finalized(endpoint, got[1]) if len(got) > 1 else None)


def at_least(head: Head, ref: BlockRef) -> Head:
    """A head that is not below a block which the same endpoint gave a moment later."""
    return head if head.latest.number >= ref.number else Head(latest=ref, finalized=head.finalized)


def absent(endpoint: Endpoint, number: int) -> SourceUnavailable:
    """An endpoint does not have a block that should be there."""
    return SourceUnavailable(
        f"{endpoint.name} does not have block {number}",
        endpoint=endpoint.name,
        block_number=number,
        is_absent=True,
    )


def _finalized(endpoint: Endpoint, answer: Answer) -> BlockRef | None:
    try:
        block = answer.read(answers.REF)
        if block is None:
            return None
        return BlockRef(checks.number_of(block), checks.hash_of(block))
    except MethodMissing:
        endpoint.abilities.finalized = False
        return None
    except (SourceUnavailable, Unbelievable):
        return None


def _proven(tables: decode.Tables, *, is_filtered: bool) -> None:
    for number, hash, findings in proof_rows.check_tables(tables, logs_filtered=is_filtered):
        for finding in findings:
            if finding.outcome is Verdict.FAILED and finding.check not in RECKONED:
                raise Unbelievable(
                    f"block {number} (0x{hash.hex()}): {finding.check.value}: {finding.reason}",
                    block_number=number,
                    block_hash="0x" + hash.hex(),
                )
