"""Owns what a person sees while chains are followed: a live table, or one plain line a second.

Each chain has a tally that its follower tells of every event; showing it is a task of its own, so
that a slow terminal never holds a commit up.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from unfork.chain.block import BlockRef
from unfork.ingest.follow import Asked, Committed, Event, Unwound

#: Seconds between two plain lines.
LINE_INTERVAL_S = 1.0
#: Live tables a second.
REFRESH_PER_S = 5
#: Seconds over which the rate is taken.
RATE_WINDOW_S = 10.0


@contextlib.contextmanager
def bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error for long work; the work says how much of how much is done.

    Where standard error is not a terminal nobody watches, and nothing is shown.
    """
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as shown:
        task = shown.add_task(label, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


@dataclass(slots=True, kw_only=True)
class Tally:
    """What one follower has done since this process started."""

    chain: str
    #: Reads the source's head where this process knows it better than the last batch.
    head_now: Callable[[], int] | None = None
    position: BlockRef | None = None
    floor: BlockRef | None = None
    head: BlockRef | None = None
    blocks: int = 0
    rows: int = 0
    #: Forks followed, by depth.
    forks: Counter[int] = field(default_factory=Counter)
    #: Set once the follower knows where it stands.
    started: asyncio.Event = field(default_factory=asyncio.Event)
    #: Called when the chain has moved.
    moved: Callable[[], None] = lambda: None
    #: Why the follower ended, empty while it runs.
    ended: str = ""
    started_at: float = field(default_factory=time.monotonic)
    _recent: list[tuple[float, int]] = field(default_factory=list)
    _last_at: float | None = None

    def heard(self, event: Event) -> None:
        """Takes note of one event."""
        match event:
            case Committed(span=span, rows=rows, state=state):
                self.blocks += len(span)
                self.rows += rows
                self._last_at = time.monotonic()
                self._recent.append((self._last_at, len(span)))
            case Unwound(depth=depth, state=state):
                self.forks[depth] += 1
            case Asked():
                return
        self.position, self.floor, self.head = state.position, state.floor, state.head
        self.moved()

    @property
    def head_number(self) -> int | None:
        """The head, as well as it is known."""
        if self.head_now is not None:
            return self.head_now()
        return None if self.head is None else self.head.number

    @property
    def rate(self) -> float:
        """Blocks a second, of late."""
        now = time.monotonic()
        self._recent = [(at, n) for at, n in self._recent if now - at <= RATE_WINDOW_S]
        window = min(RATE_WINDOW_S, max(now - self.started_at, 0.5))
        return sum(n for _, n in self._recent) / window

    @property
    def rate_over_all(self) -> float:
        """Blocks a second from the start to the last block; what came after it is no slowness."""
        if self._last_at is None:
            return 0.0
        return self.blocks / max(self._last_at - self.started_at, 0.5)

    def document(self) -> dict[str, Any]:
        """The tally as plain values."""
        return {
            "chain": self.chain,
            "position": self.position,
            "floor": self.floor,
            "head": self.head,
            "blocks": self.blocks,
            "rows": self.rows,
            "forks": {str(depth): count for depth, count in sorted(self.forks.items())},
            "seconds": round(time.monotonic() - self.started_at, 3),
        }


def forks_text(forks: Counter[int]) -> str:
    """Forks with their depth: `5 (depth 1: 3, 2: 1, 6: 1)`."""
    if not forks:
        return "0"
    depths = ", ".join(f"{depth}: {count}" for depth, count in sorted(forks.items()))
    return f"{sum(forks.values())} (depth {depths})"


def line(tally: Tally) -> str:
    """One chain in one line."""
    ended = f" ended: {tally.ended}" if tally.ended else ""
    return (
        f"{tally.chain}: head {_number(tally.head_number)} position {_of(tally.position)} "
        f"floor {_of(tally.floor)} {tally.rate:.1f} blocks/s rows {tally.rows:,} "
        f"forks {forks_text(tally.forks)}{ended}"
    )


def board(tallies: Sequence[Tally], *, is_final: bool = False) -> Table:
    """All chains as a table; the final one says how fast it went over all, not of late."""
    table = Table(box=None, pad_edge=False)
    for name in ("chain", "head", "position", "floor", "blocks/s", "rows", "forks survived"):
        is_text = name in ("chain", "forks survived")
        table.add_column(name, justify="left" if is_text else "right", header_style="bold")
    for tally in tallies:
        last = tally.ended or forks_text(tally.forks)
        table.add_row(
            Text(tally.chain),
            _number(tally.head_number),
            _of(tally.position),
            _of(tally.floor),
            f"{tally.rate_over_all if is_final else tally.rate:.1f}",
            f"{tally.rows:,}",
            Text(last, style="red" if tally.ended else ""),
        )
    return table


class Shown(Protocol):
    """Something else to be shown beside the chains."""

    def board(self) -> Table:
        """It as a table."""
        ...

    def line(self) -> str:
        """It in one line."""
        ...


@contextlib.asynccontextmanager
async def shown(
    tallies: Sequence[Tally], *, is_quiet: bool, beside: Sequence[Shown] = ()
) -> AsyncIterator[None]:
    """Shows the tallies while the block runs: live on a terminal, as lines elsewhere."""
    if is_quiet:
        yield
        return
    showing = asyncio.create_task(
        _live(tallies, beside) if sys.stdout.isatty() else _lines(tallies, beside)
    )
    try:
        yield
    finally:
        showing.cancel()
        await asyncio.gather(showing, return_exceptions=True)


async def _live(tallies: Sequence[Tally], beside: Sequence[Shown]) -> None:
    def boards() -> Group:
        return Group(*[board(tallies)] * bool(tallies), *(each.board() for each in beside))

    with Live(boards(), refresh_per_second=REFRESH_PER_S, transient=True) as live:
        while True:
            await asyncio.sleep(1 / REFRESH_PER_S)
            live.update(boards())


async def _lines(tallies: Sequence[Tally], beside: Sequence[Shown]) -> None:
    console = Console(highlight=False, soft_wrap=True)
    said: dict[str, tuple[object, ...]] = {}
    told: dict[int, str] = {}
    while True:
        await asyncio.sleep(LINE_INTERVAL_S)
        for tally in tallies:
            now = (tally.position, tally.head_number, tally.ended)
            if said.get(tally.chain) != now:
                said[tally.chain] = now
                console.print(Text(line(tally)))
        for place, each in enumerate(beside):
            if told.get(place) != (text := each.line()):
                told[place] = text
                console.print(Text(text))


def _of(ref: BlockRef | None) -> str:
    return _number(None if ref is None else ref.number)


def _number(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"
