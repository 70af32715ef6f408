"""Owns the connections that readers of one process use one after another.

To connect costs more than to read a few blocks: the driver asks the server for its types first. So
a connection that served its reader well is kept for the next one. One that a reader left in the
middle of something is closed, and one that has died meanwhile is noticed before it is lent.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from unfork import errors
from unfork.database.queries import Query
from unfork.jobs.spark.connection import Connection

#: Connections kept for one database while nobody needs them.
KEPT_MAX = 4

_ALIVE = Query("alive", "SELECT 1")

_lock = threading.Lock()
#: By process and by what they were opened with: a forked process must not use its parent's.
_kept: dict[tuple[int, str], list[Connection]] = defaultdict(list)


@contextmanager
def lent(key: str, connect: Callable[[], Connection]) -> Iterator[Connection]:
    """A connection for one reader; `key` says what it was opened with."""
    place = (os.getpid(), key)
    connection = _taken(place) or connect()
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    with _lock:
        if len(_kept[place]) < KEPT_MAX:
            _kept[place].append(connection)
            return
    connection.close()


def _taken(place: tuple[int, str]) -> Connection | None:
    """A kept connection that is still alive, None where there is none."""
    while True:
        with _lock:
            if not _kept[place]:
                return None
            connection = _kept[place].pop()
        try:
            connection.run(_ALIVE)
        except errors.UnforkError:
            connection.close()
        else:
            return connection
