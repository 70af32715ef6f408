"""Owns the partitions of the raw tables: made ahead of need, never inside a commit.

What a batch needs is made with patience; what lies ahead is tried briefly and left for the next
time when something is in the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from unfork import errors, telemetry
from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.database import partitions
from unfork.database.queries import Queries
from unfork.database.session import Session
from unfork.datasets.dataset import Dataset

log = telemetry.logger(__name__)

#: Partitions kept ready after the one in use.
AHEAD = 2
#: Tries of a partition that a batch needs, each as long as lock_timeout.
ATTEMPTS = 20
#: Milliseconds that a partition ahead of need may wait for its lock.
BRIEF_MS = 20

#: Blocks that must be held before their density is taken for that of a whole partition.
BLOCKS_TO_TELL = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition as the database has it."""

    table: str
    name: str
    span: Span
    #: Rows, as the last ANALYZE counted them.
    rows: int
    #: Whether it was being detached when something interrupted that.
    is_leaving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a partition is, and will be."""

    partition: Partition
    #: Bytes on disk now, indexes included.
    bytes: int
    #: Bytes when every block of its span is held: as dense as now, or by the declaration's guess of
    #: one row a block where too few blocks are held to tell.
    bytes_full: int


class Partitions:
    """The partition manager of one chain."""

    def __init__(
        self,
        *,
        schema: str,
        datasets: Sequence[Dataset],
        sizes: Mapping[str, int],
        queries: Queries,
        lock_timeout_ms: int = 500,
    ) -> None:
        self._schema = schema
        self._datasets = {dataset.name: dataset for dataset in datasets}
        self._sizes = {d.name: sizes.get(d.name, d.partition_size) for d in datasets}
        self._queries = queries
        self._lock_timeout_ms = lock_timeout_ms
        self._known: dict[str, list[Span]] | None = None
        #: Where the last brief try failed: it is not repeated for every block of a partition.
        self._put_off: dict[str, int] = {}

    def forget(self) -> None:
        """Reads the partitions again at the next need."""
        self._known = None
        self._put_off = {}

    async def ensure(self, session: Session, needed: Span, tables: Iterable[str]) -> None:
        """Makes what the span needs, and tries to make what comes after it.

        Costs nothing while everything is there. Raises PartitionBusy where a needed one cannot be
        made in time; must not be called in a transaction.
        """
        for table in tables:
            known = await self._read(session, table)
            wanted = spans.missing(known, needed, self._sizes[table], ahead=AHEAD)
            for new in wanted:
                if new.overlaps(needed):
                    await self._attach_patiently(session, table, new)
                elif not await self._attach_briefly(session, table, new, needed.last):
                    break

    async def all(self, session: Session) -> list[Partition]:
        """Every partition there is, by table and span."""
        found = await partitions.attached(session, schema=self._schema, tables=list(self._datasets))
        return [
            Partition(
                table=one.table,
                name=one.name,
                span=Span(one.first, one.end - 1),
                rows=one.rows,
                is_leaving=one.is_leaving,
            )
            for one in found
        ]

    async def sizes(self, session: Session, held: Span | None) -> list[Size]:
        """Every partition with its size now, and the estimate of it when full.

        `held` is what the chain holds; it may start in the middle of a partition.
        """
        found = []
        for partition in await self.all(session):
            row = await session.row(
                self._queries["partitions_bytes"], schema=self._schema, partition=partition.name
            )
            assert row is not None
            within = spans.intersect(held, partition.span) if held is not None else None
            full = self._datasets[partition.table].row_bytes * len(partition.span)
            if within is not None and len(within) >= BLOCKS_TO_TELL:
                full = row["bytes"] * len(partition.span) // len(within)
            found.append(Size(partition=partition, bytes=row["bytes"], bytes_full=full))
        return found

    async def remove(self, session: Session, table: str, held: Span) -> None:
        """Detaches and drops one partition, waiting for its readers; safe to repeat.

        The caller has made sure that nobody needs its rows. Raises PartitionBusy where a run has
        pinned them. Must not be called in a transaction.
        """
        pin = await session.row(self._queries["pins_lowest"])
        if pin is not None and pin["first"] <= held.last:
            raise errors.PartitionBusy(
                f"partition {held} of {table} is being read: {pin['holder']} pinned the blocks "
                f"from {pin['first']} on",
                table=table,
                span=str(held),
            )
        name = partitions.name(table, held.first)
        for partition in await self.all(session):
            if partition.name == name:
                query = "partitions_detach_finish" if partition.is_leaving else "partitions_detach"
                await session.run(self._queries.of(query, name, table=table, partition=name))
        await session.run(self._queries.of("partitions_drop", name, partition=name))
        self.forget()

    async def _read(self, session: Session, table: str) -> list[Span]:
        if self._known is None:
            known: dict[str, list[Span]] = {name: [] for name in self._datasets}
            for partition in await self.all(session):
                known[partition.table].append(partition.span)
            self._known = known
        return self._known[table]

    async def _attach_patiently(self, session: Session, table: str, new: Span) -> None:
        for _ in range(ATTEMPTS):
            if await self._attach(session, table, new, self._lock_timeout_ms):
                return
        raise errors.PartitionBusy(
            f"partition {new} of {table} could not be attached: something holds a lock on "
            f"{self._schema}.{table} for long (a maintenance command, perhaps)",
            table=table,
            span=str(new),
        )

    async def _attach_briefly(self, session: Session, table: str, new: Span, at: int) -> bool:
        # A hundredth of a partition is far from its end, and seldom enough.
        pause = max(1, self._sizes[table] // 100)
        if at < self._put_off.get(table, 0):
            return False
        if await self._attach(session, table, new, BRIEF_MS):
            return True
        self._put_off[table] = at + pause
        return False

    async def _attach(self, session: Session, table: str, new: Span, timeout_ms: int) -> bool:
        """Makes one partition in a transaction of its own; False when a lock was in the way."""
        is_made = await partitions.attach(
            session,
            schema=self._schema,
            table=table,
            number=self._datasets[table].number_column,
            first=new.first,
            end=new.last + 1,
            timeout_ms=timeout_ms,
        )
        if not is_made:
            telemetry.event(log, "partition_busy", table=table, span=str(new))
            return False
        assert self._known is not None
        self._known[table] = sorted({*self._known[table], new})
        telemetry.event(log, "partition_made", table=table, span=str(new))
        return True
