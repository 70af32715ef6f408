"""Owns the way of an error back from Spark: what a task raised, as the driver should treat it.

Spark hands on the text of a task's failure, inside an error of its own and of the language of its
driver. Our errors carry their code at the front of their message, so they are found again in it.
"""

from __future__ import annotations

import re

from pyspark.errors import PySparkException

from unfork import errors

_CODE = re.compile(r"\[(E\d{3})\] ([^\n]*)")


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


def _tree(above: type[errors.UnforkError]) -> list[type[errors.UnforkError]]:
    return [above, *(each for below in above.__subclasses__() for each in _tree(below))]


_BY_CODE = {kind.code: kind for kind in _tree(errors.UnforkError)}
