"""Owns reading the hot store beside its writer: the chain row, refs and whole rows.

A reader takes no lock that a writer waits for. Values in the payload store come back as if they
had never left, each checked against its hash.
"""

from __future__ import annotations

from typing import Any

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.config import tree
from unfork.database.database import Database
from unfork.datasets.dataset import Dataset, Kind
from unfork.hot import journal, partitions, schema, state
from unfork.hot.payloads import PayloadStore
from unfork.hot.state import ChainState


class HotReader:
    """One chain's raw tables, for reading."""

    def __init__(self, chain: tree.Chain, database: Database, payloads: PayloadStore) -> None:
        self._queries = schema.bound(chain.name)
        self._migrations = schema.migrations(chain.name)
        self._datasets = schema.datasets(chain.family)
        self._partitions = partitions.Partitions(
            schema=schema.name(chain.name),
            datasets=self._datasets,
            sizes=chain.partition_sizes,
            queries=self._queries,
        )
        self._database = database
        self._payloads = payloads

    async def state(self) -> ChainState | None:
        """The chain row, None where no writer has ever opened the store."""
        async with self._database.session() as session:
            await self._migrations.require(session)
            row = await session.row(self._queries["chain_read"])
        return None if row is None else state.from_row(row)

    async def refs(self, span: Span) -> list[BlockRef]:
        """The blocks held in the span, ascending."""
        query = self._queries["refs_in_span"]
        async with self._database.session() as session:
            found = await session.rows(query, first=span.first, last=span.last)
        return [BlockRef(row["number"], row["hash"]) for row in found]

    async def rows(self, dataset: Dataset, span: Span) -> list[dict[str, Any]]:
        """The rows of a dataset in the span, in the order of its key, payloads whole.

        256-bit numbers are int, documents parsed; the columns are the declared ones.
        """
        query = self._queries.of(
            "rows_in_span",
            dataset.name,
            table=dataset.name,
            number=dataset.number_column,
            columns=schema.columns(dataset),
            key=dataset.key,
        )
        async with self._database.session() as session:
            found = await session.rows(query, first=span.first, last=span.last)
        return [await self._whole(dataset, row) for row in found]

    async def rows_above(self, number: int) -> dict[str, int]:
        """How many rows of each table an unwind to a number would remove."""
        counts = {}
        async with self._database.session() as session:
            for dataset in self._datasets:
                query = self._queries.of(
                    "rows_above", dataset.name, table=dataset.name, number=dataset.number_column
                )
                row = await session.row(query, target=number)
                assert row is not None
                counts[dataset.name] = row["row_count"]
        return counts

    async def partitions(self) -> list[partitions.Size]:
        """Every partition with its size now and when it will be full."""
        known = await self.state()
        held = None
        if known is not None and known.first is not None and known.position is not None:
            held = Span(known.first, known.position.number)
        async with self._database.session() as session:
            return await self._partitions.sizes(session, held)

    async def journal(self, *, after: int, limit: int = 1000) -> list[journal.Entry]:
        """What happened to the chain after an entry, in order."""
        async with self._database.session() as session:
            return await journal.read(session, self._queries, after=after, limit=limit)

    async def _whole(self, dataset: Dataset, row: dict[str, Any]) -> dict[str, Any]:
        for payload in dataset.payloads:
            if row[payload.ref_column] is not None:
                row[payload.column] = await self._payloads.get(
                    row[payload.ref_column], row[payload.hash_column]
                )
        whole = {column.name: row[column.name] for column in dataset.columns}
        for column in dataset.columns:
            if column.kind is Kind.U256 and whole[column.name] is not None:
                whole[column.name] = int(whole[column.name])
        return whole
