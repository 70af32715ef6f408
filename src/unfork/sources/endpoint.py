"""Owns what is known of one endpoint: whether it is worth asking now, and which ways it answers.

A circuit breaker stands in front of every endpoint. Failures in a row open it; while it is open
nothing is sent; after a pause one request is let through as a probe, and its outcome closes the
breaker or opens it for longer. So a dead endpoint costs one request per pause, whatever load there
is. An endpoint that asks for a pause (Retry-After) gets it without being thought ill of.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass, field

from unfork import telemetry
from unfork.clock import Clock
from unfork.sources.reach import Reach
from unfork.sources.wire import Wire

#: Failures in a row that open the breaker.
FAILURES_MAX = 5
#: The first pause of an opened breaker.
PAUSE_S_MIN = 0.25

_log = telemetry.logger(__name__)


@dataclass(slots=True, kw_only=True)
class Abilities:
    """What an endpoint was seen to answer, so that a way that failed is not tried for ever."""

    #: JSON-RPC calls it takes in one request.
    batch: Reach
    #: Blocks it takes in one eth_getLogs.
    log_range: Reach
    #: The way of asking for receipts that works, as a place in `receipts.WAYS`.
    receipts: int = 0
    #: How often a later way worked where the current one gave nothing.
    receipts_doubts: int = 0
    #: When the way was last changed.
    receipts_since: float = 0.0
    #: The way of asking for traces that works, as a place in `tracing.WAYS`.
    traces: int = 0
    #: Whether it knows the tag `finalized`.
    finalized: bool = True
    #: Whether it gives logs by block hash.
    logs_by_hash: bool = True
    #: Whether it takes the hash of the block whose state is looked into (EIP-1898).
    state_by_hash: bool = True


@dataclass(slots=True, eq=False, kw_only=True)
class Endpoint:
    """One endpoint and its breaker."""

    wire: Wire
    clock: Clock
    random: random.Random
    abilities: Abilities
    #: The longest pause of an opened breaker, in seconds.
    pause_s_max: float
    #: Failures since the last success.
    failures: int = 0
    #: Whether it said that it serves our chain, and was not down since.
    is_known: bool = False
    #: No request before this moment.
    _resting_until: float = field(default=0.0, init=False)
    _pause_s: float = field(default=0.0, init=False)
    _is_probing: bool = field(default=False, init=False)

    @property
    def name(self) -> str:
        """How the endpoint is called in errors and logs."""
        return telemetry.redact(self.wire.url)

    @property
    def is_open(self) -> bool:
        """Whether its breaker is open, be it time for a probe or not."""
        return self.failures >= FAILURES_MAX

    def wait_s(self) -> float:
        """Seconds until a request may be sent; 0 where one may be sent now."""
        left = self._resting_until - self.clock.now()
        if left > 0:
            return left
        # One probe at a time: until it has come back, the others wait for about a round trip.
        return PAUSE_S_MIN if self.is_open and self._is_probing else 0.0

    def sending(self) -> None:
        """A request is about to go out."""
        if self.is_open:
            self._is_probing = True

    def succeeded(self) -> None:
        """It answered, whatever the answer says."""
        if self.is_open:
            telemetry.event(_log, "source.endpoint_up", endpoint=self.name)
        self.failures = 0
        self._pause_s = 0.0
        self._is_probing = False

    def failed(self) -> None:
        """It did not answer, or not sensibly."""
        self._is_probing = False
        self.failures += 1
        if self.failures == FAILURES_MAX:
            # What comes back may be another node behind the same address.
            self.is_known = False
            telemetry.event(_log, "source.endpoint_down", level=logging.WARNING, endpoint=self.name)
        if self.is_open:
            self._pause_s = min(max(self._pause_s * 2, PAUSE_S_MIN), self.pause_s_max)
            # Jitter keeps several processes from probing in step.
            self.rest(self._pause_s * (0.5 + self.random.random() / 2))

    def abandoned(self) -> None:
        """A request was given up by us, which says nothing about the endpoint."""
        self._is_probing = False

    def rest(self, seconds: float) -> None:
        """Sends nothing for a while."""
        self._resting_until = max(self._resting_until, self.clock.now() + seconds)
