"""Owns which logs an eth_getLogs request asks for, read and matched as geth does.

Its subtleties: a filter with more positions than a log has topics never matches it, even where
the surplus positions are open; an empty list or a null among alternatives opens a position.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from unfork.devnet.protocol import INVALID_PARAMS, RpcError, read_data
from unfork.proof.receipt import Log

#: Topics a log can have.
TOPICS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFilter:
    """A filter of logs by address and topics."""

    #: Contracts asked for; empty for any.
    addresses: frozenset[bytes] = frozenset()
    #: Alternatives by position; an empty set for any.
    topics: tuple[frozenset[bytes], ...] = ()

    def matches(self, log: Log) -> bool:
        """Whether a log passes."""
        if self.addresses and log.address not in self.addresses:
            return False
        if len(self.topics) > len(log.topics):
            return False
        return all(
            not wanted or topic in wanted
            for wanted, topic in zip(self.topics, log.topics, strict=False)
        )

    @property
    def is_open(self) -> bool:
        """Whether every log passes."""
        return not self.addresses and not self.topics


def read(criteria: dict[str, Any]) -> LogFilter:
    """The filter that the parameter of eth_getLogs describes."""
    return LogFilter(
        addresses=_addresses(criteria.get("address")), topics=_topics(criteria.get("topics"))
    )


def _addresses(value: Any) -> frozenset[bytes]:
    if value is None:
        return frozenset()
    return frozenset(
        read_data(each, size=20) for each in (value if isinstance(value, list) else [value])
    )


def _topics(value: Any) -> tuple[frozenset[bytes], ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise RpcError(INVALID_PARAMS, "invalid argument 0: topics must be a list")
    if len(value) > TOPICS_MAX:
        raise RpcError(INVALID_PARAMS, "exceed max topics")
    return tuple(_alternatives(position) for position in value)


def _alternatives(position: Any) -> frozenset[bytes]:
    if position is None:
        return frozenset()
    if not isinstance(position, list):
        return frozenset({read_data(position, size=32)})
    if None in position:
        return frozenset()
    return frozenset(read_data(each, size=32) for each in position)
