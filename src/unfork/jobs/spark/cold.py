"""Owns the cold side of a reading: which blocks of it the lake holds, and the rows in its files.

What is current is pinned before it is looked at, so its files stay while they are read, whatever
compaction publishes meanwhile. A version counts only where the raw store has its last block by
hash: an operator's unwind reaches the lake a moment after it reached the chain.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import EqualTo, Filter, In

from unfork import errors
from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.queries import Sql
from unfork.datasets.dataset import Column, Dataset
from unfork.jobs.spark import place as places
from unfork.jobs.spark import schema
from unfork.jobs.spark.place import Place
from unfork.lake import file as lake_file
from unfork.lake import pieces as lake_pieces
from unfork.lake import rows as lake_rows
from unfork.lake.pieces import Folder, Piece
from unfork.lake.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Cold:
    """The part of a reading that the lake has."""

    #: The blocks it has, as the fewest spans.
    spans: tuple[Span, ...]
    folders: tuple[Folder, ...]

    def pieces(self, span: Span) -> list[Piece]:
        """The files that hold rows of a span."""
        return lake_pieces.of(self.folders, span)


NOTHING = Cold(spans=(), folders=())


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """One file of a reading."""

    #: The path of the configuration, None where the reader's environment says.
    config: str | None
    chain: str
    columns: tuple[Column, ...]
    number: str
    piece: Piece
    #: Values that rows must have one of, by column.
    among: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    def read(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch; raises FilesRemoved."""
        place = places.find(self.config, self.chain)
        wanted = schema.arrow(self.columns)
        storage = Storage.of(place.config)
        yield from lake_rows.batches(
            storage, self.piece, wanted, number=self.number, among=self.among
        )


def among(filters: Iterable[Filter]) -> dict[str, tuple[Any, ...]]:
    """What of Spark's filters is answered while files are read: equality, by column."""
    found: dict[str, tuple[Any, ...]] = {}
    for each in filters:
        match each:
            case EqualTo((name,), value) if value is not None and name not in found:
                found[name] = (value,)
            case In((name,), values) if name not in found:
                found[name] = tuple(value for value in values if value is not None)
            case _:
                # A column that is asked of twice is answered by Spark.
                continue
    return found


def find(place: Place, dataset: Dataset, span: Span | None) -> Cold:
    """What the lake has of a span, pinned; raises BlockReplaced where it is of another chain."""
    if span is None:
        return NOTHING
    given = (dataset.name, span.first, span.last)
    with place.app() as connection:
        if connection.row(place.queries["cold_any"], *given) is None:
            return NOTHING
        keep_s = float(place.config.lake.read_keep_s)
        connection.run(place.queries["cold_pin"], f"reading {dataset.name}", keep_s)
        found = connection.table(place.queries["cold_versions"], *given).to_pylist()
    _require_chain(place, [BlockRef(row["last_number"], row["last_hash"]) for row in found])
    folders = tuple(
        Folder(
            location=row["location"],
            span=Span(row["first_number"], row["last_number"]),
            files=tuple(lake_file.from_document(one) for one in json.loads(row["files"])),
        )
        for row in found
    )
    within = (spans.intersect(folder.span, span) for folder in folders)
    held = spans.merge(part for part in within if part is not None)
    return Cold(spans=held, folders=folders)


def _require_chain(place: Place, ends: Sequence[BlockRef]) -> None:
    """Raises BlockReplaced where the raw store has another block at the end of a version."""
    if not ends:
        return
    numbers = Sql("ARRAY[" + ", ".join(str(ref.number) for ref in ends) + "]::bigint[]")
    with place.raw() as connection:
        query = place.queries.made("cold_refs", numbers=numbers)
        rows = connection.table(query).to_pylist()
    ours = {row["number"]: row["hash"] for row in rows}
    for ref in ends:
        if ours.get(ref.number, ref.hash) != ref.hash:
            raise errors.BlockReplaced(
                f"the lake of {place.chain.name} holds block {ref}, where the chain has "
                f"0x{ours[ref.number].hex()[:10]}; read again, and where that does not help, see "
                "`unfork lake repair`",
                wanted=ref,
            )
