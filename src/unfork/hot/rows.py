"""Owns the way from a batch to what COPY takes: checked, large values moved out, encoded.

Everything here happens before the chain row is locked, so that the lock is held for the database's
own work alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from unfork import errors
from unfork.database import copy
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.datasets.dataset import Dataset
from unfork.hot import lookups
from unfork.hot.payloads import PayloadStore, Stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """The rows of one table, ready to be sent."""

    table: str
    columns: tuple[str, ...]
    #: Binary COPY data, in pieces.
    data: tuple[bytes, ...]


#: The names and types of each dataset's columns.
_SHAPES = {dataset.name: (dataset.schema.names, dataset.schema.types) for dataset in evm.DATASETS}


#: The Postgres types of the columns that only the store knows.
_OWN_TYPES = {
    "journal_seq": "bigint",
    "events": "jsonb",
    **{
        name: kind
        for dataset in evm.DATASETS
        for payload in dataset.payloads
        for name, kind in ((payload.hash_column, "bytea"), (payload.ref_column, "text"))
    },
}


def check(batch: Batch, datasets: Sequence[Dataset]) -> None:
    """Raises RowRefused unless every row belongs to one of the batch's blocks, by number and hash.

    A source has checked this already; the store checks it again, because a row of another fork
    that came in here would be believed for ever (I3).
    """
    assert set(batch.tables) == set(batch.scope.datasets), "the tables are not those in scope"
    hashes = np.array([ref.hash for ref in batch.refs], dtype=object)
    lengths = np.array([len(ref.hash) for ref in batch.refs])
    first = batch.refs[0].number
    for dataset in datasets:
        table = batch.tables.get(dataset.name)
        if table is None or table.num_rows == 0:
            continue
        names, types = _SHAPES[dataset.name]
        assert table.schema.names == names, f"columns of {dataset.name}"
        assert table.schema.types == types, f"types of {dataset.name}"
        index = table[dataset.number_column].to_numpy() - first
        if index.min() < 0 or index.max() >= len(batch.refs):
            raise errors.RowRefused(f"a row of {dataset.name} lies outside of blocks {batch.span}")
        data, offsets = copy.bytes_of(copy.whole(table[dataset.hash_column]))
        if (
            data.tobytes() != b"".join(hashes[index])
            or (offsets[1:] - offsets[:-1] != lengths[index]).any()
        ):
            raise errors.RowRefused(
                f"a row of {dataset.name} in blocks {batch.span} carries another block's hash"
            )
    blocks = batch.tables["blocks"]
    if blocks["number"].to_pylist() != [ref.number for ref in batch.refs]:
        raise errors.RowRefused(f"the headers of blocks {batch.span} are not there once each")
    parents = blocks["parent_hash"].to_pylist()
    if parents[1:] != [ref.hash for ref in batch.refs[:-1]] or (
        batch.parent is not None and parents[0] != batch.parent.hash
    ):
        raise errors.RowRefused(f"the headers of blocks {batch.span} do not link to their parents")


async def offload(
    table: pa.Table, dataset: Dataset, store: PayloadStore, inline_max_bytes: int
) -> tuple[pa.Table, list[Stored]]:
    """The table with large values moved to the store, and what was stored.

    The columns of hashes and addresses are only added where something was moved.
    """
    everything: list[Stored] = []
    for payload in dataset.payloads:
        column = copy.whole(table[payload.column])
        _, offsets = copy.bytes_of(column)
        if int((offsets[1:] - offsets[:-1]).max()) <= inline_max_bytes:
            continue
        large = pc.fill_null(pc.greater(pc.binary_length(column), inline_max_bytes), False)
        stored = await store.put(column.filter(large).to_pylist())
        everything.extend(stored)
        places = iter(stored)
        at = [next(places) if moved else None for moved in large.to_pylist()]
        position = table.schema.get_field_index(payload.column)
        inline = pc.if_else(large, pa.scalar(None, column.type), column)
        field = pa.field(payload.column, column.type, nullable=True)
        table = table.set_column(position, field, inline)
        hashes = pa.array([one and one.hash for one in at], pa.binary())
        refs = pa.array([one and one.ref for one in at], pa.string())
        table = table.append_column(payload.hash_column, hashes)
        table = table.append_column(payload.ref_column, refs)
    return table, everything


def encode(tables: Mapping[str, pa.Table], datasets: Sequence[Dataset], *, seq: int) -> list[Copy]:
    """The COPY data of every table and lookup that has rows, in the order of the declarations."""
    copies = []
    for dataset in datasets:
        table = tables.get(dataset.name)
        if table is None or table.num_rows == 0:
            continue
        for lookup in lookups.LOOKUPS:
            if lookup.dataset == dataset.name:
                found = lookup.rows(table)
                copies.append(_copy(lookup.table, found, lookup.types))
        if dataset.name == "blocks":
            table = table.append_column("journal_seq", pa.array(np.full(table.num_rows, seq)))
        types = [column.kind.value for column in dataset.columns]
        types += [_OWN_TYPES[name] for name in table.column_names[len(types) :]]
        copies.append(_copy(dataset.name, table, types))
    return copies


def _copy(name: str, table: pa.Table, types: list[str]) -> Copy:
    columns = tuple(table.column_names)
    return Copy(table=name, columns=columns, data=tuple(copy.encode(table, types)))
