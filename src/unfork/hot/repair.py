"""Owns the repair of what stands beside the raw tables: lookups, payload records and blobs.

It compares, reports, and mends where it is told to. It runs beside a follower: what is found is
read in single statements over bounded windows, and what is mended is looked at again while the
chain row is held, in steps so short that a commit hardly notices.

Raw rows themselves are never changed here. A payload that is gone or damaged cannot be made again
from what we hold: the source is asked for its block, and what hashes to its name is stored again.
Where there is no source, or it has other values, the block is named, so that an operator can unwind
and fetch it again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal

from unfork import errors, telemetry
from unfork.chain import span
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.queries import Value
from unfork.database.session import Row, Session
from unfork.datasets.batch import Batch
from unfork.datasets.dataset import Dataset
from unfork.hot import lookups, payloads, schema, state
from unfork.hot.lookups import Lookup
from unfork.hot.payloads import PayloadStore

log = telemetry.logger(__name__)

#: Asks the source for the block with a number; None where it has none.
Fetch = Callable[[int], Awaitable[Batch | None]]

#: Blocks compared in one statement.
BLOCKS_AT_ONCE = 200
#: Blocks, payloads or blobs mended while the chain row is held.
ITEMS_AT_ONCE = 50

Kind = Literal[
    "lookup_missing",
    "lookup_dangling",
    "payload_missing",
    "payload_unrecorded",
    "payload_unused",
    "blob_stray",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that does not fit."""

    kind: Kind
    #: The lookup table, the table that refers to a payload, or the store.
    subject: str
    #: Rows or blobs concerned.
    count: int
    #: A block concerned, None where there is none.
    block_number: int | None
    #: Whether it is put right now; a payload that is gone can be where the source still has it.
    is_mended: bool


