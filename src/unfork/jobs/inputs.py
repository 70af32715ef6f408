"""Owns the reading of datasets for what is no run of its own: checks, and previews.

A moment is some blocks and the block they end with, by hash. Whatever is read at it is of one
chain, or the reading fails and is done again: a state of a database that holds a block holds its
whole chain.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.jobs.declaration import Declarations
from unfork.jobs.spark import options, raw_reading, reading, schema
from unfork.jobs.spark.options import Request
from unfork.jobs.spark.place import Place
from unfork.jobs.spark.snapshot import Snapshots
from unfork.jobs.verdict import Anchor, AsRead

#: Blocks that the driver reads by itself, at most.
LOCAL_BLOCKS_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What ties some blocks to the chain, and the chain as it was read."""

    anchor: Anchor
    as_read: AsRead


class Inputs:
    """Reads the datasets of one chain."""

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        declarations: Declarations,
        *,
        config: str | None,
        local_blocks_max: int = LOCAL_BLOCKS_MAX,
    ) -> None:
        """`config` is the path by which tasks find the configuration, None for their own."""
        self._spark = spark
        self._place = place
        self._declarations = declarations
        self._config = config
        self._local_blocks_max = local_blocks_max

    def look(self, span: Span) -> Moment:
        """The two ends of a span as the raw store holds them; raises BlockReplaced."""
        with self._place.raw() as connection, connection.one_state(None):
            row = connection.row(self._place.queries["read_ends"], span.first, span.last)
        if row is None or row["hash"] is None:
            raise raw_reading.replaced(BlockRef(span.last, b""), None, self._place)
        is_first = span.first == row["first_number"]
        return Moment(
            anchor=Anchor(
                span=span,
                parent_hash=None if is_first else row["parent_hash"],
                last=BlockRef(span.last, row["hash"]),
            ),
            as_read=AsRead(epoch=row["epoch"], floor=row["floor_number"]),
        )

    def read(
        self,
        name: str,
        moment: Moment,
        columns: tuple[str, ...] = (),
        held: Snapshots | None = None,
        *,
        is_whole: bool = False,
    ) -> DataFrame:
        """A dataset in some blocks, or in all up to the last of them, as one chain had it there.

        A few blocks are read here, more by tasks: from the states that a run holds, or where none
        is held, from any that has the block up to which is read.
        """
        span = moment.anchor.span
        first = None if is_whole or self._declarations.is_state(name) else span.first
        if held is None and not is_whole and len(span) <= self._local_blocks_max:
            return self._local(name, moment, columns, first)
        given = {"dataset": name, "chain": self._place.chain.name, "last": str(span.last)}
        if held is None:
            given["at"] = options.text(moment.anchor.last)
        else:
            state = held.app if self._declarations.is_derived(name) else held.raw
            assert state is not None
            given |= state.options()
        if first is not None:
            given["first"] = str(first)
        if columns:
            given["columns"] = ",".join(columns)
        if self._config is not None:
            given["config"] = self._config
        return self._spark.read.format("unfork").options(**given).load()

    def _local(
        self, name: str, moment: Moment, columns: tuple[str, ...], first: int | None
    ) -> DataFrame:
        as_read = moment.as_read
        request = Request(
            dataset=name,
            chain=self._place.chain.name,
            config=self._config,
            first=first,
            last=moment.anchor.span.last,
            columns=columns,
            at=moment.anchor.last,
            floor=-1 if as_read.floor is None else as_read.floor,
            epoch=as_read.epoch,
        )
        found = reading.resolve(request)
        frame = self._spark.createDataFrame(reading.table(found), schema.struct(found.columns))
        # In one piece nothing has to be shuffled, which costs more than all the rest.
        return frame.coalesce(1)
