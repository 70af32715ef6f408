"""Owns a project's own modules: which of them its jobs run, and how they get to Spark's tasks.

A function that Spark runs in its tasks (a UDF, what `mapInArrow` is given) travels as a name: the
task imports its module. So the modules that the transforms of a project lead to are packed and sent
with the session, wherever Spark runs. What is installed is not sent: it has parts for one kind of
machine, and has to be installed where tasks run.

Which they are is read from their imports, wherever they stand, without running anything: a package
goes as a whole, with the files that it keeps beside its code. A module that is imported by a
computed name, and by no other way, has to be imported once where it can be seen.

Invariant: within one session a module is one module. The processes that run tasks keep what they
have imported, so a second version of it would reach some of them and not others: it is refused.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.machinery
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from unfork import errors
from unfork.jobs import modules, package
from unfork.jobs.builtin import BUILTINS
from unfork.jobs.catalog import Catalog
from unfork.jobs.modules import Top
from unfork.jobs.spark.failures import reason

#: Bytes that a project may send, at most: every process that runs tasks loads them.
SIZE_MAX = 64 * 2**20

#: What Python makes by itself.
CACHES = ("__pycache__",)

#: The settings of a session that say which version of a module it has.
SENT = "unfork.project."


def send(spark: SparkSession, catalog: Catalog, folder: Path) -> Path | None:
    """Sends what the jobs of a catalog run in tasks; the file, None where there is nothing to send.

    The file is made in `folder` and stays there. Safe to repeat: what a session has is not sent
    again. Raises CodeNotSent.
    """
    found = tops(_transforms(catalog), catalog.folder)
    packed = {name: _files(top) for name, top in sorted(found.items())}
    files = {inner: path for each in packed.values() for inner, path in each.items()}
    _require_size(files)
    marks = {name: _digest(each) for name, each in packed.items()}
    if not _lacks(spark, marks):
        return None
    try:
        file = package.write(files, folder, name="project")
        package.send(spark, file)
        for name, mark in marks.items():
            spark.conf.set(SENT + name, mark)
    except (OSError, PySparkException) as error:
        raise errors.CodeNotSent(
            f"the modules of {catalog.folder} cannot be sent to Spark: {error}"
        ) from error
    return file


def carry(catalog: Catalog) -> None:
    """Imports anew what the jobs of a catalog run in tasks, and lets it travel with each function.

    For a session that outlives changes of the code, which `send` refuses: a function is sent as it
    is instead of by its name. It costs as much as the code is large, each time.
    """
    by_value: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    found = tops(_transforms(catalog), catalog.folder)
    modules.forget(catalog.folder)
    with modules.importable(catalog.folder):
        for name in found:
            try:
                by_value(importlib.import_module(name))
            except Exception as error:
                # The code is a stranger's, and may be half written.
                where = reason(error)
                raise errors.CodeNotSent(f"`{name}` cannot be imported: {where}") from error


def tops(transforms: Iterable[str], folder: Path | None) -> Mapping[str, Top]:
    """The modules and packages of the project that transforms lead to, by name."""
    found: dict[str, Top] = {}
    waiting = [transform.partition(":")[0].partition(".")[0] for transform in transforms]
    with modules.importable(folder):
        while waiting:
            name = waiting.pop()
            if name in found:
                continue
            top = modules.top(name)
            if top is None or (top.is_installed and not top.is_in(folder)):
                continue
            found[name] = top
            for path in _files(top).values():
                if path.suffix == ".py":
                    waiting += _imported(path)
    return found


def _transforms(catalog: Catalog) -> Iterator[str]:
    builtin = {one.transform for one in BUILTINS.values()}
    for spec in catalog.specs:
        if spec.is_planned and spec.transform is not None and spec.transform not in builtin:
            yield spec.transform


def _files(top: Top) -> dict[str, Path]:
    """The files of a module or package by the name that Python finds them under."""
    found: dict[str, Path] = {}
    for folder in top.folders:
        for path in sorted(folder.rglob("*")):
            inner = path.relative_to(folder)
            is_hidden = any(part.startswith(".") or part in CACHES for part in inner.parts)
            if path.is_file() and not is_hidden:
                found[f"{top.name}/{inner.as_posix()}"] = path
    if not top.folders and top.file is not None:
        found[top.file.name] = top.file
    for path in found.values():
        if path.name.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
            raise errors.CodeNotSent(
                f"{path} is compiled for this machine and cannot be sent to Spark; install "
                f"`{top.name}` where Spark runs its tasks, and here"
            )
    return found


def _imported(path: Path) -> Iterator[str]:
    """The top-level names that a module imports, anywhere in its code."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # It is not Python, or not this one; whoever imports it will say so.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def _digest(files: Mapping[str, Path]) -> str:
    digest = hashlib.sha256()
    for inner, path in files.items():
        digest.update(f"{inner}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _require_size(files: Mapping[str, Path]) -> None:
    sizes = {path: path.stat().st_size for path in files.values()}
    total = sum(sizes.values())
    if total > SIZE_MAX:
        largest = max(sizes, key=sizes.__getitem__)
        raise errors.CodeNotSent(
            f"the modules that the jobs run have {total:,} bytes, of which at most {SIZE_MAX:,} "
            f"can be sent to Spark; the largest file is {largest}: keep data out of packages"
        )


def _lacks(spark: SparkSession, marks: Mapping[str, str]) -> bool:
    """Whether a session lacks modules; raises where it has another version of one."""
    known = {name: spark.conf.get(SENT + name, None) for name in marks}
    for name, mark in known.items():
        if mark not in (None, marks[name]):
            raise errors.CodeNotSent(
                f"`{name}` has changed since it was sent to this session of Spark, which keeps "
                "what it has; end it and start again"
            )
    return None in known.values()
