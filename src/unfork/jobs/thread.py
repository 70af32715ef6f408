"""Owns threads for work that blocks and may never end: a job is a stranger's code.

The threads of a pool are waited for when a process ends, and a pool that is full of work that hangs
does nothing more. So each piece of work has a thread of its own, which nobody has to wait for; how
many there are is bounded by whoever starts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


async def run(work: Callable[[], _T]) -> _T:
    """What the work returns or raises; cancelled, its end is not waited for and goes unheard."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is not None:
            ended.set_exception(error)
        else:
            ended.set_result(result)  # type: ignore[arg-type]

    def working() -> None:
        result: _T | None = None
        failure: BaseException | None = None
        try:
            result = work()
        except StopIteration as error:
            # It means something else to whoever awaits.
            failure = RuntimeError(f"StopIteration: {error}")
        except BaseException as error:
            failure = error
        # The loop may be closed by now: then nobody listens any more.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=working, name="unfork-run", daemon=True).start()
    return await ended
