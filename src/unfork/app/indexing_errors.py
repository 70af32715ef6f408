"""Owns `indexing_errors`: what could not be stored, kept once per cause until the span succeeds.

The table cannot run away: the same error of the same place is one row with a counter, and of the
refused data only the first 4 KiB are kept, the whole of it going to the payload store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, Protocol

from unfork.app import schema
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.queries import Queries
from unfork.database.session import Session

#: Bytes of refused data that the row itself keeps.
RAW_DATA_BYTES_MAX = 4096
#: Characters of a message that are kept.
MESSAGE_MAX = 2000

Severity = Literal["FATAL", "WARN"]


class Stored(Protocol):
    """A value in a payload store."""

    @property
    def ref(self) -> str:
        """Where the store keeps it."""
        ...


class Payloads(Protocol):
    """The part of a payload store that errors need."""

    async def put(self, values: Sequence[bytes]) -> Sequence[Stored]:
        """Stores values."""
        ...


class IndexingErrors:
    """The errors of one chain."""

    def __init__(self, chain: str, database: Database, payloads: Payloads) -> None:
        self._queries = schema.bound(chain)
        self._database = database
        self._payloads = payloads

    async def record(
        self,
        *,
        worker_name: str,
        block_number: int | None,
        transaction_id: bytes | None,
        severity: Severity,
        message: str,
        raw_data: bytes | None,
    ) -> None:
        """Records an error, or counts it once more; a resolved one that returns is open again."""
        ref = None
        if raw_data is not None and len(raw_data) > RAW_DATA_BYTES_MAX:
            ref = (await self._payloads.put([raw_data]))[0].ref
        async with self._database.session() as session:
            await record(
                session,
                self._queries,
                worker_name=worker_name,
                block_number=block_number,
                transaction_id=transaction_id,
                severity=severity,
                message=message,
                raw_data=raw_data,
                raw_ref=ref,
            )

    async def resolve(self, *, worker_name: str, span: Span) -> int:
        """Closes the worker's errors in a span that succeeded now, and those without a block."""
        async with self._database.session() as session:
            return await session.run(
                self._queries["errors_resolve"],
                worker_name=worker_name,
                first=span.first,
                last=span.last,
            )

    async def unresolved(self, *, limit: int = 100) -> list[dict[str, Any]]:
        """The open errors, newest first."""
        async with self._database.session() as session:
            return await session.rows(self._queries["errors_open"], limit=limit)


async def record(
    session: Session,
    queries: Queries,
    *,
    worker_name: str,
    block_number: int | None,
    severity: Severity,
    message: str,
    transaction_id: bytes | None = None,
    raw_data: bytes | None = None,
    raw_ref: str | None = None,
) -> None:
    """Records an error in the transaction of the caller, or counts it once more."""
    # Postgres' text takes no NUL, and an error about one must still be told.
    text = message.replace("\x00", "\\0")[:MESSAGE_MAX]
    await session.run(
        queries["errors_record"],
        worker_name=worker_name,
        block_number=block_number,
        transaction_id=transaction_id,
        error_hash=hashlib.sha256(text.encode()).digest(),
        severity=severity,
        message=text,
        raw_data=raw_data[:RAW_DATA_BYTES_MAX] if raw_data is not None else None,
        raw_ref=raw_ref,
    )
