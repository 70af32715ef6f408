"""Owns the way from rows to a claim: rows as tables hold them, by the names of their columns.

The same rows come from Arrow tables (a 256-bit number is 32 bytes) and from Postgres (it is a
Decimal), so numbers are taken in any of their forms. Nothing here raises over a bad value: what is
NULL is missing, what cannot be is broken, and `block.check` turns both into findings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from unfork.proof import block, calls, derived
from unfork.proof.block import Claim, Gap
from unfork.proof.fields import Reader, Row
from unfork.proof.finding import Check, Finding, failed, proven, unproven
from unfork.proof.header import LATER, Header
from unfork.proof.receipt import Log, Receipt, Withdrawal
from unfork.proof.signed import transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """The rows of one block in the order of their indexes; None where none were asked for."""

    block: Row
    transactions: Sequence[Row] | None
    logs: Sequence[Row] | None
    withdrawals: Sequence[Row] | None
    #: In the order of their indexes too.
    traces: Sequence[Row] | None = None
    #: Whether only the logs that pass a filter are here.
    logs_filtered: bool = False


class Table(Protocol):
    """As much of an Arrow table as is needed here."""

    def to_pylist(self) -> list[dict[str, Any]]: ...


def check_tables(
    tables: Mapping[str, Table], *, logs_filtered: bool = False
) -> Iterator[tuple[int, bytes, tuple[Finding, ...]]]:
    """The findings on each block of a batch, by number and hash; tables are in chain order.

    A dataset that is not among the tables was not asked for. Rows that belong to no block of the
    batch are reported with the block they stand next to.
    """
    parts = {name: tables[name].to_pylist() for name in _PARTS if name in tables}
    ends = dict.fromkeys(parts, 0)
    blocks = tables["blocks"].to_pylist()
    later_min = 0
    for place, row in enumerate(blocks):
        own: dict[str, Sequence[Row]] = {}
        for name, rows in parts.items():
            first = end = ends[name]
            is_last = place == len(blocks) - 1
            while end < len(rows) and (is_last or rows[end]["block_number"] <= row["number"]):
                end += 1
            own[name], ends[name] = rows[first:end], end
        whole = Rows(
            block=row,
            transactions=own.get("transactions"),
            logs=own.get("logs"),
            withdrawals=own.get("withdrawals"),
            traces=own.get("traces"),
            logs_filtered=logs_filtered,
        )
        yield row["number"], row["hash"], findings(whole, later_min=later_min)
        later_min = later_count(row)


def findings(rows: Rows, *, later_min: int = 0) -> tuple[Finding, ...]:
    """One finding for each thing that the rows of a block can be held against.

    `later_min` is that of `claim`. What was not asked for at all has no finding but those on what
    the block commits to.
    """
    claimed = claim(rows, later_min=later_min)
    found = (*block.check(claimed), _log_transactions(rows))
    if rows.transactions is None or claimed.transactions is None:
        return found
    found += derived.check(rows.block, rows.transactions, claimed.transactions)
    if rows.traces is None:
        return found
    return found + calls.check(rows.block, rows.transactions, rows.traces)


def claim(rows: Rows, *, later_min: int = 0) -> Claim:
    """What the rows say of their block.

    `later_min` is `later_count` of the block below: rules only ever add fields to a header.
    """
    row = rows.block
    logs = None if rows.logs is None else [_log(log) for log in rows.logs]
    if logs is None and rows.transactions is not None and not rows.transactions:
        logs = []
    return Claim(
        hash=row["hash"],
        header=_header(row),
        transactions_root=row.get("transactions_root"),
        receipts_root=row.get("receipts_root"),
        withdrawals_root=row.get("withdrawals_root"),
        logs_bloom=row.get("logs_bloom"),
        gas_used=row.get("gas_used"),
        transaction_count=row.get("transaction_count"),
        size=row.get("size"),
        transactions=None
        if rows.transactions is None
        else [transaction(part) for part in rows.transactions],
        transaction_hashes=[part["hash"] for part in rows.transactions or ()],
        transaction_gas=[part.get("gas_used") for part in rows.transactions or ()],
        receipts=_receipts(rows, logs),
        logs=logs,
        logs_filtered=rows.logs_filtered,
        log_indexes=[part["log_index"] for part in rows.logs or ()],
        withdrawals=_withdrawals(rows),
        later_min=max(later_min, _later_seen(rows)),
        contradictions=_misplaced(rows),
    )


def later_count(row: Row) -> int:
    """How many of the header's later fields a block's row reaches."""
    return max((at for at, name in enumerate(LATER, 1) if row.get(name) is not None), default=0)


_PARTS = ("transactions", "logs", "withdrawals", "traces")


def _header(row: Row) -> Header | Gap:
    reader = Reader(row)
    text, numeral = reader.text, reader.number
    count = later_count(row)
    header = Header(
        parent_hash=text("parent_hash"),
        sha3_uncles=text("sha3_uncles"),
        miner=text("miner"),
        state_root=text("state_root"),
        transactions_root=text("transactions_root"),
        receipts_root=text("receipts_root"),
        logs_bloom=text("logs_bloom"),
        difficulty=numeral("difficulty"),
        number=numeral("number"),
        gas_limit=numeral("gas_limit"),
        gas_used=numeral("gas_used"),
        timestamp=reader.seconds("timestamp"),
        extra_data=text("extra_data"),
        mix_hash=text("mix_hash"),
        nonce=text("nonce"),
        base_fee_per_gas=numeral("base_fee_per_gas") if count > 0 else None,
        withdrawals_root=text("withdrawals_root") if count > 1 else None,
        blob_gas_used=numeral("blob_gas_used") if count > 2 else None,
        excess_blob_gas=numeral("excess_blob_gas") if count > 2 else None,
        parent_beacon_block_root=text("parent_beacon_block_root") if count > 2 else None,
        requests_hash=text("requests_hash") if count > 5 else None,
    )
    return reader.gap() or header


def _receipts(rows: Rows, logs: Sequence[Log | Gap] | None) -> list[Receipt | Gap] | None:
    """The receipts, each with the logs that name its transaction's index."""
    if rows.transactions is None or logs is None:
        return None
    by_index: dict[Any, list[Log | Gap]] = {}
    for row, log in zip(rows.logs or (), logs, strict=True):
        by_index.setdefault(row["transaction_index"], []).append(log)
    return [_receipt(row, by_index.get(row["transaction_index"], ())) for row in rows.transactions]


