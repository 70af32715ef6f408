"""Owns reading stored blocks for a proof: every table of a span side by side, block by block.

Each table is read through a cursor in the order of its key, a bounded number of rows at a time, so
that memory depends on the largest block and never on the span. The caller holds the transaction:
all cursors see one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

from unfork import errors
from unfork.chain.span import Span
from unfork.database.queries import Queries, Query
from unfork.database.session import Session
from unfork.datasets import evm
from unfork.proof.rows import Rows
from unfork.verify.stored import Stored

#: Payloads of one block that are read at the same time.
PAYLOADS_AT_ONCE = 8

#: What is read beside the blocks.
_TABLES = ("transactions", "logs", "traces", "withdrawals", "block_lookup", "tx_lookup")

#: The columns of values that may be kept elsewhere, by table: the value, its hash and its ref.
_APART = {
    dataset.name: tuple(
        (part.column, part.hash_column, part.ref_column) for part in dataset.payloads
    )
    for dataset in evm.DATASETS
    if dataset.payloads
}

_Row = dict[str, Any]


class Payloads(Protocol):
    """Where values are that became too large for their row."""

    async def get(self, ref: str, hash: bytes) -> bytes:
        """The value; raises PayloadDamaged where it is lost or does not hash to its name."""
        ...


class Reader:
    """Reads the blocks of one span inside one transaction."""

    def __init__(
        self,
        session: Session,
        queries: Queries,
        span: Span,
        *,
        payloads: Payloads | None,
        rows_max: int,
    ) -> None:
        self._session = session
        self._queries = queries
        self._span = span
        self._payloads = payloads
        self._rows_max = rows_max
        #: After the last block: what belongs to a number of the span that has no block, in words.
        self.strays: list[str] = []

    async def blocks(self) -> AsyncIterator[Stored]:
        """The stored blocks, ascending, each with everything that names its number.

        Rows of a number that has no block come as strays of the next block there is.
        """
        scopes = await self._asked()
        blocks = await self._cursor("blocks")
        others = {table: await self._cursor(table) for table in _TABLES}
        while (row := await blocks.next()) is not None:
            number = row["number"]
            own = {table: await self._take(others[table], table, number) for table in _TABLES}
            scope = next((part for part in scopes if number in part.span), None)
            damaged, unread = await self._restore(own)
            rows = self._rows(row, own, scope)
            strays, self.strays = self.strays, []
            yield Stored(
                rows=rows,
                block_lookup=own["block_lookup"],
                tx_lookup=own["tx_lookup"],
                payloads_damaged=damaged,
                payloads_unread=unread,
                strays=strays,
                scope_known=scope is not None,
            )
        for table in _TABLES:
            await self._take(others[table], table, self._span.last + 1)

    async def _asked(self) -> list[_Asked]:
        query = self._queries["verify_scopes"]
        found = await self._session.rows(query, first=self._span.first, last=self._span.last)
        return [
            _Asked(
                span=Span(row["first"], row["last"]),
                kind=row["scope"]["kind"],
                filtered=bool(row["scope"].get("addresses") or row["scope"].get("topics")),
                traced=bool(row["scope"].get("traces")),
            )
            for row in found
        ]

    async def _cursor(self, table: str) -> _Cursor:
        opening = self._queries[f"verify_{table}"]
        await self._session.run(opening, first=self._span.first, last=self._span.last)
        fetch = self._queries.of(
            "verify_fetch", table, rows=self._rows_max, cursor=f"verify_{table}"
        )
        return _Cursor(self._session, fetch)

    async def _take(self, cursor: _Cursor, table: str, number: int) -> list[_Row]:
        """The rows of a number; those of lower numbers have no block and become a stray."""
        own, stray = await cursor.take(number)
        if stray is not None:
            self.strays.append(f"{table} holds rows of block {stray}, which is not stored")
        return own

    async def _restore(self, own: dict[str, list[_Row]]) -> tuple[list[str], int]:
        """Puts values kept elsewhere back into their rows: what is damaged, how many are unread.

        A value that several rows of the block share, as a call does with its transaction, is read
        once; it is held only where a check needs it.
        """
        apart: dict[tuple[str, bytes], list[tuple[_Row, str]]] = {}
        for table, places in _APART.items():
            for row in own[table]:
                for column, hash, ref in places:
                    if row[ref] is not None:
                        apart.setdefault((row[ref], row[hash]), []).append((row, column))
        if self._payloads is None:
            return [], len(apart)
        damaged: list[str] = []
        names = list(apart)
        for first in range(0, len(names), PAYLOADS_AT_ONCE):
            some = names[first : first + PAYLOADS_AT_ONCE]
            reads = [self._payloads.get(*name) for name in some]
            for name, value in zip(some, await asyncio.gather(*map(_kept, reads)), strict=True):
                if isinstance(value, str):
                    damaged.append(value)
                    continue
                for row, column in apart[name]:
                    # Of a trace only the input of the outermost call is compared with anything.
                    if not row.get("trace_address") and column in row:
                        row[column] = value
        return damaged, 0

    def _rows(self, row: _Row, own: dict[str, list[_Row]], scope: _Asked | None) -> Rows:
        """The rows as far as they were asked for; without a record, as far as they are there."""
        whole = scope.kind == "all" if scope is not None else bool(own["transactions"])
        if not whole and own["transactions"]:
            self.strays.append(f"transactions of block {row['number']} were never asked for")
        traced = scope.traced if scope is not None else bool(own["traces"])
        if not traced and own["traces"]:
            self.strays.append(f"traces of block {row['number']} were never asked for")
        return Rows(
            block=row,
            transactions=own["transactions"] if whole else None,
            logs=own["logs"],
            withdrawals=own["withdrawals"] if whole else None,
            traces=own["traces"] if traced else None,
            logs_filtered=not whole and (scope is None or scope.filtered),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What was asked of the source for a span."""

    span: Span
    #: "all" or "logs".
    kind: str
    #: Whether only logs that pass a filter were asked for.
    filtered: bool
    #: Whether traces were asked for.
    traced: bool


class _Cursor:
    """Rows of an open cursor, fetched a few at a time."""

    def __init__(self, session: Session, fetch: Query) -> None:
        self._session = session
        self._fetch = fetch
        self._rows: list[_Row] = []
        self._at = 0
        self._ended = False

    async def next(self) -> _Row | None:
        """The next row, None at the end."""
        if self._at == len(self._rows) and not await self._more():
            return None
        self._at += 1
        return self._rows[self._at - 1]

    async def take(self, number: int) -> tuple[list[_Row], int | None]:
        """Every row up to a block's number: its own, and the first number that is lower."""
        own: list[_Row] = []
        lower: int | None = None
        while self._at < len(self._rows) or await self._more():
            row = self._rows[self._at]
            at = row["block_number"]
            if at > number:
                break
            self._at += 1
            if at == number:
                own.append(row)
            elif lower is None:
                lower = at
        return own, lower

    async def _more(self) -> bool:
        """Fetches the next rows; whether there are any."""
        if not self._ended:
            self._rows, self._at = await self._session.rows(self._fetch), 0
            self._ended = not self._rows
        return not self._ended


async def _kept(reading: Any) -> bytes | str:
    """The value, or in words what became of it."""
    try:
        value: bytes = await reading
    except errors.PayloadDamaged as error:
        return error.message
    return value
