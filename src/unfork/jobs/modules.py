"""Owns the question where a module comes from: its source, and whether it is a project's own.

Nothing is imported to answer it, so the answer is the same whatever was imported before. A project
is what lies in the folder of its configuration, and whatever else Python finds that nobody has
installed: on the path, or a checkout that is worked on.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

#: Where what is installed lies, wherever its environment is.
INSTALLED = frozenset(("site-packages", "dist-packages"))

#: Our own package, which travels by itself.
OURS = "unfork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """A top-level module or package, as Python would import it."""

    name: str
    #: The file of a module, or the `__init__.py` of a package; None for a package without one.
    file: Path | None
    #: The folders of a package; none for a module.
    folders: tuple[Path, ...] = ()

    @property
    def places(self) -> tuple[Path, ...]:
        """What it consists of: its folders, or its one file."""
        return self.folders or ((self.file,) if self.file is not None else ())

    def is_in(self, folder: Path | None) -> bool:
        """Whether it lies in a folder itself."""
        return folder is not None and any(place.parent == folder for place in self.places)

    @property
    def is_installed(self) -> bool:
        """Whether it is Python's, ours or somebody's who was installed: not a project's own."""
        if self.name == OURS or not self.places:
            return True
        return any(
            INSTALLED & set(place.parts) or any(place.is_relative_to(lib) for lib in _LIBRARIES)
            for place in self.places
        )


_LIBRARIES = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib"))


@contextlib.contextmanager
def importable(folder: Path | None) -> Iterator[None]:
    """Lets modules of a project folder be found, before all others, while it lasts."""
    if folder is None:
        yield
        return
    text = os.fspath(folder)
    sys.path.insert(0, text)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(text)


def forget(folder: Path) -> None:
    """Lets the modules of a project be imported anew, as they are by then."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(folder):
            is_foreign = INSTALLED & set(Path(file).parts)
            if not is_foreign and name.partition(".")[0] not in (OURS, "__main__"):
                del sys.modules[name]
    importlib.invalidate_caches()


def top(name: str) -> Top | None:
    """A top-level module or package, None where there is none."""
    found = (finder.find_spec(name, None) for finder in sys.meta_path)
    spec = next((one for one in found if one is not None), None)
    if spec is None:
        return None
    origin = Path(spec.origin) if spec.has_location and spec.origin else None
    folders = tuple(Path(place) for place in spec.submodule_search_locations or ())
    return Top(name=name, file=origin, folders=folders)


def source(name: str) -> Path | None:
    """The source of a module, found without running it or the packages around it."""
    first, *inner = name.split(".")
    found = top(first)
    if found is None:
        return None
    file, folders = found.file, list(found.folders)
    for part in inner:
        places = [folder / part for folder in folders]
        file = next((one for place in places for one in _sources(place) if one.is_file()), None)
        folders = [place for place in places if place.is_dir()]
        if file is None and not folders:
            return None
    return file if file is not None and file.suffix == ".py" else None


def _sources(place: Path) -> tuple[Path, Path]:
    return place / "__init__.py", place.with_suffix(".py")
