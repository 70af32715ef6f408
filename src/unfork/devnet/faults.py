"""Owns the ways in which a devnet endpoint misbehaves, and the decision when it does.

A fault is a value. It is switched on until switched off, or scheduled for a window of requests;
its rate is a seeded die per occasion, so the same requests in the same order meet the same faults.
An occasion is a point where the fault would change the answer, and every strike is counted: a test
can assert that what it prepared for has really happened.

Faults of the transport break a whole HTTP request, batch included, and never a WebSocket; the
others break single calls, over either.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Literal, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What every fault has."""

    #: Methods it touches; empty for every method it can touch.
    methods: frozenset[str] = frozenset()
    #: Chance per occasion.
    rate: float = 1.0
    #: Strikes until it heals by itself; None for never.
    strikes_max: int | None = None

    @property
    def name(self) -> str:
        """What it is counted as."""
        return type(self).__name__


# --- of the transport


@dataclass(frozen=True, slots=True, kw_only=True)
class TooManyRequests(Fault):
    """HTTP 429."""

    #: What Retry-After says; None leaves the header out.
    retry_after_s: int | None = 1
    #: Whether it says so as an HTTP date.
    is_date: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BadGateway(Fault):
    """HTTP 502, or another status of a broken front."""

    status: int = 502


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence(Fault):
    """The request is taken and never answered, not even once the fault is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBody(Fault):
    """HTTP 200 with the first half of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutSocket(Fault):
    """The connection ends without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCap(Fault):
    """Batches above a size are refused whole."""

    calls_max: int = 10


# --- of a call


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeError(Fault):
    """A JSON-RPC error instead of the answer."""

    code: int = -32000
    message: str = "header not found"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodMissing(Fault):
    """The node does not have the methods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HashRefused(Fault):
    """Receipts are given by number and tag only."""

    #: What a hash gets: null, or error -32602.
    answer: Literal["null", "error"] = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag(Fault):
    """A replica that is some blocks behind, or a head that goes back for a while."""

    blocks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale(Fault):
    """A replica that has not heard of the last heads: it may show a replaced branch."""

    #: Head movements it missed.
    movements: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NullBlock(Fault):
    """null for a block that exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherReceipts(Fault):
    """The receipts of another block: a replaced one of the same number, else the parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LateReceipts(Fault):
    """Receipts that are not there yet when the block is."""

    #: What is answered meanwhile; fewer leaves the last one out.
    answer: Literal["null", "empty", "fewer"] = "null"
    #: Times a block's receipts are asked for in vain.
    asks: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned(Fault):
    """A node that keeps the state of the last blocks only."""

    #: Blocks whose state it keeps.
    keeps_blocks: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCap(Fault):
    """eth_getLogs refuses ranges above a number of blocks."""

    blocks_max: int = 1000
    code: int = -32600
    #: The provider's words; {blocks_max}, {blocks}, {first} and {last} are filled in.
    message: str = "query exceeds max block range {blocks_max}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCap(Fault):
    """eth_getLogs refuses to answer more than a number of logs."""

    logs_max: int = 10_000
    code: int = -32005
    #: The provider's words; {logs_max}, {first} and {last} (a range that would do) are filled in.
    message: str = "query returned more than {logs_max} results"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeyondHead(Fault):
    """eth_getLogs refuses a range that ends above the head instead of cutting it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateLogs(Fault):
    """Every log of a range comes twice in a row."""


# --- of the WebSocket


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet(Fault):
    """Heads are not announced, and not made up for later; everything else works."""


TRANSPORT = (TooManyRequests, BadGateway, Silence, CutBody, CutSocket)

#: Range caps in the words of providers, all of 1,000 blocks.
RANGE_CAPS = (
    RangeCap(),
    RangeCap(code=-32602, message="range {blocks} exceeds limit of {blocks_max}"),
    RangeCap(
        code=-32600,
        message="You can make eth_getLogs requests with up to a {blocks_max} block range. Based on "
        "your parameters, this block range should work: [{first}, {last}]",
    ),
    RangeCap(code=-32614, message="eth_getLogs is limited to a {blocks_max} range"),
    RangeCap(code=-32000, message="exceed maximum block range: {blocks_max}"),
    RangeCap(code=-32701, message="Please specify a block range of at most {blocks_max}"),
)

#: Result caps in the words of providers, all of 10,000 logs.
RESULT_CAPS = (
    ResultCap(),
    ResultCap(
        message="query returned more than {logs_max} results. "
        "Try with this block range [{first}, {last}]."
    ),
    ResultCap(
        code=-32602,
        message="Log response size exceeded. You can make eth_getLogs requests with up to a 2K "
        "block range and no limit on the response size, or you can request any block range with a "
        "cap of 10K logs in the response. Based on your parameters and the response size limit, "
        "this block range should work: [{first}, {last}]",
    ),
)

F = TypeVar("F", bound=Fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A fault with the requests it is meant for, counted from 1, both ends included."""

    fault: Fault
    first: int
    last: int | None


