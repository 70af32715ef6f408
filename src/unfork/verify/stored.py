"""Owns the proof of one stored block: what it commits to, and how it fits what is stored around it.

Pure: rows in, findings out. Reading the rows is the work of `read`, adding up that of `report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unfork.proof import rows
from unfork.proof.fields import Row, number
from unfork.proof.finding import Check, Finding, Outcome, equal, failed, proven, unproven
from unfork.proof.rows import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """What must be known of the block below to judge the next."""

    number: int
    hash: bytes
    #: `rows.later_count` of the block: how many of the header's later fields it reaches.
    later_count: int
    #: None where it is not known.
    total_difficulty: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Everything the hot store holds of one block."""

    rows: Rows
    #: The rows of `block_lookup` and `tx_lookup` that name the block's number.
    block_lookup: Sequence[Row]
    tx_lookup: Sequence[Row]
    #: Values kept outside their rows that could not be read back, in words.
    payloads_damaged: Sequence[str] = ()
    #: Values kept outside their rows that nobody read.
    payloads_unread: int = 0
    #: Rows of a table that belong to no stored block, met before this one, in words.
    strays: Sequence[str] = ()
    #: Whether what was asked of the source for this block is recorded.
    scope_known: bool = True


def findings(stored: Stored, below: Below | None) -> tuple[Finding, ...]:
    """One finding per check; `below` is the block stored before it, None for the first of all."""
    later_min = 0 if below is None else below.later_count
    placed = rows.findings(stored.rows, later_min=later_min)
    if stored.strays:
        placed = tuple(
            failed(Check.PLACEMENT, stored.strays[0])
            if finding.check is Check.PLACEMENT and finding.outcome is not Outcome.FAILED
            else finding
            for finding in placed
        )
    return (
        _contiguity(stored.rows.block, below),
        _parent_link(stored.rows.block, below),
        *placed,
        _total_difficulty(stored.rows.block, below),
        _payloads(stored),
        _lookups(stored),
        *_scope(stored),
    )


def below_of(stored: Rows) -> Below:
    """What the next block needs to know of this one."""
    return below_from(stored.block)


def below_from(row: Row) -> Below:
    """The same from the block's own row."""
    return Below(
        number=row["number"],
        hash=row["hash"],
        later_count=rows.later_count(row),
        total_difficulty=number(row.get("total_difficulty")),
    )


def held(stored: Stored) -> tuple[str, ...]:
    """The datasets that have rows of the block."""
    parts = stored.rows
    return (
        "blocks",
        *(["transactions"] if parts.transactions else []),
        *(["logs"] if parts.logs else []),
        *(["withdrawals"] if parts.withdrawals else []),
        *(["traces"] if parts.traces else []),
    )


def _contiguity(row: Row, below: Below | None) -> Finding:
    if below is None:
        return proven(Check.CONTIGUITY)
    reason = "the block does not follow the one stored below it"
    return equal(Check.CONTIGUITY, reason, expected=below.number + 1, actual=row["number"])


def _parent_link(row: Row, below: Below | None) -> Finding:
    if below is None:
        if row["number"] == 0 and row["parent_hash"] == bytes(32):
            return proven(Check.PARENT_LINK)
        return unproven(Check.PARENT_LINK, "the block below is not stored")
    if row["number"] != below.number + 1:
        return unproven(Check.PARENT_LINK, "the block below is not stored")
    reason = "the parent hash is not the hash of the block stored below"
    return equal(Check.PARENT_LINK, reason, expected=below.hash, actual=row["parent_hash"])


def _total_difficulty(row: Row, below: Below | None) -> Finding:
    check = Check.TOTAL_DIFFICULTY
    stated, difficulty = row.get("total_difficulty"), number(row.get("difficulty"))
    if stated is None:
        return unproven(check, "block: not given: total_difficulty")
    if difficulty is None:
        return unproven(check, "block: not given: difficulty")
    before: int | None = 0
    if row["number"] > 0:
        is_next = below is not None and below.number == row["number"] - 1
        before = below.total_difficulty if below is not None and is_next else None
    if before is None:
        return unproven(check, "that of the block below is not known")
    actual = number(stated)
    if actual == before + difficulty:
        return proven(check)
    reason = "that of the block below and the block's own difficulty do not add up to it"
    return failed(check, reason, before + difficulty, actual)


def _payloads(stored: Stored) -> Finding:
    if stored.payloads_damaged:
        return failed(Check.PAYLOADS, stored.payloads_damaged[0])
    if stored.payloads_unread:
        return unproven(Check.PAYLOADS, "values kept outside their rows were not read")
    return proven(Check.PAYLOADS)


def _lookups(stored: Stored) -> Finding:
    row = stored.rows.block
    expected_block = [(row["hash"], row["timestamp"])]
    if [(part["id"], part["timestamp"]) for part in stored.block_lookup] != expected_block:
        return failed(Check.LOOKUPS, "block_lookup does not hold exactly this block")
    expected = {
        (part["hash"], part["transaction_index"], part["block_timestamp"])
        for part in stored.rows.transactions or ()
    }
    held = {(part["id"], part["transaction_index"], part["timestamp"]) for part in stored.tx_lookup}
    if expected == held:
        return proven(Check.LOOKUPS)
    missing, extra = sorted(expected - held), sorted(held - expected)
    reason = (
        f"tx_lookup lacks {len(missing)} rows of the block's transactions "
        f"and has {len(extra)} that are none"
    )
    return failed(
        Check.LOOKUPS,
        reason,
        missing[0][0] if missing else None,
        extra[0][0] if extra else None,
    )


def _scope(stored: Stored) -> tuple[Finding, ...]:
    if stored.scope_known:
        return ()
    return (failed(Check.POSITION, "it is not recorded what was asked for with this block"),)
