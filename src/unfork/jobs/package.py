"""Owns unfork's own code as one file, for executors and servers that do not have it installed.

Only our code travels: what it imports from others (pyarrow, the Postgres driver, pydantic) has
parts for one kind of machine and must be installed where the code runs.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import unfork

#: What is part of the package: code, and the SQL that it names.
SUFFIXES = (".py", ".sql")
#: A zip file has a time for every entry; ours is always this one, so that equal code is one file.
MOMENT = (1980, 1, 1, 0, 0, 0)


def root() -> Path:
    """The folder that the package is imported from."""
    return Path(unfork.__file__).parents[1]


def build(folder: Path) -> Path:
    """Writes the package into a folder and returns the file, which is named for its content.

    Safe to repeat, and safe in several processes at once.
    """
    base = Path(unfork.__file__).parent
    files = sorted(path for path in base.rglob("*") if path.suffix in SUFFIXES)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(base)}\0".encode() + path.read_bytes() + b"\0")
    target = folder / f"unfork-{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        new = target.with_name(f"{target.name}.{os.getpid()}")
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                name = f"unfork/{path.relative_to(base)}"
                archive.writestr(zipfile.ZipInfo(name, MOMENT), path.read_bytes())
        new.replace(target)
    return target
