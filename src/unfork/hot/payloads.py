"""Owns the payload store: large values kept once, by their SHA-256, outside Postgres.

A value is written before any row refers to it and read back before it counts as written; what is
read later must hash to its name. A folder is written through a temporary file that is synced and
renamed, so that a name never stands for half a value; a bucket's own writes are atomic.

A blob is removed by `repair.sweep` alone, and never while a commit that reuses it is under way.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import fsspec

from unfork import errors, telemetry
from unfork.config import tree

_T = TypeVar("_T")

#: The file that names the owner of a store.
_OWNER = "OWNER"

#: The folders of a store, by the first byte of the hash: a listing is never longer than one.
FOLDERS = tuple(f"{byte:02x}" for byte in range(256))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A value in the store."""

    #: SHA-256 of the value.
    hash: bytes
    #: Where the store keeps it.
    ref: str
    #: Bytes of the value.
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """What the store has under one name, whatever the database says of it."""

    ref: str
    #: When it was last written or touched, in seconds since 1970.
    touched_at: float


class PayloadStore:
    """The values of one chain, in a folder or a bucket."""

    def __init__(self, url: str) -> None:
        scheme = urlsplit(url).scheme
        #: How the store is called in errors.
        self.shown = telemetry.redact(url)
        self._place: _Place
        if scheme in ("", "file"):
            self._place = _Folder(Path(url.removeprefix("file://").removeprefix("file:")))
        else:
            self._place = _Bucket(url)

    @classmethod
    def of(cls, config: tree.Config, name: str) -> PayloadStore:
        """The store of a chain by its name, or a part of it, where the configuration has it."""
        root = config.payloads.store or f"file:{Path(config.data_dir).resolve() / 'payloads'}"
        return cls(f"{root.rstrip('/')}/{name}")

    async def owner(self) -> str | None:
        """Who the store belongs to, None where it is nobody's."""
        found = await self._work(lambda: self._place.read(_OWNER))
        return None if found is None else found.decode("ascii", "replace").strip()

    async def own(self, owner: str) -> None:
        """Says who the store belongs to from now on."""
        await self._work(lambda: self._place.write(_OWNER, f"{owner}\n".encode()))

    async def put(self, values: Sequence[bytes]) -> list[Stored]:
        """Stores the values and reads each back; safe to repeat."""
        return await self._work(lambda: [self._put(value) for value in values])

    async def get(self, ref: str, hash: bytes) -> bytes:
        """The value, which hashes to its name; raises PayloadDamaged otherwise."""
        return await self._work(lambda: self._get(ref, hash))

    async def missing(self, stored: Sequence[Stored]) -> list[Stored]:
        """Those of the values that are no longer there."""
        return await self._work(lambda: [one for one in stored if not self._place.exists(one.ref)])

    async def is_sound(self, ref: str, hash: bytes) -> bool:
        """Whether the value is there and hashes to its name."""
        try:
            await self.get(ref, hash)
        except errors.PayloadDamaged:
            return False
        return True

    async def remove(self, refs: Sequence[str]) -> None:
        """Removes values; safe to repeat."""

        def all_of_them() -> None:
            for ref in refs:
                self._place.remove(ref)

        await self._work(all_of_them)

    async def clear(self) -> None:
        """Removes everything below the store's root; safe to repeat."""
        await self._work(self._place.clear)

    async def blobs(self, folder: str) -> list[Blob]:
        """What the store holds in one of `FOLDERS`, temporary files of crashed writes included."""
        return await self._work(lambda: list(self._place.blobs(folder)))

    async def _work(self, work: Callable[[], _T]) -> _T:
        """Works beside the event loop; a store that fails is one to ask again."""
        try:
            return await asyncio.to_thread(work)
        except errors.UnforkError:
            raise
        except Exception as error:
            # A provider's own errors name hosts and keys: only their kind is told.
            said = getattr(error, "strerror", None) or type(error).__name__
            raise errors.Retryable(
                f"the payload store failed ({said}); it is tried again"
            ) from error

    def _put(self, value: bytes) -> Stored:
        digest = hashlib.sha256(value).digest()
        ref = ref_of(digest)
        held = self._place.read(ref)
        if held == value:
            self._place.touch(ref, value)
        else:
            self._place.write(ref, value)
            if self._place.read(ref) != value:
                raise errors.PayloadDamaged(
                    f"payload {ref} did not read back as it was written; check the store", ref=ref
                )
        return Stored(hash=digest, ref=ref, size=len(value))

    def _get(self, ref: str, hash: bytes) -> bytes:
        value = self._place.read(ref)
        if value is None:
            raise errors.PayloadDamaged(f"payload {ref} is missing; run `unfork repair`", ref=ref)
        if hashlib.sha256(value).digest() != hash:
            raise errors.PayloadDamaged(
                f"payload {ref} does not hash to its name; run `unfork repair`", ref=ref
            )
        return value