def _receipt(row: Row, logs: Sequence[Log | Gap]) -> Receipt | Gap:
    reader = Reader(row)
    kind = reader.number("transaction_type")
    if kind > 4:
        reader.missing.append(f"an encoding for transaction_type {kind}")
    status = reader.optional_number("status")
    receipt = Receipt(
        type=kind,
        status=status,
        root=reader.text("root") if status is None else None,
        cumulative_gas_used=reader.number("cumulative_gas_used"),
        logs=tuple(log for log in logs if isinstance(log, Log)),
    )
    if status is None and "root" in reader.missing:
        reader.missing[reader.missing.index("root")] = "status or root"
    for log in logs:
        if isinstance(log, Gap):
            reader.missing.extend(log.missing)
            reader.broken.extend(log.broken)
    return reader.gap() or receipt


def _log(row: Row) -> Log | Gap:
    reader = Reader(row)
    topics = [row.get("topic0"), row.get("topic1"), row.get("topic2"), row.get("topic3")]
    while topics and topics[-1] is None:
        topics.pop()
    if None in topics:
        reader.broken.append("a topic is NULL before one that is not")
    log = Log(
        address=reader.text("address"),
        topics=tuple(topic for topic in topics if topic is not None),
        data=reader.text("data"),
    )
    return reader.gap() or log


def _withdrawals(rows: Rows) -> list[Withdrawal] | Gap | None:
    if rows.withdrawals is None:
        return None
    found: list[Withdrawal] = []
    for row in rows.withdrawals:
        reader = Reader(row)
        withdrawal = Withdrawal(
            index=reader.number("index"),
            validator_index=reader.number("validator_index"),
            address=reader.text("address"),
            amount=reader.number("amount"),
        )
        gap = reader.gap()
        if gap is not None:
            return gap
        found.append(withdrawal)
    return found


def _later_seen(rows: Rows) -> int:
    """How many of the header's later fields the block's contents cannot do without."""
    seen = 2 if rows.withdrawals else 0
    for row in rows.transactions or ():
        kind = row.get("transaction_type")
        if kind == 3:
            return 5
        if kind in (2, 4):
            seen = max(seen, 1)
    return seen


def _misplaced(rows: Rows) -> list[Finding]:
    """Rows that name another block or transaction than the one they stand in."""
    found: list[Finding] = []
    place = (rows.block["number"], rows.block["hash"], rows.block["timestamp"])
    parts = (
        *(("transaction", rows.transactions), ("log", rows.logs)),
        *(("withdrawal", rows.withdrawals), ("trace", rows.traces)),
    )
    for what, part in parts:
        index = f"{what}_index"
        for at, row in enumerate(part or ()):
            named = (row["block_number"], row["block_hash"], row["block_timestamp"])
            if named != place:
                reason = f"{what} {at}: names another block, hash or time than the block it is in"
                found.append(failed(Check.PLACEMENT, reason, place[1], named[1]))
            if what != "log" and row[index] != at:
                reason = f"{what} {at}: stands at another index"
                found.append(failed(Check.PLACEMENT, reason, at, row[index]))
    before = (-1, -1)
    for at, row in enumerate(rows.logs or ()):
        here = (row["transaction_index"], row["log_index"])
        if here[0] < before[0] or here[1] <= before[1]:
            found.append(failed(Check.PLACEMENT, f"log {at}: stands out of order"))
        before = here
    return found


def _log_transactions(rows: Rows) -> Finding:
    check = Check.LOG_TRANSACTIONS
    if rows.logs is None:
        return unproven(check, "logs were not given")
    if not rows.logs:
        return proven(check)
    if rows.transactions is None:
        return unproven(check, "transactions were not given")
    hashes = {row["transaction_index"]: row["hash"] for row in rows.transactions}
    for at, row in enumerate(rows.logs):
        expected = hashes.get(row["transaction_index"])
        if expected != row["transaction_hash"]:
            reason = f"log {at}: its transaction is not in the block at that index"
            return failed(check, reason, expected, row["transaction_hash"])
    return proven(check)
