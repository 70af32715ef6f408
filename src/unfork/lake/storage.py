"""Owns the root of the lake: a folder or a bucket, as Spark and as we ourselves reach it.

Spark reads and writes through Hadoop's file systems; listing, hashing and removing go through
Arrow's, which every process has. Names are given below the root, with / between them, so a lake may
be moved as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from unfork import errors
from unfork.config import tree

#: Bytes read at once while a file is hashed.
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A file of the lake."""

    #: Its name below the root.
    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Storage:
    """A lake; a value that travels to where tasks run."""

    #: The root as Spark is told it.
    root: str

    @classmethod
    def of(cls, config: tree.Config) -> Storage:
        """The lake of a configuration."""
        return cls.at(config.lake.url or str(Path(config.data_dir) / "lake"))

    @classmethod
    def at(cls, url: str) -> Storage:
        """The lake at a URL, or in a folder."""
        parts = urlsplit(url)
        if parts.scheme in ("s3", "s3a"):
            return cls(f"s3a://{parts.netloc}{parts.path.rstrip('/')}")
        if parts.scheme == "gs":
            return cls(f"gs://{parts.netloc}{parts.path.rstrip('/')}")
        folder = unquote(parts.path) if parts.scheme == "file" else url
        return cls(Path(folder).absolute().as_uri())

    def url(self, path: str) -> str:
        """A name below the root as Spark is told it."""
        return f"{self.root}/{path}"

    def files(self, path: str = "") -> Iterator[Stored]:
        """Every file below a folder; none where there is no such folder."""
        system, root = self._opened()
        base = f"{root}/{path}".rstrip("/")
        selector = fs.FileSelector(base, allow_not_found=True, recursive=True)
        for info in system.get_file_info(selector):
            if info.type is fs.FileType.File:
                yield Stored(path=info.path[len(root) + 1 :], bytes=info.size)

    def remove(self, path: str) -> None:
        """Removes a folder with all that is in it; safe to repeat."""
        assert path.strip("/"), "the root itself is nobody's to remove"
        system, root = self._opened()
        target = f"{root}/{path}"
        if system.get_file_info(target).type is not fs.FileType.NotFound:
            system.delete_dir(target)

    def sha256(self, path: str) -> bytes:
        """The SHA-256 of a file, read piece by piece."""
        system, root = self._opened()
        digest = hashlib.sha256()
        with system.open_input_stream(f"{root}/{path}") as stream:
            while piece := stream.read(_PIECE):
                digest.update(piece)
        return digest.digest()

    def opened(self, path: str) -> tuple[fs.FileSystem, str]:
        """The file system of a file, and its name there: what Arrow's readers take."""
        system, root = self._opened()
        return system, f"{root}/{path}"

    def _opened(self) -> tuple[fs.FileSystem, str]:
        """Arrow's file system, and the root within it."""
        url = self.root.replace("s3a://", "s3://", 1)
        try:
            system, root = fs.FileSystem.from_uri(url)
        except (OSError, ValueError, NotImplementedError) as error:
            raise errors.ToolMissing(
                f"lake.url: this machine cannot reach {self.root.split('/')[0]}// ({error})"
            ) from error
        return system, root.rstrip("/")
