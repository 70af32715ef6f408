"""Owns the writing of a run's rows into a build, by the strategy of its dataset.

Rows come as Arrow from whoever ran the job, or lie in staging, where its tasks put them. Whatever
is new is written; where something is there already, it is compared first, part by part, and a part
whose content is the same stays untouched: nothing that reads it has to be done again.

Every row is checked against the refs: it may only name blocks of the run's span, by the hash that
the chain has there (I3). Everything here runs inside the transaction of a commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

from unfork import errors
from unfork.app import content, merge, staging
from unfork.app.derived import VERSION_BLOCKS, DerivedDataset
from unfork.app.generations import Generation
from unfork.app.staging import Staged
from unfork.chain.span import Span
from unfork.database import copy
from unfork.database.queries import Queries, Query, joined
from unfork.database.session import Session
from unfork.datasets.dataset import Kind
from unfork.datasets.derivation import ByBlocks, ByDay


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Rows as COPY takes them, made before any lock is taken."""

    #: Binary COPY data, in pieces.
    data: tuple[bytes, ...]
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A block, a partition or the blocks of a version, and how its rows changed."""

    #: The partition's key, the block's number, or the first block of the version.
    key: str
    old_count: int
    old_content: Decimal
    new_count: int
    new_content: Decimal

    @property
    def is_changed(self) -> bool:
        """Whether the rows are other ones than before."""
        return (self.old_count, self.old_content) != (self.new_count, self.new_content)


def prepare(dataset: DerivedDataset, table: pa.Table) -> Prepared:
    """Encodes the rows that a run handed over; raises RowRefused where columns do not fit."""
    fitting = fit(dataset, table)
    kinds = [column.kind.value for column in dataset.columns]
    return Prepared(data=tuple(copy.encode(fitting, kinds)), rows=fitting.num_rows)


def fit(dataset: DerivedDataset, table: pa.Table) -> pa.Table:
    """The columns of a dataset out of what its job returned, as they are written.

    Raises RowRefused where a column is missing or a value does not fit.
    """
    schema = dataset.schema
    missing = [name for name in schema.names if name not in table.column_names]
    if missing:
        raise errors.RowRefused(
            f"job `{dataset.job}` did not return column `{missing[0]}` of `{dataset.name}`; "
            f"it returned {', '.join(table.column_names)}"
        )
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise errors.RowRefused(
            f"job `{dataset.job}` returned a value that does not fit `{dataset.name}`: "
            f"{str(error).splitlines()[0]}"
        ) from error


class Rows:
    """The rows of one run, on their way into one build."""

    def __init__(
        self,
        session: Session,
        queries: Queries,
        *,
        schema: str,
        build: Generation,
        given: Prepared | Staged,
        span: Span,
        floor: int | None,
    ) -> None:
        self._session = session
        self._queries = queries
        self._schema = schema
        self._build = build
        self._dataset = build.dataset
        self._given = given
        self._span = span
        self._floor = -1 if floor is None else floor
        self._source = queries.fragment("rows_loaded", temporary=self._temporary)
        self._parameters: dict[str, object] = {}
        if isinstance(given, Staged):
            self._source = staging.source(queries, self._dataset, given)
            self._parameters = staging.parameters(given)

    async def write_fresh(self) -> list[Part]:
        """Replaces the rows of a span that had none, or none that count."""
        at = {"first": self._span.first, "last": self._span.last}
        table, number = self._build.table, self._dataset.number_column
        query = self._queries.of("rows_delete", table, table=table, number=number)
        await self._session.run(query, **at)
        if isinstance(self._given, Prepared):
            query = self._queries.of("rows_copy", table, table=table, columns=self._dataset.names)
            await self._session.copy(query, self._given.data)
        else:
            await self._run("rows_insert")
        held = self._queries.fragment("rows_held", table=table, number=number)
        await self._check(held, at)
        measure = self._queries.of(
            "rows_measure",
            table,
            table=table,
            number=number,
            size=VERSION_BLOCKS,
            digest=content.digest(self._queries, self._dataset),
            content=content.total(self._queries),
        )
        zero = Decimal(0)
        return [
            Part(
                key=str(row["part"]),
                old_count=0,
                old_content=zero,
                new_count=row["row_count"],
                new_content=row["content"],
            )
            for row in await self._session.rows(measure, **at)
        ]

    async def write_changed(self, keys: Sequence[str] | None) -> list[Part]:
        """Replaces the parts whose rows differ from those that are there, and tells all parts.

        `keys` are the partitions that the run computed; None where the parts are its blocks.
        """
        await self._load()
        await self._check(self._source, self._parameters)
        part, scope, at = self._parts(keys)
        given = {**self._parameters, **at}
        compared = await self._session.rows(
            self._queries.made(
                "rows_compare",
                table=self._build.table,
                source=self._source,
                part=part,
                scope=scope,
                digest=content.digest(self._queries, self._dataset),
                content=content.total(self._queries),
            ),
            **given,
        )
        parts = [
            Part(
                key=row["part"],
                old_count=row["old_count"],
                old_content=row["old_content"],
                new_count=row["new_count"],
                new_content=row["new_content"],
            )
            for row in compared
        ]
        for one in parts:
            if keys is not None and one.key not in keys and one.new_count:
                raise errors.RowRefused(
                    f"job `{self._dataset.job}` returned rows of partition {one.key} in a run over "
                    f"{', '.join(keys)}"
                )
        changed = [one.key for one in parts if one.is_changed]
        if changed:
            await self._run("rows_delete_parts", scope=scope, part=part, changed=changed, **at)
            await self._run("rows_insert_parts", part=part, changed=changed)
        return parts

    async def remove(self, keys: Sequence[str]) -> None:
        """Removes the rows of partitions that are no more."""
        _, scope, at = self._parts(keys)
        table = self._build.table
        await self._session.run(
            self._queries.made("rows_delete_scope", table=table, scope=scope), **at
        )

    async def append(self) -> dict[int, int]:
        """Writes the rows that are not there yet; returns how many, by block."""
        await self._load()
        await self._check(self._source, self._parameters)
        dataset = self._dataset
        is_new = self._queries.fragment("append_always")
        at = {"first": self._span.first, "last": self._span.last}
        if dataset.is_serial:
            # A block that came back brought its rows along. What they are was decided by what lay
            # below it then; that may have been corrected since.
            returned = self._queries.of(
                "append_returned",
                self._build.table,
                table=self._build.table,
                number=dataset.number_column,
                hash=dataset.hash_column,
            )
            await self._session.run(returned, **at)
            nullable = {column.name for column in dataset.columns if column.nullable}
            matches = (
                self._queries.fragment(
                    "append_match_null" if name in nullable else "append_match", column=name
                )
                for name in dataset.key
            )
            is_new = self._queries.fragment(
                "append_is_new",
                table=self._build.table,
                number=dataset.number_column,
                hash=dataset.hash_column,
                match=joined(matches, " AND "),
            )
        query = self._queries.made(
            "append_rows",
            table=self._build.table,
            columns=dataset.names,
            key=dataset.key,
            number=dataset.number_column,
            source=self._source,
            is_new=is_new,
        )
        rows = await self._session.rows(query, **self._parameters, **at)
        return {row["number"]: row["row_count"] for row in rows}

    async def merge(self) -> int:
        """Folds the changes into the rows that are there; returns how many rows were written."""
        await self._load()
        await self._check(self._source, self._parameters)
        return await merge.merge(
            self._session,
            self._queries,
            schema=self._schema,
            build=self._build,
            source=self._source,
            parameters=self._parameters,
            floor=self._floor,
        )

    @property
    def _temporary(self) -> str:
        return f"rows_{self._build.id}_{self._build.schema_hash}"

    async def _load(self) -> None:
        """Puts rows that came as Arrow where SQL can read them."""
        if not isinstance(self._given, Prepared):
            return
        names = {"temporary": self._temporary, "table": self._build.table}
        await self._session.run(self._queries.of("rows_temporary", self._temporary, **names))
        query = self._queries.of(
            "rows_copy_temporary",
            self._temporary,
            temporary=self._temporary,
            columns=self._dataset.names,
        )
        await self._session.copy(query, self._given.data)

    async def _check(self, source: Query, parameters: Mapping[str, object]) -> None:
        """Raises RowRefused unless the rows are as many as told and belong to the span.

        Rows of another fork are no fault of the job; the field `strangers` tells them apart.
        """
        dataset, queries = self._dataset, self._queries
        number = dataset.number_column
        lowest = highest = strangers = queries.fragment("rows_unknown")
        if number in dataset.names:
            lowest = queries.fragment("rows_lowest", number=number)
            highest = queries.fragment("rows_highest", number=number)
        if number in dataset.names and dataset.has_hash:
            strangers = queries.fragment("rows_strangers", number=number, hash=dataset.hash_column)
        query = queries.made(
            "rows_check", source=source, lowest=lowest, highest=highest, strangers=strangers
        )
        row = await self._session.row(query, floor=self._floor, **parameters)
        assert row is not None
        if row["row_count"] != self._given.rows:
            raise errors.RowRefused(
                f"job `{dataset.job}` wrote {self._given.rows} rows of `{dataset.name}` for blocks "
                f"{self._span}, {row['row_count']} are there"
            )
        if row["lowest"] is not None:
            if row["lowest"] < self._span.first or row["highest"] > self._span.last:
                raise errors.RowRefused(
                    f"job `{dataset.job}` returned rows of blocks {row['lowest']} to "
                    f"{row['highest']} in a run over {self._span}"
                )
        if row["strangers"]:
            raise errors.RowRefused(
                f"{row['strangers']} rows of `{dataset.name}` in blocks {self._span} name blocks "
                "that are not of the chain: what was read is of another fork",
                strangers=row["strangers"],
            )

    def _parts(self, keys: Sequence[str] | None) -> tuple[Query, Query, dict[str, object]]:
        """How rows are told apart, which rows are looked at, and what that needs."""
        dataset, queries = self._dataset, self._queries
        number = dataset.number_column
        span: dict[str, object] = {"first": self._span.first, "last": self._span.last}
        match dataset.partitioning:
            case None if keys is None:
                part = queries.fragment("part_block", number=number)
                return part, queries.fragment("scope_span", number=number), span
            case None:
                return queries.fragment("part_whole"), queries.fragment("scope_whole"), {}
            case ByBlocks(size):
                assert keys is not None
                part = queries.fragment("part_blocks", number=number, size=size)
                bounds = [int(bound) for key in keys for bound in key.split("-")]
                span = {"first": min(bounds), "last": max(bounds)}
                return part, queries.fragment("scope_span", number=number), span
            case ByDay(column):
                assert keys is not None
                is_date = dataset.kind(column) is Kind.DATE
                part = queries.fragment("part_date" if is_date else "part_text", column=column)
                scope = queries.fragment("scope_dates" if is_date else "scope_texts", column=column)
                return part, scope, {"parts": list(keys)}

    async def _run(self, name: str, **given: object) -> None:
        """Runs a statement that moves rows; SQL goes into it, everything else is a parameter."""
        pieces = {key: value for key, value in given.items() if isinstance(value, Query)}
        values = {key: value for key, value in given.items() if not isinstance(value, Query)}
        query = self._queries.made(
            name,
            table=self._build.table,
            columns=self._dataset.names,
            source=self._source,
            **pieces,
        )
        await self._session.run(query, **self._parameters, **values)
