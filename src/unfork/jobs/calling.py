"""Owns the way of a run to its chain's node: from a thread that may block to a source that may not.

A source lives on an event loop, where its endpoints, their breakers and their limits are shared by
all runs of a worker. Runs compute in threads. What a thread asks for is run on the loop, and the
thread waits; once its run is given up, so is what it waits for.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from unfork import errors
from unfork.chain.block import BlockRef
from unfork.sources.source import ContractCall, Returned, Source

T = TypeVar("T")


class Calls(Protocol):
    """Contract reads for code that blocks."""

    def call(self, calls: Sequence[ContractCall]) -> list[Returned]:
        """What contracts answer, in the order of the calls."""
        ...

    def code(self, places: Sequence[tuple[BlockRef, bytes]]) -> list[bytes]:
        """The code at addresses, in the order given."""
        ...


class Caller:
    """Lends a source to the threads of runs; made on the loop on which the source lives."""

    def __init__(self, source: Source, *, is_found_by_tasks: bool = True) -> None:
        self._source = source
        #: Whether tasks of Spark find the same node by themselves. A devnet that a command runs is
        #: known to that process alone: then it asks for large runs too.
        self.is_found_by_tasks = is_found_by_tasks
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        #: What is waited for, by run.
        self._waiting: dict[object, set[concurrent.futures.Future[Any]]] = defaultdict(set)

    def lend(self, run: object) -> Calls:
        """The source, for one run."""
        return _Lent(self, run)

    def give_up(self, run: object) -> None:
        """Ends what a run waits for; safe where it waits for nothing."""
        with self._lock:
            waiting = list(self._waiting.pop(run, ()))
        for future in waiting:
            future.cancel()

    async def close(self) -> None:
        """Gives up the source."""
        await self._source.close()

    def wait(self, run: object, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns; blocks. Raises SourceUnavailable where the run was given up."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        with self._lock:
            self._waiting[run].add(future)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise errors.SourceUnavailable("the run that asked was given up") from None
        finally:
            with self._lock:
                self._waiting[run].discard(future)
                if not self._waiting[run]:
                    del self._waiting[run]

    @property
    def source(self) -> Source:
        """The source."""
        return self._source


class _Lent:
    def __init__(self, caller: Caller, run: object) -> None:
        self._caller = caller
        self._run = run

    def call(self, calls: Sequence[ContractCall]) -> list[Returned]:
        return self._caller.wait(self._run, self._caller.source.call(calls))

    def code(self, places: Sequence[tuple[BlockRef, bytes]]) -> list[bytes]:
        return self._caller.wait(self._run, self._caller.source.code(places))
