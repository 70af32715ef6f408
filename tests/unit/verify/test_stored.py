"""Goal: a stored chain is proven block by block, and what does not fit around a block is named.

Method: chains of made blocks with their lookups, then one thing changed; pure, without a database.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.proof import made
from tests.unit.verify.chains import chain, held
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.proof import rpc
from unfork.proof.columns import COVERED, UNCOMMITTED
from unfork.proof.finding import Check, Finding, Outcome, failed, proven, unproven
from unfork.verify import stored as stored_blocks
from unfork.verify.report import DAMAGED_MAX, SPANS_MAX, Report, Tally
from unfork.verify.stored import Stored


def walk(blocks: list[Stored]) -> list[dict[Check, Finding]]:
    below, found = None, []
    for part in blocks:
        found.append({f.check: f for f in stored_blocks.findings(part, below)})
        below = stored_blocks.below_of(part.rows)
    return found


def outcomes(findings: dict[Check, Finding]) -> set[Outcome]:
    return {finding.outcome for finding in findings.values()}


def committed(findings: dict[Check, Finding]) -> set[Outcome]:
    """The outcomes but for what no block commits to."""
    return {f.outcome for check, f in findings.items() if check not in UNCOMMITTED}


def test_a_whole_chain_is_proven_in_every_way() -> None:
    found = walk(chain(6))
    assert [committed(findings) for findings in found] == [{Outcome.PROVEN}] * 6
    assert not any(Outcome.FAILED in outcomes(findings) for findings in found)


def test_a_missing_block_breaks_contiguity_and_leaves_the_link_unproven() -> None:
    blocks = chain(5)
    del blocks[2]
    found = walk(blocks)
    assert found[2][Check.CONTIGUITY].outcome is Outcome.FAILED
    assert (found[2][Check.CONTIGUITY].expected, found[2][Check.CONTIGUITY].actual) == ("2", "3")
    assert found[2][Check.PARENT_LINK].outcome is Outcome.UNPROVEN
    assert committed(found[3]) == {Outcome.PROVEN}


def test_a_block_of_another_fork_breaks_the_link_above_it_and_below_it() -> None:
    blocks = chain(4)
    sibling = made.block(5, parent=blocks[0].rows)
    blocks[2] = held(made.block(98, parent=sibling))
    found = walk(blocks)
    assert [f[Check.PARENT_LINK].outcome is Outcome.FAILED for f in found] == [0, 0, 1, 1]
    assert found[2][Check.HEADER_HASH].outcome is Outcome.PROVEN


def test_the_first_block_of_a_store_has_an_unproven_link_unless_it_is_genesis() -> None:
    blocks = chain(3)
    assert walk(blocks)[0][Check.PARENT_LINK].outcome is Outcome.PROVEN
    assert walk(blocks[1:])[0][Check.PARENT_LINK].outcome is Outcome.UNPROVEN


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_any_change_of_a_lookup_is_a_failure(data: st.DataObject) -> None:
    part = chain(4)[3]
    table = data.draw(st.sampled_from(["block_lookup", "tx_lookup"]))
    rows: list[dict[str, Any]] = [dict(row) for row in getattr(part, table)]
    at = data.draw(st.integers(0, len(rows) - 1))
    match data.draw(st.sampled_from(["lost", "extra", "id", "timestamp"])):
        case "lost":
            del rows[at]
        case "extra":
            rows.append({**rows[at], "id": bytes(32)})
        case "id":
            rows[at]["id"] = bytes(32)
        case _:
            rows[at]["timestamp"] = made.EPOCH
    found = stored_blocks.findings(replace(part, **{table: rows}), None)
    assert next(f for f in found if f.check is Check.LOOKUPS).outcome is Outcome.FAILED


def test_payloads_that_are_damaged_fail_and_unread_ones_are_unproven() -> None:
    part = chain(1)[0]
    damaged = walk([replace(part, payloads_damaged=["payload ab/cd is missing"])])[0]
    assert damaged[Check.PAYLOADS].outcome is Outcome.FAILED
    unread = walk([replace(part, payloads_unread=2)])[0]
    assert unread[Check.PAYLOADS].outcome is Outcome.UNPROVEN


def test_stray_rows_and_an_unrecorded_scope_are_failures() -> None:
    part = chain(1)[0]
    stray = walk([replace(part, strays=["logs holds a row of block 7, which is not stored"])])[0]
    assert stray[Check.PLACEMENT].outcome is Outcome.FAILED
    unknown = walk([replace(part, scope_known=False)])[0]
    assert unknown[Check.POSITION].outcome is Outcome.FAILED


def test_the_geth_chain_is_proven_and_linked_from_genesis_on(shared_data: Path) -> None:
    recorded = json.loads((shared_data / "geth-chain.json").read_bytes())
    answers = [recorded["blocks"][name] for name in recorded["canonical"]]
    found = walk([held(rpc.rows(answer, answer.get("receipts"))) for answer in answers])
    assert len(found) == 55
    for findings in found:
        assert Outcome.FAILED not in outcomes(findings)
        for check in (
            *(Check.CONTIGUITY, Check.PARENT_LINK, Check.HEADER_HASH, Check.TRANSACTIONS_ROOT),
            *(Check.TRANSACTION_HASHES, Check.WITHDRAWALS_ROOT, Check.TRANSACTION_FIELDS),
        ):
            assert findings[check].outcome is Outcome.PROVEN


def ref(number: int) -> BlockRef:
    return BlockRef(number, number.to_bytes(32, "big"))


def test_a_report_counts_per_check_and_merges_the_damage_into_spans() -> None:
    tally = Tally()
    bad = failed(Check.HEADER_HASH, "differs", b"\x01", b"\x02")
    for number in range(10):
        good = proven(Check.PARENT_LINK) if number else unproven(Check.PARENT_LINK, "first")
        tally.add(ref(number), [good, bad if number in (3, 4, 8) else proven(Check.HEADER_HASH)])
    tally.missing(Span(5, 6))
    report = tally.report("devnet", Span(0, 9))
    assert (report.ok, report.blocks, report.damaged_count) == (False, 10, 3)
    assert report.damaged_spans == (Span(3, 6), Span(8, 8))
    counts = report.checks[Check.HEADER_HASH]
    assert (counts.proven, counts.failed, counts.unproven) == (7, 3, 0)
    assert report.checks[Check.PARENT_LINK].unproven_first == (0, "first")
    assert [damage.ref.number for damage in report.damaged] == [3, 4, 8]


def test_a_report_reads_as_json_and_as_text() -> None:
    tally = Tally()
    tally.add(ref(7), [failed(Check.LOGS_BLOOM, "differs", b"\xab", b"\xcd")])
    report = tally.report("devnet", Span(7, 7))
    document = report.document()
    assert document["checks"]["logs_bloom"]["failed"] == 1
    assert document["damaged"][0]["findings"][0]["expected"] == "0xab"
    assert (document["ok"], document["damaged_spans"]) == (False, [[7, 7]])
    text = "\n".join(report.lines())
    assert "logs_bloom: differs (expected 0xab, got 0xcd)" in text


def test_a_report_stays_bounded_when_everything_is_damaged() -> None:
    tally = Tally()
    total = 2 * SPANS_MAX + 500
    for number in range(0, 2 * total, 2):
        tally.add(ref(number), [failed(Check.HEADER_HASH, "differs")])
    report = tally.report("devnet", Span(0, 2 * total))
    assert report.damaged_count == total
    assert (len(report.damaged), len(report.damaged_spans)) == (DAMAGED_MAX, SPANS_MAX)


@pytest.mark.parametrize("first", [Check.HEADER_HASH, Check.SOURCE_HASH])
def test_a_block_that_fails_twice_is_damaged_once(first: Check) -> None:
    tally = Tally()
    tally.add(ref(1), [failed(first, "differs")])
    tally.also(ref(1), failed(Check.SOURCE_HASH, "differs"))
    report = tally.report("devnet", Span(1, 1))
    assert (report.blocks, report.damaged_count) == (1, 1)
    assert [finding.check for finding in report.damaged[0].findings] == [first, Check.SOURCE_HASH]


def test_a_report_names_the_columns_that_were_not_proven_with_blocks_and_reason() -> None:
    tally = Tally()
    for number in range(9):
        signed = unproven(Check.SENDERS, "not recovered") if number else proven(Check.SENDERS)
        root = unproven(Check.TRANSACTIONS_ROOT, f"not given in {number}")
        paid = unproven(Check.GAS_PRICES, "no base fee")
        tally.add(ref(number), [signed, root, paid] if number % 2 else [signed, paid])
    report = tally.report("devnet", Span(0, 8))
    columns = report.unproven_columns
    assert set(columns) == {
        name
        for check in (Check.SENDERS, Check.TRANSACTIONS_ROOT, Check.GAS_PRICES)
        for name in COVERED[check]
    }
    sender, price = columns["transactions.from_address"], columns["transactions.gas_price"]
    assert (sender.blocks, sender.number, sender.reason) == (8, 1, "not recovered")
    # Two checks answer for the price; a block in which both could not is counted once.
    assert (price.blocks, price.number, price.reason) == (9, 0, "no base fee")
    assert columns["transactions.nonce"].blocks == 4
    shown = report.document()["unproven_columns"]["transactions.from_address"]
    assert shown == {"blocks": 8, "number": 1, "reason": "not recovered"}
    text = "\n".join(report.lines())
    assert "not proven in 8 blocks: transactions.from_address (first at 1: not recovered)" in text
    assert report.ok and not report.proven


def test_columns_of_a_dataset_without_rows_are_not_named() -> None:
    tally = Tally()
    tally.add(ref(0), [unproven(Check.RECEIPTS_ROOT, "not given")], ["blocks", "logs"])
    names = tally.report("devnet", Span(0, 0)).unproven_columns
    assert names and all(name.startswith("logs.") for name in names)


def test_what_no_block_commits_to_is_named_and_not_held_against_the_blocks() -> None:
    tally = Tally()
    tally.add(ref(0), [unproven(Check.SENDERS, "not recovered"), proven(Check.HEADER_HASH)])
    report = tally.report("devnet", Span(0, 0))
    assert report.proven and set(report.unproven_columns) == {"transactions.from_address"}


@pytest.mark.parametrize("given", [None, 0])
def test_a_total_difficulty_is_unproven_without_its_own_or_that_of_the_block_below(
    given: int | None,
) -> None:
    blocks = chain(4)
    at = 2 if given is None else 1
    blocks[at] = replace(
        blocks[at],
        rows=replace(blocks[at].rows, block={**blocks[at].rows.block, "total_difficulty": None}),
    )
    found = [findings[Check.TOTAL_DIFFICULTY].outcome for findings in walk(blocks)]
    assert [outcome is Outcome.UNPROVEN for outcome in found] == [
        place in (at, at + 1) for place in range(4)
    ]
    assert found[0] is Outcome.PROVEN


def test_a_total_difficulty_that_does_not_add_up_fails() -> None:
    blocks = chain(4)
    row = {**blocks[2].rows.block}
    row["total_difficulty"] += 1
    blocks[2] = replace(blocks[2], rows=replace(blocks[2].rows, block=row))
    found = [
        findings[Check.TOTAL_DIFFICULTY].outcome is Outcome.FAILED for findings in walk(blocks)
    ]
    assert found == [False, False, True, True]


def test_an_empty_store_is_reported_as_such() -> None:
    report: Report = Tally().report("devnet", None)
    assert report.ok and report.lines() == ["devnet: nothing is stored"]