class Faults:
    """The faults of one endpoint."""

    def __init__(self, seed: int = 0, schedule: Iterable[Window] = ()) -> None:
        self._random = Random(seed)
        self._windows: list[Window] = list(schedule)
        self._asked: Counter[tuple[Fault, bytes]] = Counter()
        self._by_fault: Counter[Fault] = Counter()
        #: Requests begun so far.
        self.requests = 0
        #: Strikes so far by name of the fault.
        self.counts: Counter[str] = Counter()

    def switch_on(self, fault: Fault) -> None:
        """From now on, until switched off."""
        self.schedule(fault, first=0)

    def switch_off(self, fault: Fault) -> None:
        """Ends one fault."""
        self._windows = [window for window in self._windows if window.fault != fault]
        self._forget(fault)

    def schedule(self, fault: Fault, *, first: int, last: int | None = None) -> None:
        """For the requests from first to last."""
        # A fault that comes back starts afresh, with all its strikes and asks.
        self._forget(fault)
        self._windows.append(Window(fault=fault, first=first, last=last))

    def clear(self) -> None:
        """Heals everything; what was counted stays."""
        self._windows.clear()
        self._asked.clear()
        self._by_fault.clear()

    def begin(self) -> None:
        """Counts one request."""
        self.requests += 1

    def strike(
        self, kind: type[F], asked: str | set[str], when: Callable[[F], bool] = lambda fault: True
    ) -> F | None:
        """The fault of a kind that strikes on this occasion, counted; None for none.

        `asked` is the method at hand, or all those of a batch that fails whole. `when` says whether
        a fault would change the answer at all; it is asked before the die is cast.
        """
        names = {asked} if isinstance(asked, str) else asked
        for window in self._windows:
            fault = window.fault
            if not isinstance(fault, kind) or not self._is_open(window):
                continue
            if fault.methods and fault.methods.isdisjoint(names):
                continue
            if fault.strikes_max is not None and self._by_fault[fault] >= fault.strikes_max:
                continue
            if not when(fault):
                continue
            if fault.rate < 1.0 and self._random.random() >= fault.rate:
                continue
            self._by_fault[fault] += 1
            self.counts[fault.name] += 1
            return fault
        return None

    def is_late(self, fault: LateReceipts, hash: bytes) -> bool:
        """Counts an ask for a block's receipts; whether it still comes too early."""
        self._asked[fault, hash] += 1
        return self._asked[fault, hash] <= fault.asks

    def _is_open(self, window: Window) -> bool:
        return window.first <= self.requests and (
            window.last is None or self.requests <= window.last
        )

    def _forget(self, fault: Fault) -> None:
        self._by_fault.pop(fault, None)
        self._asked = Counter({key: n for key, n in self._asked.items() if key[0] != fault})


#: What a seeded schedule draws from: every fault that a source must survive by itself.
ORDINARY: tuple[Fault, ...] = (
    TooManyRequests(),
    TooManyRequests(is_date=True),
    BadGateway(),
    BadGateway(status=503),
    CutBody(),
    CutSocket(),
    NodeError(),
    NodeError(code=-32005, message="request rate limited"),
    NullBlock(),
    OtherReceipts(),
    LateReceipts(answer="null"),
    LateReceipts(answer="empty"),
    LateReceipts(answer="fewer"),
    Lag(blocks=1),
    Lag(blocks=5),
    Stale(movements=1),
    Stale(movements=4),
    DuplicateLogs(),
    RangeCap(blocks_max=10),
    ResultCap(logs_max=50),
    Quiet(),
)


def seeded(
    seed: int,
    *,
    turns: int = 10,
    requests_per_turn: int = 50,
    rate: float = 0.12,
    among: tuple[Fault, ...] = ORDINARY,
) -> Faults:
    """Faults by a seeded schedule: one kind each turn, then none any more."""
    random = Random(seed)
    windows = [
        Window(
            fault=dataclasses.replace(random.choice(among), rate=rate),
            first=turn * requests_per_turn + 1,
            last=(turn + 1) * requests_per_turn,
        )
        for turn in range(turns)
    ]
    return Faults(seed, windows)


#: Every kind of fault by the name a person gives it, as it is where nothing else is said.
NAMED: dict[str, Fault] = {
    re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__).lower(): kind()
    for kind in Fault.__subclasses__()
}