def ref_of(digest: bytes) -> str:
    """The name of a value in the store: its hash, in 256 folders."""
    name = digest.hex()
    return f"{name[:2]}/{name}"


def hash_of(ref: str) -> bytes | None:
    """The hash that a name in the store stands for; None for a temporary file."""
    name = ref.rpartition("/")[2]
    return bytes.fromhex(name) if len(name) == 64 and not name.startswith("writing-") else None


class _Place(Protocol):
    def read(self, ref: str) -> bytes | None: ...
    def write(self, ref: str, value: bytes) -> None: ...
    def touch(self, ref: str, value: bytes) -> None: ...
    def exists(self, ref: str) -> bool: ...
    def remove(self, ref: str) -> None: ...
    def blobs(self, folder: str) -> Iterator[Blob]: ...
    def clear(self) -> None: ...


class _Folder:
    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, ref: str) -> bytes | None:
        try:
            return (self._root / ref).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, ref: str, value: bytes) -> None:
        path = self._root / ref
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix="writing-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(value)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
        # Without this the file could be gone after a power cut although the rows are not.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def touch(self, ref: str, value: bytes) -> None:
        os.utime(self._root / ref)

    def exists(self, ref: str) -> bool:
        return (self._root / ref).exists()

    def remove(self, ref: str) -> None:
        (self._root / ref).unlink(missing_ok=True)

    def blobs(self, folder: str) -> Iterator[Blob]:
        for path in sorted((self._root / folder).glob("*")):
            yield Blob(ref=str(path.relative_to(self._root)), touched_at=path.stat().st_mtime)

    def clear(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)


class _Bucket:
    def __init__(self, url: str) -> None:
        self._files, self._root = fsspec.core.url_to_fs(url)

    def read(self, ref: str) -> bytes | None:
        try:
            value: bytes = self._files.cat_file(self._path(ref))
        except FileNotFoundError:
            return None
        return value

    def write(self, ref: str, value: bytes) -> None:
        self._files.pipe_file(self._path(ref), value)

    def touch(self, ref: str, value: bytes) -> None:
        # Objects have no touch that every provider knows: writing it again moves its time.
        self.write(ref, value)

    def exists(self, ref: str) -> bool:
        return bool(self._files.exists(self._path(ref)))

    def remove(self, ref: str) -> None:
        if self.exists(ref):
            self._files.rm_file(self._path(ref))

    def blobs(self, folder: str) -> Iterator[Blob]:
        found: dict[str, dict[str, Any]] = self._files.find(self._path(folder), detail=True)
        for path, detail in sorted(found.items()):
            moment = detail.get("LastModified") or detail.get("mtime") or detail.get("updated")
            yield Blob(ref="/".join(path.split("/")[-2:]), touched_at=_seconds(moment))

    def clear(self) -> None:
        if self._files.exists(self._root):
            self._files.rm(self._root, recursive=True)

    def _path(self, ref: str) -> str:
        return f"{self._root}/{ref}"


def _seconds(moment: Any) -> float:
    """A provider's time of change; where it gives none, now: too young to be swept."""
    if moment is None:
        return time.time()
    if hasattr(moment, "timestamp"):
        return float(moment.timestamp())
    return float(moment)
