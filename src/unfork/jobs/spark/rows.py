"""Owns the rows of a dataset on their way from Postgres to Spark, a batch at a time.

What the database selects and what Spark gets is decided here, side by side: 256-bit numbers leave
as digits and arrive as 32 bytes, documents as text, and values that were moved to the payload store
come back as if they had never left, each checked against its hash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.database.queries import Sql, quote
from unfork.datasets.dataset import Column, Dataset, Kind, Payload
from unfork.hot.payloads import PayloadStore
from unfork.jobs.spark import numeric, schema

#: Bytes of the hash that a moved value is stored under.
HASH_BYTES = 32


class Rows:
    """Some columns of a dataset, perhaps with others before them."""

    def __init__(
        self,
        columns: Sequence[Column],
        offloaded: Sequence[Payload] = (),
        payloads: PayloadStore | None = None,
        *,
        before: Sequence[tuple[Column, str]] = (),
    ) -> None:
        assert payloads is not None or not offloaded
        names = {column.name for column in columns}
        self._columns = (*(column for column, _ in before), *columns)
        self._before = before
        self._own = columns
        self._offloaded = [each for each in offloaded if each.column in names]
        self._payloads = payloads
        self._schema = schema.arrow(self._columns)

    @property
    def schema(self) -> pa.Schema:
        """What every batch looks like."""
        return self._schema

    @property
    def expressions(self) -> Sql:
        """What to select of a table that the statement calls `row`."""
        selected = [f"{text} AS {quote(column.name)}" for column, text in self._before]
        for column in self._own:
            name = quote(column.name)
            match column.kind:
                case Kind.U256 | Kind.SIGNED:
                    selected.append(f"numeric_send(row.{name}) AS {name}")
                case Kind.JSON:
                    selected.append(f"row.{name}::text AS {name}")
                case _:
                    selected.append(f"row.{name}")
        for payload in self._offloaded:
            # Where a value was moved to, in one column: few rows say so, and all pay for a column.
            hash, ref = quote(payload.hash_column), quote(payload.ref_column)
            selected.append(f"row.{hash} || convert_to(row.{ref}, 'UTF8') AS {hash}")
        return Sql(", ".join(selected))

    def batch(self, found: pa.RecordBatch) -> pa.RecordBatch:
        """A batch as Spark takes it, of one that the database answered."""
        arrays = []
        for index, column in enumerate(self._columns):
            array = found.column(index)
            if column.kind is Kind.U256:
                array = numeric.unsigned(array)
            elif column.kind is Kind.SIGNED:
                array = numeric.signed(array)
            elif array.type != (wanted := self._schema.field(index).type):
                array = array.cast(wanted)
            arrays.append(array)
        for place, payload in enumerate(self._offloaded):
            moved = found.column(len(self._columns) + place)
            if moved.null_count < len(moved):
                index = self._schema.get_field_index(payload.column)
                arrays[index] = self._whole(arrays[index], moved)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _whole(self, inline: pa.Array, moved: pa.Array) -> pa.Array:
        """The values of a column, with those that were moved away put back."""
        is_moved = moved.is_valid()
        wanted = [
            (where[HASH_BYTES:].decode(), where[:HASH_BYTES])
            for where in moved.filter(is_moved).to_pylist()
        ]
        store = self._payloads
        assert store is not None

        async def fetched() -> dict[str, bytes]:
            return {ref: await store.get(ref, hash) for ref, hash in dict(wanted).items()}

        values = asyncio.run(fetched())
        replacements = pa.array([values[ref] for ref, _ in wanted], pa.binary())
        return pc.replace_with_mask(inline, is_moved, replacements)


def chosen(dataset: Dataset | DerivedDataset, names: Sequence[str]) -> tuple[Column, ...]:
    """The columns of a dataset by name, in the order asked for; all where none is named."""
    known = {column.name: column for column in dataset.columns}
    missing = [name for name in names if name not in known]
    if missing:
        raise errors.ConfigInvalid(
            f"option columns: {dataset.name} has no {', '.join(missing)}; "
            f"there are {', '.join(known)}"
        )
    return tuple(known[name] for name in names) if names else dataset.columns
