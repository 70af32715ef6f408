"""Owns the verification of a chain's hot store: every stored block proven, the store left alone.

Final blocks are read in batches, each in a short transaction of its own, since nothing below the
floor moves; the blocks above the floor are few and are read in one snapshot, so that a fork that is
committed meanwhile is seen wholly or not at all. Only an operator's unwind can move what was read
already; it is noticed, and the verification begins again.

Nothing is locked and nothing is written: it may run beside the follower.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from unfork import errors
from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database import queries as named
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.hot import schema, state
from unfork.hot.state import ChainState
from unfork.proof.finding import Check, Finding, equal, failed, unproven
from unfork.verify import read, stored
from unfork.verify.read import Payloads
from unfork.verify.report import Report, Tally
from unfork.verify.stored import Below

#: The hashes a source has for the numbers of a span; a number it does not have is left out.
Canonical = Callable[[Span], Awaitable[Mapping[int, bytes]]]

#: Blocks between two words on progress.
TELL_EVERY = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is read at a time."""

    #: Final blocks read in one transaction.
    blocks_max: int = 1000
    #: Rows of one table held at once, beside those of the block at hand.
    rows_max: int = 1000
    #: Numbers asked of a source at once.
    canonical_max: int = 100
    #: Times the verification begins again after an operator unwound what was read.
    attempts_max: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a verification has come."""

    #: Blocks looked at.
    done: int
    #: Blocks to look at, as known now.
    total: int
    #: Damaged blocks so far.
    damaged: int


async def verify(
    database: Database,
    chain: str,
    *,
    payloads: Payloads | None = None,
    span: Span | None = None,
    canonical: Canonical | None = None,
    limits: Limits | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Proves the stored blocks of a chain, or of a span of it.

    `payloads` reads back values kept outside their rows (without it they are unproven); `canonical`
    compares the hashes above the floor with a source's; `progress` is called after every hundred
    blocks and at the end. Raises ConfigInvalid for a span of which nothing is stored, Retryable
    where operators keep unwinding what is read, and whatever the database raises.
    """
    limits = limits or Limits()
    for _ in range(limits.attempts_max):
        run = _Pass(database, chain, payloads, limits, progress)
        try:
            covered = await run.read(span)
        except _Moved:
            continue
        if canonical is not None:
            await run.compare(canonical)
        return run.tally.report(chain, covered, run.problems)
    raise errors.Retryable(
        f"{chain}: blocks that were verified were unwound again and again; verify once more"
    )


class _Moved(Exception):
    """What was read already is no longer stored."""