class Repair:
    """The reconciler of one chain."""

    def __init__(
        self,
        chain: str,
        family: str,
        database: Database,
        store: PayloadStore,
        *,
        sweep_grace_s: float,
        fetch: Fetch | None = None,
    ) -> None:
        self._queries = schema.bound(chain)
        self._datasets = schema.datasets(family)
        self._database = database
        self._store = store
        self._grace_s = sweep_grace_s
        self._fetch = fetch

    async def run(self, *, mend: bool) -> AsyncIterator[Finding]:
        """Everything that does not fit, as it is found; put right where `mend` says so."""
        for lookup in lookups.LOOKUPS:
            async for finding in self._lookup(lookup, mend):
                yield finding
        async for finding in self._unrecorded(mend):
            yield finding
        async for finding in self._recorded(mend):
            yield finding
        async for finding in self._stray(mend):
            yield finding

    async def _lookup(self, lookup: Lookup, mend: bool) -> AsyncIterator[Finding]:
        """Lookup rows against the rows that they find, window by window up to the position."""
        names = self._lookup_names(lookup)
        outside = self._queries.of("repair_lookup_outside", lookup.table, **names)
        differences = self._queries.of("repair_lookup_differences", lookup.table, **names)
        for window in await self._windows():
            async with self._database.session() as session:
                rows = await session.rows(differences, first=window.first, last=window.last)
            async for finding in self._told(lookup, rows, mend):
                yield finding
        while True:
            async with self._database.session() as session:
                rows = await session.rows(outside, limit=ITEMS_AT_ONCE)
            async for finding in self._told(lookup, rows, mend):
                yield finding
            if not mend or not rows:
                break

    async def _told(
        self, lookup: Lookup, rows: list[dict[str, Any]], mend: bool
    ) -> AsyncIterator[Finding]:
        numbers = sorted({row["block_number"] for row in rows})
        if mend:
            for first in range(0, len(numbers), ITEMS_AT_ONCE):
                await self._mend_lookup(lookup, numbers[first : first + ITEMS_AT_ONCE])
        for row in rows:
            kind: Kind = "lookup_missing" if row["kind"] == "missing" else "lookup_dangling"
            yield Finding(
                kind=kind,
                subject=lookup.table,
                count=row["row_count"],
                block_number=row["block_number"],
                is_mended=mend,
            )

    async def _mend_lookup(self, lookup: Lookup, numbers: list[int]) -> None:
        """Makes the lookup rows of some blocks anew, whatever became of the blocks meanwhile."""
        names = self._lookup_names(lookup)
        clear = self._queries.of("repair_lookup_clear", lookup.table, **names)
        fill = self._queries.of("repair_lookup_fill", lookup.table, **names)
        async with self._database.session() as session, self._holding(session):
            await session.run(clear, numbers=numbers)
            await session.run(fill, numbers=numbers)

    async def _unrecorded(self, mend: bool) -> AsyncIterator[Finding]:
        """Payloads that rows refer to although no record names them."""
        for table, names in self._referring():
            query = self._queries.of("repair_payloads_unrecorded", table, **names)
            after = b""
            while True:
                async with self._database.session() as session:
                    rows = await session.rows(query, after=after, limit=ITEMS_AT_ONCE)
                for row in rows:
                    yield Finding(
                        kind="payload_unrecorded",
                        subject=table,
                        count=1,
                        block_number=row["block_number"],
                        is_mended=mend and await self._record(row),
                    )
                if len(rows) < ITEMS_AT_ONCE:
                    break
                after = rows[-1]["hash"]

    async def _record(self, row: Row) -> bool:
        hash, ref = row["hash"], row["ref"]
        is_sound = await self._store.is_sound(ref, hash)
        if not is_sound and not await self._stored_again(hash, row["block_number"]):
            return False
        size = len(await self._store.get(ref, hash))
        async with self._database.session() as session:
            query = self._queries["repair_payloads_record"]
            await session.run(query, hash=hash, ref=ref, size=size)
        return True

    async def _recorded(self, mend: bool) -> AsyncIterator[Finding]:
        """Payloads on record: those in use must be sound, those not in use are swept in time."""
        after = b""
        while True:
            async with self._database.session() as session:
                rows = await session.rows(
                    self._queries["repair_payloads_after"],
                    after=after,
                    limit=ITEMS_AT_ONCE,
                    grace_s=self._grace_s,
                )
                used = await self._used(session, [row["hash"] for row in rows])
            for row in rows:
                if row["hash"] in used and not await self._store.is_sound(row["ref"], row["hash"]):
                    subject, number = used[row["hash"]]
                    yield Finding(
                        kind="payload_missing",
                        subject=subject,
                        count=1,
                        block_number=number,
                        is_mended=mend and await self._stored_again(row["hash"], number),
                    )
            unused = [row["hash"] for row in rows if row["hash"] not in used and row["is_old"]]
            if unused:
                swept = await self._sweep(unused) if mend else len(unused)
                yield Finding(
                    kind="payload_unused",
                    subject="payloads",
                    count=swept,
                    block_number=None,
                    is_mended=mend,
                )
            if len(rows) < ITEMS_AT_ONCE:
                break
            after = rows[-1]["hash"]

    async def _stored_again(self, hash: bytes, number: int) -> bool:
        """Whether the source gave the value again; its hash says that it is the right one."""
        if self._fetch is None:
            return False
        try:
            batch = await self._fetch(number)
        except errors.UnforkError as error:
            telemetry.event(log, "payload_not_fetched", block_number=number, error=str(error))
            return False
        for value in () if batch is None else self._values(batch):
            if hashlib.sha256(value).digest() == hash:
                await self._store.put([value])
                return True
        return False

    def _values(self, batch: Batch) -> Iterator[bytes]:
        """Every value of a batch that may be kept as a payload."""
        for dataset in self._datasets:
            for payload in dataset.payloads if dataset.name in batch.tables else ():
                values = batch.tables[dataset.name].column(payload.column).to_pylist()
                yield from (value for value in values if value is not None)

    async def _sweep(self, hashes: list[bytes]) -> int:
        """Removes payloads that nobody uses, record and blob; no commit is under way meanwhile."""
        async with self._database.session() as session, self._holding(session):
            used = await self._used(session, hashes)
            query = self._queries["repair_payloads_forget"]
            unused = [hash for hash in hashes if hash not in used]
            rows = await session.rows(query, hashes=unused, grace_s=self._grace_s)
            await self._store.remove([row["ref"] for row in rows])
        return len(rows)

    async def _stray(self, mend: bool) -> AsyncIterator[Finding]:
        """Blobs that no record names: left by a crash between the store and the commit."""
        for folder in payloads.FOLDERS:
            old = [
                blob.ref
                for blob in await self._store.blobs(folder)
                if blob.touched_at < time.time() - self._grace_s
            ]
            for first in range(0, len(old), ITEMS_AT_ONCE):
                count = await self._remove_stray(old[first : first + ITEMS_AT_ONCE], mend)
                if count:
                    yield Finding(
                        kind="blob_stray",
                        subject=folder,
                        count=count,
                        block_number=None,
                        is_mended=mend,
                    )

    async def _remove_stray(self, refs: list[str], mend: bool) -> int:
        """How many of the blobs no record names; with `mend` they are removed."""
        async with self._database.session() as session:
            stray = await self._unnamed(session, refs)
            if mend and stray:
                async with self._holding(session):
                    stray = await self._unnamed(session, stray)
                    await self._store.remove(stray)
        return len(stray)

    async def _unnamed(self, session: Session, refs: list[str]) -> list[str]:
        hashes = [digest for ref in refs if (digest := payloads.hash_of(ref)) is not None]
        rows = await session.rows(self._queries["repair_payloads_known"], hashes=hashes)
        known = {row["ref"] for row in rows}
        return [ref for ref in refs if ref not in known]

    async def _used(self, session: Session, hashes: list[bytes]) -> dict[bytes, tuple[str, int]]:
        """Which of the payloads are referred to, by which table and block."""
        used: dict[bytes, tuple[str, int]] = {}
        for table, names in self._referring():
            query = self._queries.of("repair_payloads_used", table, **names)
            for row in await session.rows(query, hashes=hashes):
                # The chain's own rows come first: their blocks are those that a source still has.
                used.setdefault(row["hash"], (table, row["block_number"]))
        return used

    def _referring(self) -> list[tuple[str, dict[str, Value]]]:
        """Every table and column that may refer to a payload, orphaned rows included."""
        return [
            (
                table,
                {
                    "table": table,
                    "hash": payload.hash_column,
                    "ref": payload.ref_column,
                    "number": dataset.number_column,
                },
            )
            for dataset in self._datasets
            for payload in dataset.payloads
            for table in (dataset.name, f"orphaned_{dataset.name}")
        ]

    def _lookup_names(self, lookup: Lookup) -> dict[str, Value]:
        dataset: Dataset = next(one for one in self._datasets if one.name == lookup.dataset)
        return {
            "table": lookup.table,
            "columns": tuple(lookup.columns),
            "key": lookup.key,
            "source": lookup.dataset,
            "source_columns": tuple(column for column, _ in lookup.columns.values()),
            "number": dataset.number_column,
        }

    async def _windows(self) -> list[Span]:
        """The blocks held when this was asked, in pieces."""
        async with self._database.session() as session:
            row = await session.row(self._queries["chain_read"])
        known = state.from_row(row) if row is not None else None
        if known is None or known.position is None or known.first is None:
            return []
        return list(span.split(Span(known.first, known.position.number), BLOCKS_AT_ONCE))

    def _holding(self, session: Session) -> AbstractAsyncContextManager[Row | None]:
        """A transaction in which no commit and no unwind can be under way."""
        return session.transaction(self._queries["chain_lock"])
