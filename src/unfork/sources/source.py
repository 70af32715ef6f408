"""Owns the contract that every source of chain data keeps.

A source hands on whole blocks only, checked against the hash they were asked by, in chain order. It
never decides about a fork: it says that one happened and shows a sample of the chain it sees.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from unfork.chain.block import BlockRef, Head
from unfork.chain.fork import Fork
from unfork.chain.span import Span
from unfork.datasets.batch import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractCall:
    """A question to a contract: what it returns for some input, in the state after one block."""

    #: The block, by hash: what is there under its number alone may be of another fork.
    at: BlockRef
    #: The contract, 20 bytes.
    address: bytes
    #: Selector and arguments.
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """What a contract made of a call; both are answers, and the same on every node."""

    #: False where the contract refused: it reverted, or did what no contract may.
    ok: bool
    #: What it returned; empty where it refused, since nodes differ in what they tell of that.
    output: bytes


class Source(Protocol):
    """One chain, seen through one or several endpoints."""

    async def chain_id(self) -> int:
        """The number the chain calls itself, to be compared with what a store holds.

        Raises WrongChain where two endpoints differ in it.
        """
        ...

    @property
    def seen(self) -> Head | None:
        """The tip as it was last seen by anything asked of this source; None before that."""
        ...

    async def head(self) -> Head:
        """The tip as the source sees it now."""
        ...

    def stream(
        self, after: BlockRef | None, *, recent: Sequence[BlockRef] = (), start: int = 0
    ) -> AsyncIterator[Batch | Fork]:
        """Batches that continue `after`, for ever; a Fork ends the stream.

        `recent` are the refs the caller holds at and below `after` and above its floor: with them a
        lower head that we share (a lagging replica: wait) is told from a lower head that we do not
        (a fork). Without `after` the stream begins at block `start`. Errors that retries could not
        mend are raised; the caller may open a new stream at any time.
        """
        ...

    def fetch(self, span: Span) -> AsyncIterator[Batch]:
        """The final blocks of a span, ascending; callable in another process (a Spark task)."""
        ...

    async def call(self, calls: Sequence[ContractCall]) -> list[Returned]:
        """What contracts answer, in the order of the calls, each in the state after its block.

        Raises StateMissing where no endpoint keeps that state, other Retryables where none answers
        or none has the block: a fork may have taken it away.
        """
        ...

    async def code(self, places: Sequence[tuple[BlockRef, bytes]]) -> list[bytes]:
        """The code at addresses, each in the state after a block; empty where there is none."""
        ...

    async def close(self) -> None:
        """Gives up connections; safe to repeat."""
        ...
