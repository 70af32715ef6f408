"""Goal: one flipped bit of anything proven is seen. Method: flip any bit of any field of a block.

The block has all transaction types, logs with no to four topics, withdrawals and all header fields.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.proof import made
from tests.unit.proof.flips import flipped
from unfork.proof import receipt, rlp, rows
from unfork.proof.columns import COVERED, UNCOMMITTED
from unfork.proof.finding import Check, Finding, Outcome
from unfork.proof.receipt import Withdrawal
from unfork.proof.rows import Rows

#: Columns whose change is not found; tests/unit/verify/test_every_column.py proves them named.
UNFOUND = {
    *("block.total_difficulty", "logs.log_index"),
    *(name for check in UNCOMMITTED for name in COVERED[check]),
}


def findings(stored: Rows) -> dict[Check, Finding]:
    return {finding.check: finding for finding in rows.findings(stored)}


def places(stored: Rows, *, tables: tuple[str, ...]) -> list[tuple[str, int, str]]:
    """Every value that has a bit to flip and that the block commits to."""
    found = []
    for table in tables:
        part: Any = [stored.block] if table == "block" else getattr(stored, table)
        for at, row in enumerate(part):
            for column, value in row.items():
                if value is None or value in (b"", []):
                    continue
                if f"{table}.{column}" in UNFOUND:
                    continue
                found.append((table, at, column))
    return found


@pytest.mark.parametrize("later", [0, 1, 2, 5, 6])
@pytest.mark.parametrize("size", [0, 1, 6, 130])
def test_a_whole_block_is_proven_in_every_way(later: int, size: int) -> None:
    found = findings(made.block(7, later=later, size=size))
    assert {f.outcome for check, f in found.items() if check not in UNCOMMITTED} == {Outcome.PROVEN}
    assert not any(finding.outcome is Outcome.FAILED for finding in found.values())


@settings(max_examples=600, deadline=None)
@given(st.integers(0, 20), st.data())
@pytest.mark.parametrize("tables", [("block",), ("transactions",), ("logs", "withdrawals")])
def test_one_flipped_bit_of_any_proven_field_is_a_failure(
    tables: tuple[str, ...], seed: int, data: st.DataObject
) -> None:
    stored = made.block(seed)
    table, at, column = data.draw(st.sampled_from(places(stored, tables=tables)))
    damaged = flipped(data, stored, table, at, column)
    assert damaged != stored
    outcomes = {finding.outcome for finding in findings(damaged).values()}
    assert Outcome.FAILED in outcomes, (table, at, column)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 20), st.data())
def test_one_flipped_bit_of_a_block_of_the_first_rules_is_a_failure(
    seed: int, data: st.DataObject
) -> None:
    stored = made.block(seed, later=0)
    tables = ("block", "transactions")
    table, at, column = data.draw(st.sampled_from(places(stored, tables=tables)))
    damaged = flipped(data, stored, table, at, column)
    outcomes = {finding.outcome for finding in findings(damaged).values()}
    assert Outcome.FAILED in outcomes, (table, at, column)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 20).filter(lambda seed: bool(made.block(seed).logs)), st.data())
def test_one_flipped_bit_of_a_log_index_is_never_proven(seed: int, data: st.DataObject) -> None:
    stored = made.block(seed)
    assert stored.logs is not None
    at = data.draw(st.integers(0, len(stored.logs) - 1))
    found = findings(flipped(data, stored, "logs", at, "log_index"))
    assert found[Check.LOG_INDEXES].outcome is not Outcome.PROVEN


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 20), st.data())
def test_a_lost_row_is_a_failure(seed: int, data: st.DataObject) -> None:
    stored = made.block(seed)
    parts = {"transactions": stored.transactions, "logs": stored.logs}
    parts["withdrawals"] = stored.withdrawals
    table = data.draw(st.sampled_from([name for name, part in parts.items() if part]))
    kept = list(parts[table] or ())
    kept.pop(data.draw(st.integers(0, len(kept) - 1)))
    damaged = Rows(block=stored.block, **{**parts, table: kept})
    assert Outcome.FAILED in {finding.outcome for finding in findings(damaged).values()}


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 20), st.data())
def test_a_null_is_never_proven(seed: int, data: st.DataObject) -> None:
    stored = made.block(seed)
    needed = set(stored.block) - {"hash", "number", "timestamp", "total_difficulty"}
    column = data.draw(st.sampled_from(sorted(needed)))
    damaged = Rows(
        block={**stored.block, column: None},
        transactions=stored.transactions,
        logs=stored.logs,
        withdrawals=stored.withdrawals,
    )
    found = findings(damaged)
    outcomes = {f.outcome for check, f in found.items() if check not in UNCOMMITTED}
    assert outcomes != {Outcome.PROVEN}


def test_filtered_logs_leave_the_bloom_unproven_but_a_foreign_log_fails() -> None:
    seed = next(seed for seed in range(30) if made.block(seed).logs)
    stored = made.block(seed)
    other = made.block(seed + 1000)
    assert stored.logs and other.logs
    parts: dict[str, Any] = {"transactions": None, "withdrawals": None, "logs_filtered": True}
    some = Rows(block=stored.block, logs=stored.logs[:1], **parts)
    assert findings(some)[Check.LOGS_BLOOM].outcome is Outcome.UNPROVEN
    place = ("block_number", "block_hash", "block_timestamp")
    foreign = {**other.logs[0], **{name: stored.logs[0][name] for name in place}}
    mixed = Rows(block=stored.block, logs=[foreign], **parts)
    assert findings(mixed)[Check.LOGS_BLOOM].outcome is Outcome.FAILED


def test_a_transaction_of_an_unknown_type_is_unproven() -> None:
    stored = made.block(3, size=1)
    assert stored.transactions is not None
    unknown = {**stored.transactions[0], "transaction_type": 126, "hash": bytes(32)}
    found = findings(
        Rows(block=stored.block, transactions=[unknown], logs=[], withdrawals=stored.withdrawals)
    )
    for check in (Check.TRANSACTION_HASHES, Check.TRANSACTIONS_ROOT, Check.RECEIPTS_ROOT):
        assert (found[check].outcome, "126" in found[check].reason) == (Outcome.UNPROVEN, True)


@pytest.mark.parametrize("place", [0, -2])
def test_a_log_that_stands_out_of_order_is_a_failure(place: int) -> None:
    """The last log has the index of the first one, or that of the one before it."""
    stored = next(block for seed in range(30) if len((block := made.block(seed)).logs or ()) > 2)
    assert stored.logs is not None
    last = {**stored.logs[-1], "log_index": stored.logs[place]["log_index"]}
    damaged = replace(stored, logs=[*stored.logs[:-1], last])
    assert findings(damaged)[Check.PLACEMENT].outcome is Outcome.FAILED


def test_a_size_without_the_withdrawals_is_unproven() -> None:
    stored = made.block(3)
    assert stored.withdrawals
    taken = sum(len(receipt.encode_withdrawal(_withdrawal(row))) for row in stored.withdrawals)
    without = stored.block["size"] - rlp.size_with_prefix(taken)
    found = findings(replace(stored, block={**stored.block, "size": without}))
    assert found[Check.BLOCK_SIZE].outcome is Outcome.UNPROVEN
    found = findings(replace(stored, block={**stored.block, "size": without - 1}))
    assert found[Check.BLOCK_SIZE].outcome is Outcome.FAILED


def _withdrawal(row: Any) -> Withdrawal:
    names = ("index", "validator_index", "address", "amount")
    return Withdrawal(**{name: row[name] for name in names})
