"""A lake for tests: versions in a real Postgres, files in a real folder, and writers of both kinds.

Rows are of one toy dataset; `stamp` tells which writing they are of, so that a reader who sees two
stamps in one partition has seen half of something.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import parquet

from tests.places import Place
from tests.sparks import Near
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.jobs.spark import reading
from unfork.lake import layout
from unfork.lake.file import File
from unfork.lake.storage import Storage
from unfork.lake.versions import Claim, Lost, Target, Version, Versions, Written

ROWS = pa.schema(
    [
        pa.field("block_number", pa.int64(), nullable=False),
        pa.field("stamp", pa.int64(), nullable=False),
        pa.field("data", pa.binary()),
    ]
)

LEASE_S = 60.0


def hash_of(number: int, fork: str = "") -> bytes:
    """The hash of a block of the toy chain."""
    return hashlib.sha256(f"{fork}{number}".encode()).digest()


def target(span: Span, *, replaces: Version | None = None, dataset: str = "toys") -> Target:
    """A partition that is to be written."""
    return Target(
        dataset=dataset,
        key=layout.key(span),
        span=span,
        config_hash="c",
        schema_hash="s",
        replaces=None if replaces is None else replaces.version,
    )


def table(span: Span, stamp: int, each: int = 3) -> pa.Table:
    """Some rows for every block of a span."""
    numbers = [number for number in range(span.first, span.last + 1) for _ in range(each)]
    data = [b"%d/%d" % (stamp, number) for number in numbers]
    return pa.table([numbers, [stamp] * len(numbers), data], schema=ROWS)


@dataclass
class Lake:
    """A chain's lake."""

    place: Place
    storage: Storage
    versions: Versions
    #: What `publish` numbered its writings by.
    stamps: int = field(default=0)

    async def final_up_to(self, number: int, *, epoch: int = 1) -> None:
        """Lets the app side know the chain as final up to a block."""
        await self.place.app_rows(
            "UPDATE {app}.follower SET seq = 1, epoch = %(epoch)s, first_number = 0,"
            " position_number = %(number)s, position_hash = %(hash)s,"
            " floor_number = %(number)s, floor_hash = %(hash)s",
            number=number,
            hash=hash_of(number),
            epoch=epoch,
        )

    async def claim(
        self, span: Span, *, replaces: Version | None = None, lease_s: float = LEASE_S
    ) -> Claim | None:
        return await self.versions.claim(
            target(span, replaces=replaces), worker="test", lease_s=lease_s
        )

    def write(self, claim: Claim, rows: pa.Table) -> tuple[File, ...]:
        """Writes the files of a version with Arrow, two of them, or none without rows."""
        folder = self.storage.root.removeprefix("file://") + "/" + claim.location
        system, _ = self.storage.opened(claim.location)
        system.create_dir(folder, recursive=True)
        found = []
        half = (rows.num_rows + 1) // 2
        for number, part in enumerate((rows.slice(0, half), rows.slice(half))):
            if part.num_rows:
                name = f"part-{number}.parquet"
                parquet.write_table(part, f"{folder}/{name}", compression="zstd")
                found.append(self._file(claim, name, part))
        return tuple(found)

    def written(
        self, span: Span, files: Iterable[File], *, fork: str = "", parent: str = "", epoch: int = 1
    ) -> Written:
        return Written(
            files=tuple(files),
            first_hash=hash_of(span.first, fork),
            parent_hash=None if span.first == 0 else hash_of(span.first - 1, parent),
            last=BlockRef(span.last, hash_of(span.last, fork)),
            epoch=epoch,
        )

    async def publish(
        self, span: Span, *, replaces: Version | None = None, each: int = 3
    ) -> Version:
        """Claims, writes and publishes."""
        self.stamps += 1
        claim = await self.claim(span, replaces=replaces)
        assert claim is not None
        files = self.write(claim, table(span, self.stamps, each))
        published = await self.versions.publish(claim, self.written(span, files))
        assert not isinstance(published, Lost), published.why
        return published

    def _file(self, claim: Claim, name: str, part: pa.Table) -> File:
        path = f"{claim.location}/{name}"
        numbers = part["block_number"].to_pylist()
        return File(
            name=name,
            size=next(one.bytes for one in self.storage.files(path.rpartition("/")[0])),
            rows=part.num_rows,
            content=sum(numbers),
            sha256=self.storage.sha256(path),
            first=min(numbers),
            last=max(numbers),
        )


def lake(place: Place) -> Lake:
    """The lake of a place."""
    storage = Storage.at(str(place.folder / "lake"))
    return Lake(place, storage, Versions(place.name, place.app, place.app_database()))


@dataclass
class RawLake:
    """The lake of a chain with real raw datasets, filled with Arrow: what compaction does on Spark.

    Rows come from the hot tables by the same reading, so only who writes the file is another.
    """

    near: Near
    versions: Versions
    storage: Storage

    @property
    def place(self) -> Place:
        return self.near.place

    async def compact(self, dataset: str, span: Span, *, dies: bool = False) -> Version | None:
        """Publishes a partition from the hot tables; with `dies` only its file is written."""
        target_of = target(span, dataset=dataset)
        claim = await self.versions.claim(
            target_of, worker="test", lease_s=0.001 if dies else LEASE_S
        )
        assert claim is not None
        hot = self.near.read(dataset, first=span.first, last=span.last, store="hot")
        # Values in the payload store are fetched in a loop of their own.
        rows = (await asyncio.to_thread(reading.table, hot)).sort_by(
            [(name, "ascending") for name in hot.dataset.key]
        )
        files = self._write(claim, rows, hot.dataset.number_column)
        if dies:
            return None
        refs = {ref.number: ref.hash for ref in await self.near.place.reader().refs(span)}
        below = Span(span.first - 1, span.first - 1) if span.first else None
        parent = await self.near.place.reader().refs(below) if below is not None else []
        published = await self.versions.publish(
            claim,
            Written(
                files=files,
                first_hash=refs[span.first],
                parent_hash=parent[0].hash if parent else None,
                last=BlockRef(span.last, refs[span.last]),
                epoch=hot.moment.epoch,
            ),
        )
        assert not isinstance(published, Lost), published.why
        return published

    async def forget_hot(self, dataset: str, span: Span) -> None:
        """Takes rows out of a hot table, so that only the lake has them."""
        number = evm.BY_NAME[dataset].number_column
        await self.place.rows(
            f"DELETE FROM {{raw}}.{dataset} WHERE {number} BETWEEN {span.first} AND {span.last}"
        )

    def _write(self, claim: Claim, rows: pa.Table, number: str) -> tuple[File, ...]:
        if not rows.num_rows:
            return ()
        system, folder = self.storage.opened(claim.location)
        system.create_dir(folder, recursive=True)
        # Small groups, so that readers choose among them.
        parquet.write_table(rows, f"{folder}/part.parquet", row_group_size=7, filesystem=system)
        path = f"{claim.location}/part.parquet"
        numbers = rows[number].to_pylist()
        return (
            File(
                name="part.parquet",
                size=next(self.storage.files(claim.location)).bytes,
                rows=rows.num_rows,
                content=0,
                sha256=self.storage.sha256(path),
                first=min(numbers),
                last=max(numbers),
            ),
        )


def raw_lake(near: Near) -> RawLake:
    """The lake of a chain's raw datasets, where a configuration has it by default."""
    place = near.place
    storage = Storage.at(str(place.folder / "lake"))
    return RawLake(near, Versions(place.name, place.app, place.app_database()), storage)
