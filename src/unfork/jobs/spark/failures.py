"""Owns the way of an error back from Spark: what a task raised, as the driver should treat it.

Spark hands on the text of a task's failure, inside an error of its own and of the language of its
driver. Our errors carry their code at the front of their message, so they are found again in it.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from pyspark.errors import PySparkException

from unfork import errors

_CODE = re.compile(r"\[(E\d{3})\] ([^\n]*)")
#: The traceback that Spark hands on of what a function raised in one of its Python processes.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(.*?)\n(?=\S)([^\n]+)", re.DOTALL)
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
#: Code that is nobody's job.
_FOREIGN = re.compile(r"site-packages|[/\\]pyspark[/\\]|[/\\]unfork[/\\]|<|lib/python\d")


def typed(error: BaseException) -> errors.UnforkError | None:
    """The error that a task of ours raised, None where Spark failed for a reason of its own."""
    if isinstance(error, errors.UnforkError):
        return error
    if not isinstance(error, PySparkException):
        return None
    found = _CODE.search(str(error))
    if found is None:
        return None
    kind = _BY_CODE.get(found.group(1), errors.UnforkError)
    return kind(found.group(2).strip())


def reason(error: BaseException) -> str:
    """What went wrong in a job's code, in one line: what was raised, and where in whose file."""
    text = str(error).strip() or type(error).__name__
    raised = _TRACEBACK.search(text)
    if isinstance(error, PySparkException):
        if raised is None:
            return text.splitlines()[0]
        frames = [(file, int(line)) for file, line in _FRAME.findall(raised.group(1))]
        return _placed(raised.group(2).strip(), frames)
    found = traceback.extract_tb(error.__traceback__)
    frames = [(frame.filename, frame.lineno or 0) for frame in found]
    return _placed(f"{type(error).__name__}: {text.splitlines()[0]}", frames)


def _placed(what: str, frames: list[tuple[str, int]]) -> str:
    """What was raised, with the last line of a stranger's code that it came through."""
    own = [(file, line) for file, line in frames if not _FOREIGN.search(file)]
    return f"{what} ({Path(own[-1][0]).name}:{own[-1][1]})" if own else what


def _tree(above: type[errors.UnforkError]) -> list[type[errors.UnforkError]]:
    return [above, *(each for below in above.__subclasses__() for each in _tree(below))]


_BY_CODE = {kind.code: kind for kind in _tree(errors.UnforkError)}
