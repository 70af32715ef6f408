"""Owns what a Python process of Spark is told once: that what it imported is here to stay.

Spark collects garbage in its Python processes after every request, and each time walks over
everything that was ever imported: tens of milliseconds of a processor, three times a query, for
processes that hold hardly anything else. What is there once our code is there stays out of it.
"""

from __future__ import annotations

import functools
import gc
import sys

#: The program that Spark's Python processes are forks of.
_DAEMON = "pyspark.daemon"


@functools.cache
def settle() -> bool:
    """Leaves what there is to the end of the process; says whether this is one of Spark's.

    Does nothing anywhere else: a program that has imported us collects its garbage as it likes.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    is_ours = spec is not None and spec.name == _DAEMON
    if is_ours:
        gc.collect()
        gc.freeze()
    return is_ours
