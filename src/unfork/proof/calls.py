"""Owns the proof of traces: that they are one whole tree of calls for each transaction.

No root commits to traces, so most of what they say cannot be proven. But they come depth first and
each names how many calls it made, which fixes the place of every one: a call that is lost, added
or moved no longer fits. The outermost call repeats its transaction, and whether a call took effect
follows from its own failure and those around it.

Rewards belong to no transaction and nothing counts them: one that is lost, or made up, is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unfork.proof.fields import Row, number
from unfork.proof.finding import Check, Finding, failed, proven, unproven

_VALUES = unproven(Check.TRACE_VALUES, "no root commits to traces")
_REWARDS = unproven(Check.TRACE_VALUES, "nothing counts the rewards of a block")


def check(
    block: Row, transactions: Sequence[Row], traces: Sequence[Row]
) -> tuple[Finding, Finding]:
    """The findings on the traces of a block: their trees, then their values."""
    reason = _misfit(transactions, traces)
    trees = failed(Check.TRACE_TREES, reason) if reason else proven(Check.TRACE_TREES)
    return trees, _values(block, transactions, traces)


class _Open:
    """A call of which not all inner calls were met yet."""

    __slots__ = ("count", "met", "prefix", "status")

    def __init__(self, prefix: str, count: int, status: int) -> None:
        #: What the paths of its inner calls begin with.
        self.prefix = prefix
        self.count = count
        self.met = 0
        self.status = status


def _misfit(transactions: Sequence[Row], traces: Sequence[Row]) -> str | None:
    """In words what does not fit first, None where all fits."""
    open_calls: list[_Open] = []
    roots = 0
    for at, row in enumerate(traces):
        index, path = row["transaction_index"], row["trace_address"]
        wrong = _shape(row)
        if wrong:
            return f"trace {at}: {wrong}"
        if index is None:
            if open_calls or roots < len(transactions):
                return f"trace {at}: a reward stands before calls"
            continue
        if open_calls:
            around = open_calls[-1]
            owner, expected = roots - 1, f"{around.prefix}{around.met}"
            around.met += 1
            status = around.status
        else:
            owner, expected, status = roots, "", 1
            roots += 1
        if owner >= len(transactions):
            return f"trace {at}: belongs to no transaction of the block"
        own = transactions[owner]
        if index != owner or row["transaction_hash"] != own["hash"]:
            return f"trace {at}: stands among the calls of transaction {owner}, names another"
        if path != expected:
            return f"trace {at}: has the path '{path}', the calls before it give '{expected}'"
        if row["error"] is not None:
            status = 0
        if row["status"] != status:
            return f"trace {at}: its status does not follow from the failures of calls"
        if not path:
            kind = "create" if own["to_address"] is None else "call"
            if row["trace_type"] != kind or own.get("status") not in (None, status):
                return f"trace {at}: an outermost call that is not the transaction's"
        if row["subtraces"]:
            prefix = f"{path}," if path else ""
            open_calls.append(_Open(prefix, row["subtraces"], status))
        while open_calls and open_calls[-1].met == open_calls[-1].count:
            open_calls.pop()
    if open_calls:
        return f"transaction {roots - 1}: calls are missing at its end"
    if roots < len(transactions):
        return f"transaction {roots}: has no trace"
    return None


def _shape(row: Row) -> str | None:
    """In words what columns do not fit the type of a trace."""
    kind = row["trace_type"]
    named = row["call_type"] is not None, row["reward_type"] is not None
    if kind not in _NAMED:
        return f"has the unknown type '{kind}'"
    if named != _NAMED[kind]:
        return f"has the type '{kind}' with a call_type or reward_type that does not fit it"
    if (kind == "reward") != (row["transaction_index"] is None):
        return f"has the type '{kind}' and names a transaction or none"
    if kind == "reward":
        if row["transaction_hash"] is not None or row["trace_address"] or row["subtraces"]:
            return "is a reward, yet has the columns of a call"
        if row["status"] != (1 if row["error"] is None else 0):
            return "is a reward whose status does not follow from its failure"
    elif kind != "call" and (row["gas"] is None) != (kind == "suicide"):
        return f"has the type '{kind}' and gas that does not fit it"
    return None


#: Whether a trace of a type has a call_type, and a reward_type.
_NAMED = {
    "call": (True, False),
    "create": (False, False),
    "suicide": (False, False),
    "reward": (False, True),
}


def _values(block: Row, transactions: Sequence[Row], traces: Sequence[Row]) -> Finding:
    for at, row in enumerate(traces):
        index = row["transaction_index"]
        if row["trace_address"] or index is None or not 0 <= index < len(transactions):
            continue
        name = _other(row, transactions[index])
        if name:
            reason = f"trace {at}: its {name} is not that of its transaction"
            return failed(Check.TRACE_VALUES, reason)
    if traces:
        return _VALUES
    # Only a block that was mined pays a reward of its own.
    return _REWARDS if number(block.get("difficulty")) else proven(Check.TRACE_VALUES)


def _other(row: Row, own: Row) -> str | None:
    """The name of a value in which an outermost call differs from its transaction."""
    to = own.get("to_address")
    if to is None:
        to = own.get("contract_address")
    elif row["call_type"] not in (None, "call"):
        return "call_type"
    if _differ(row["from_address"], own.get("from_address")):
        return "from_address"
    if _differ(row["to_address"], to):
        return "to_address"
    if row["value"] != own.get("value") and _differ(number(row["value"]), number(own.get("value"))):
        return "value"
    return "input" if _differ(row["input"], own.get("input")) else None


def _differ(one: Any, other: Any) -> bool:
    """Whether two values that must agree do not; what is not given agrees with anything."""
    return one is not None and other is not None and one != other
