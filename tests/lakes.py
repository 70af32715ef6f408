"""A lake for tests: versions in a real Postgres, files in a real folder, and writers of both kinds.

Rows are of one toy dataset; `stamp` tells which writing they are of, so that a reader who sees two
stamps in one partition has seen half of something.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa
from pyarrow import parquet

from tests.places import Place
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
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
