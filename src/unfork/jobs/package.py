"""Owns code as one file: how it is packed, and unfork's own, for where it is not installed.

Only code travels: what it imports from others (pyarrow, the Postgres driver, pydantic) has parts
for one kind of machine and must be installed where the code runs.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from pyspark.sql import SparkSession

import unfork

#: What is part of the package: code, and the SQL that it names.
SUFFIXES = (".py", ".sql")
#: A zip file has a time for every entry; ours is always this one, so that equal code is one file.
MOMENT = (1980, 1, 1, 0, 0, 0)


def root() -> Path:
    """The folder that the package is imported from."""
    return Path(unfork.__file__).parents[1]


def build(folder: Path) -> Path:
    """Writes the package into a folder and returns the file, which is named for its content."""
    base = Path(unfork.__file__).parent
    files = {
        f"unfork/{path.relative_to(base).as_posix()}": path
        for path in base.rglob("*")
        if path.suffix in SUFFIXES
    }
    return write(files, folder, name="unfork")


def write(files: Mapping[str, Path], folder: Path, *, name: str) -> Path:
    """Packs files, each under the name it is to have, into one that is named for its content.

    Safe to repeat, and safe in several processes at once.
    """
    contents = {inner: files[inner].read_bytes() for inner in sorted(files)}
    digest = hashlib.sha256()
    for inner, content in contents.items():
        digest.update(f"{inner}\0{len(content)}\0".encode() + content)
    target = folder / f"{name}-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.{os.getpid()}")
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            # A package without an `__init__.py` is found by the entry of its folder alone.
            for above in sorted({f"{place}/" for inner in files for place in _above(inner)}):
                archive.writestr(zipfile.ZipInfo(above, MOMENT), b"")
            for inner, content in contents.items():
                archive.writestr(zipfile.ZipInfo(inner, MOMENT), content)
        new.replace(target)
    return target


def _above(inner: str) -> Iterator[str]:
    """The folders that a file in the archive is in."""
    return (str(place) for place in PurePosixPath(inner).parents if place.name)


def send(spark: SparkSession, file: Path) -> None:
    """Sends a packed file to where tasks run; safe to repeat.

    The file stays: executors come for it when they need it, which may be hours later. Spark puts it
    on our own path as well, where the modules are already, in a form that can be read and hashed.
    """
    spark.addArtifacts(str(file), pyfile=True)
    sys.path[:] = [place for place in sys.path if Path(place).name != file.name]
