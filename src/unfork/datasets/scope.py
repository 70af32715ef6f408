"""Owns the scope: which part of a chain was asked for, recorded with every span that was stored."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whole blocks, or headers with the logs that pass a filter."""

    #: "all": blocks, transactions, receipts, logs, withdrawals. "logs": headers and filtered logs.
    kind: str = "all"
    #: Whether traces are fetched too (only with "all").
    traces: bool = False
    #: Emitting contracts to keep, all of them when empty (only with "logs").
    addresses: tuple[bytes, ...] = ()
    #: For each topic position the values to keep, None for any (only with "logs").
    topics: tuple[tuple[bytes, ...] | None, ...] = ()

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets that hold rows under this scope."""
        if self.kind == "logs":
            return ("blocks", "logs")
        whole = ("blocks", "transactions", "logs", "withdrawals")
        return (*whole, "traces") if self.traces else whole

    def document(self) -> dict[str, Any]:
        """The scope as plain JSON values, canonical: equal scopes give equal documents."""
        return {
            "kind": self.kind,
            "traces": self.traces,
            "addresses": sorted("0x" + address.hex() for address in self.addresses),
            "topics": [
                None if values is None else sorted("0x" + value.hex() for value in values)
                for values in self.topics
            ],
        }

    def digest(self) -> str:
        """A short stable name of the scope."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]
