"""Owns the removal of what nobody needs: versions without a pointer or a reader, and stray folders.

It is a step of its own, which a person or a schedule takes; publishing never removes anything.
Files go before their record does: a run that dies in the middle is simply run again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from unfork.lake import layout
from unfork.lake.storage import Storage
from unfork.lake.versions import Garbage, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """A folder that looks like a version and that no version names: a reset left it."""

    location: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What can be removed."""

    #: Versions that were replaced, or never published.
    versions: tuple[Garbage, ...]
    strays: tuple[Stray, ...]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not self.versions and not self.strays


async def find(versions: Versions, storage: Storage, *, keep_s: float) -> Found:
    """What nobody needs; versions that were replaced less than `keep_s` seconds ago are left."""
    # First the folders, then the records: whoever writes a folder has recorded it before.
    folders = await asyncio.to_thread(_folders, storage, versions.chain)
    known = await versions.locations()
    garbage = await versions.garbage(keep_s=keep_s)
    return Found(
        versions=tuple(garbage),
        strays=tuple(folders[name] for name in sorted(folders) if name not in known),
    )


async def remove(versions: Versions, storage: Storage, found: Found) -> None:
    """Removes what was found; safe to repeat and to run twice at once."""
    for stray in found.strays:
        await asyncio.to_thread(storage.remove, stray.location)
    for garbage in found.versions:
        await asyncio.to_thread(storage.remove, garbage.location)
        await versions.forget([garbage.version])


def _folders(storage: Storage, chain: str) -> dict[str, Stray]:
    """Every folder of a version that is there, by name."""
    found: dict[str, tuple[int, int]] = {}
    for stored in storage.files(chain):
        location = layout.of_file(stored.path)
        if location is not None:
            count, size = found.get(location, (0, 0))
            found[location] = (count + 1, size + stored.bytes)
    return {
        location: Stray(location=location, files=count, bytes=size)
        for location, (count, size) in found.items()
    }