class _Pass:
    """One reading of the store from the first block wanted to the last."""

    def __init__(
        self,
        database: Database,
        chain: str,
        payloads: Payloads | None,
        limits: Limits,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._database = database
        self._chain = chain
        self._queries = named.Queries(_QUERIES, {"raw": schema.name(chain)})
        self._payloads = payloads
        self._limits = limits
        self._progress = progress
        self.tally = Tally()
        #: What is wrong with the store as a whole.
        self.problems: list[Finding] = []
        #: The blocks above the floor that were read.
        self._above: list[BlockRef] = []
        self._below: Below | None = None

    async def read(self, wanted: Span | None) -> Span | None:
        """Judges every block wanted; returns which these were."""
        first: int | None = None
        number: int | None = None
        while True:
            async with self._database.session() as session, session.transaction():
                await session.run(self._queries["verify_snapshot"])
                held = await self._state(session)
                whole = _within(held, wanted, self._chain)
                if number is None:
                    first = number = whole.first if whole is not None else None
                    await self._start(session, held, number)
                elif whole is None or whole.last < number - 1 or not await self._stands(session):
                    raise _Moved
                if whole is None or number is None or first is None:
                    self.problems += await self._position(session, held)
                    return None
                piece = self._piece(number, whole.last, held)
                if piece is not None:
                    await self._judge(session, piece, held, total=len(Span(first, whole.last)))
                    number = piece.last + 1
                if number > whole.last:
                    self.problems += await self._position(session, held)
                    self._tell(len(Span(first, whole.last)))
                    return Span(first, whole.last)

    async def compare(self, canonical: Canonical) -> None:
        """Holds the blocks above the floor against a source's chain."""
        if not self._above:
            return
        all_above = Span(self._above[0].number, self._above[-1].number)
        by_number = {ref.number: ref for ref in self._above}
        for piece in spans.split(all_above, self._limits.canonical_max):
            theirs = await canonical(piece)
            now = await self._hashes(piece)
            for number in range(piece.first, piece.last + 1):
                ref = by_number.get(number)
                if ref is not None:
                    self.tally.also(ref, _compared(ref, theirs.get(number), now.get(number)))

    async def _state(self, session: Session) -> ChainState:
        row = await session.row(self._queries["verify_chain"])
        if row is None:
            raise errors.ConfigInvalid(f"{self._chain}: nothing was ever ingested into this chain")
        return state.from_row(row)

    async def _start(self, session: Session, held: ChainState, number: int | None) -> None:
        """Takes the block below the first one wanted as known, where it is stored."""
        if number is not None and held.first is not None and number > held.first:
            row = await session.row(self._queries["verify_below"], number=number - 1)
            if row is not None:
                self._below = stored.below_from(row)

    async def _stands(self, session: Session) -> bool:
        """Whether the last block judged is still stored."""
        if self._below is None:
            return True
        row = await session.row(self._queries["verify_below"], number=self._below.number)
        return row is not None and stored.below_from(row) == self._below

    def _piece(self, number: int, last: int, held: ChainState) -> Span | None:
        """What is read in this transaction: some final blocks, or all that are not final."""
        if number > last:
            return None
        floor = -1 if held.floor is None else held.floor.number
        if number <= floor:
            return Span(number, min(last, floor, number + self._limits.blocks_max - 1))
        return Span(number, last)

    async def _judge(self, session: Session, piece: Span, held: ChainState, *, total: int) -> None:
        floor = -1 if held.floor is None else held.floor.number
        reader = read.Reader(
            session,
            self._queries,
            piece,
            payloads=self._payloads,
            rows_max=self._limits.rows_max,
        )
        after = piece.first
        async for part in reader.blocks():
            ref = BlockRef(part.rows.block["number"], part.rows.block["hash"])
            if ref.number > after:
                self.tally.missing(Span(after, ref.number - 1))
            self.tally.add(ref, stored.findings(part, self._below), stored.held(part))
            self._below = stored.below_of(part.rows)
            after = ref.number + 1
            if ref.number > floor:
                self._above.append(ref)
            if self.tally.blocks % TELL_EVERY == 0:
                self._tell(total)
        if after <= piece.last:
            self.tally.missing(Span(after, piece.last))
            reason = f"blocks {after} to {piece.last} are not stored"
            self.problems.append(failed(Check.CONTIGUITY, reason))
        self.problems += [failed(Check.PLACEMENT, stray) for stray in reader.strays]

    async def _position(self, session: Session, held: ChainState) -> list[Finding]:
        """What is wrong with what the store says of itself."""
        first, last = (held.first or 0, -1)
        found: list[Finding] = []
        if held.position is not None:
            last = held.position.number
            for name, ref in (("position", held.position), ("floor", held.floor)):
                if ref is None:
                    continue
                row = await session.row(self._queries["verify_below"], number=ref.number)
                if row is None or row["hash"] != ref.hash:
                    reason = f"the {name} {ref.number} names a block that is not stored"
                    there = None if row is None else row["hash"]
                    found.append(failed(Check.POSITION, reason, ref.hash, there))
        for row in await session.rows(self._queries["verify_outside"], first=first, last=last):
            reason = f"{row['place']} holds rows of block {row['number']}, outside {first}..{last}"
            found.append(failed(Check.POSITION, reason))
        return found

    async def _hashes(self, piece: Span) -> dict[int, bytes]:
        async with self._database.session() as session:
            query = self._queries["verify_refs"]
            found = await session.rows(query, first=piece.first, last=piece.last)
        return {row["number"]: row["hash"] for row in found}

    def _tell(self, total: int) -> None:
        if self._progress is not None:
            done, damaged = self.tally.blocks, self.tally.damaged_count
            self._progress(Progress(done=done, total=total, damaged=damaged))


def _within(held: ChainState, wanted: Span | None, chain: str) -> Span | None:
    """The blocks to look at among those held, None where none is held."""
    if held.position is None or held.first is None:
        return None
    all_held = Span(held.first, held.position.number)
    if wanted is None:
        return all_held
    found = spans.intersect(all_held, wanted)
    if found is None:
        raise errors.ConfigInvalid(f"{chain}: holds blocks {all_held}, none of {wanted}")
    return found


def _compared(ref: BlockRef, theirs: bytes | None, now: bytes | None) -> Finding:
    """What a source's hash says of a block; `now` is the hash stored after the source was asked."""
    check = Check.SOURCE_HASH
    if theirs is None:
        return unproven(check, "the source does not have a block of this number")
    if theirs != ref.hash and now != ref.hash:
        return unproven(check, "the chain moved while the source was asked")
    reason = "the source has another block at this number"
    return equal(check, reason, expected=theirs, actual=ref.hash)


_QUERIES = Path(__file__).parent / "queries"
