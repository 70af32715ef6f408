"""Owns the proof of one block: everything its hash commits to, recomputed from its parts.

A `Claim` is what a node or a store says of a block; `check` says which parts of it are proven. Both
the source (at ingest, on request) and `verify` (over stored rows) call it, so that they can never
disagree. What follows from a block without being committed to is the work of `derived`, what its
transactions called that of `calls`; `columns` says which check answers for which column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unfork.proof import header as headers
from unfork.proof import receipt as receipts
from unfork.proof import rlp
from unfork.proof import transaction as transactions
from unfork.proof.finding import Check, Finding, Outcome, equal, failed, proven, unproven
from unfork.proof.header import Header
from unfork.proof.keccak import keccak256
from unfork.proof.receipt import Log, Receipt, Withdrawal
from unfork.proof.transaction import Transaction
from unfork.proof.trie import ordered_root


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A value that could not be put together."""

    #: Fields that were not given.
    missing: tuple[str, ...] = ()
    #: What contradicts itself, in words; such a value is damaged whatever else is missing.
    broken: tuple[str, ...] = ()

    def finding(self, check: Check, of: str) -> Finding:
        """What a check that needs the value has to say."""
        if self.broken:
            return failed(check, f"{of}: {', '.join(self.broken)}")
        return unproven(check, f"{of}: not given: {', '.join(self.missing)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is said of one block; None means that it was not given or not asked for."""

    hash: bytes
    header: Header | Gap
    #: The commitments by themselves: they may be known where the header is not whole.
    transactions_root: bytes | None
    receipts_root: bytes | None
    withdrawals_root: bytes | None
    logs_bloom: bytes | None
    gas_used: int | None
    transaction_count: int | None
    #: Bytes of the encoded block.
    size: int | None
    #: In block order.
    transactions: Sequence[Transaction | Gap] | None
    #: The hash and the gas each transaction is said to have, in the same order.
    transaction_hashes: Sequence[bytes]
    transaction_gas: Sequence[int | None]
    #: In block order, one per transaction.
    receipts: Sequence[Receipt | Gap] | None
    #: All logs of the block in order, None where logs were not asked for.
    logs: Sequence[Log | Gap] | None
    #: Whether only the logs that pass a filter are here.
    logs_filtered: bool
    log_indexes: Sequence[int]
    withdrawals: Sequence[Withdrawal] | Gap | None
    #: How many of `header.LATER` are known to be in force, by other evidence than the header.
    later_min: int
    #: What was found wrong while the claim was put together.
    contradictions: Sequence[Finding] = ()


def check(claim: Claim) -> tuple[Finding, ...]:
    """One finding for each thing a block commits to."""
    sizes = _Sizes()
    header = _header(claim, sizes)
    logs_bloom, receipts_root = _receipts(claim)
    return (
        header,
        _placement(claim),
        _transaction_count(claim),
        *_transactions(claim, sizes),
        receipts_root,
        _gas_used(claim),
        logs_bloom,
        _log_indexes(claim),
        _withdrawals(claim, sizes, header_proven=header.outcome is Outcome.PROVEN),
        _block_size(claim, sizes),
    )


class _Sizes:
    """Bytes of the parts of an encoded block; None where a part could not be encoded."""

    __slots__ = ("header", "transactions", "withdrawals")

    def __init__(self) -> None:
        self.header: int | None = None
        self.transactions: int | None = None
        self.withdrawals: int | None = None


def _header(claim: Claim, sizes: _Sizes) -> Finding:
    if isinstance(claim.header, Gap):
        return claim.header.finding(Check.HEADER_HASH, "header")
    encoded = headers.encode(claim.header)
    sizes.header = len(encoded)
    actual = keccak256(encoded)
    if actual == claim.hash:
        return proven(Check.HEADER_HASH)
    absent = headers.LATER[headers.later_count(claim.header) :]
    known = headers.LATER[: claim.later_min]
    missing = [name for name in absent if name in known]
    if missing:
        # The rules of this block have the field, so the hash cannot come out without it.
        return unproven(Check.HEADER_HASH, f"header: not given: {', '.join(missing)}")
    reason = "the header's fields do not hash to the block's hash"
    return failed(Check.HEADER_HASH, reason, claim.hash, actual)


def _placement(claim: Claim) -> Finding:
    return claim.contradictions[0] if claim.contradictions else proven(Check.PLACEMENT)


def _transaction_count(claim: Claim) -> Finding:
    if claim.transactions is None:
        return unproven(Check.TRANSACTION_COUNT, "transactions were not given")
    if claim.transaction_count is None:
        return unproven(Check.TRANSACTION_COUNT, "block: not given: transaction_count")
    return equal(
        Check.TRANSACTION_COUNT,
        "the block has another number of transactions than it says",
        expected=claim.transaction_count,
        actual=len(claim.transactions),
    )


def _transactions(claim: Claim, sizes: _Sizes) -> tuple[Finding, Finding]:
    """The hash of each transaction, then the root of all."""
    if claim.transactions is None:
        reason = "transactions were not given"
        return (
            unproven(Check.TRANSACTION_HASHES, reason),
            unproven(Check.TRANSACTIONS_ROOT, reason),
        )
    encoded: list[bytes] = []
    size = 0
    wrong: Finding | None = None
    gap: Finding | None = None
    for index, transaction in enumerate(claim.transactions):
        of = f"transaction {index}"
        if isinstance(transaction, Gap):
            finding = transaction.finding(Check.TRANSACTION_HASHES, of)
            if finding.outcome is Outcome.FAILED:
                wrong = wrong or finding
            gap = gap or transaction.finding(Check.TRANSACTIONS_ROOT, of)
            continue
        envelope = transactions.encode(transaction)
        encoded.append(envelope)
        # In a block a typed transaction stands as bytes, a legacy one as the list it is.
        size += rlp.size_with_prefix(len(envelope)) if transaction.type else len(envelope)
        actual = keccak256(envelope)
        if actual != claim.transaction_hashes[index] and wrong is None:
            reason = f"{of}: its fields do not hash to its hash"
            expected = claim.transaction_hashes[index]
            wrong = failed(Check.TRANSACTION_HASHES, reason, expected, actual)
    if gap is not None:
        hashes = wrong or unproven(Check.TRANSACTION_HASHES, gap.reason)
        return hashes, gap
    sizes.transactions = size
    hashes = wrong or proven(Check.TRANSACTION_HASHES)
    return hashes, _root(Check.TRANSACTIONS_ROOT, claim.transactions_root, encoded)


def _receipts(claim: Claim) -> tuple[Finding, Finding]:
    """The bloom, then the root: the root needs the bloom of every receipt on the way."""
    if claim.receipts is None:
        reason = "receipts were not given"
        return _bloom(claim), unproven(Check.RECEIPTS_ROOT, reason)
    encoded: list[bytes] = []
    gap: Finding | None = None
    for index, receipt in enumerate(claim.receipts):
        if isinstance(receipt, Gap):
            finding = receipt.finding(Check.RECEIPTS_ROOT, f"receipt {index}")
            if gap is None or finding.outcome is Outcome.FAILED:
                gap = finding
        elif gap is None:
            encoded.append(receipts.encode(receipt))
    root = gap or _root(Check.RECEIPTS_ROOT, claim.receipts_root, encoded)
    return _bloom(claim), root


def _bloom(claim: Claim) -> Finding:
    if claim.logs is None:
        return unproven(Check.LOGS_BLOOM, "logs were not given")
    if claim.logs_bloom is None:
        return unproven(Check.LOGS_BLOOM, "block: not given: logs_bloom")
    whole: list[Log] = []
    for index, log in enumerate(claim.logs):
        if isinstance(log, Gap):
            return log.finding(Check.LOGS_BLOOM, f"log {index}")
        whole.append(log)
    actual = receipts.bloom(whole)
    if actual == claim.logs_bloom and not claim.logs_filtered:
        return proven(Check.LOGS_BLOOM)
    beyond = int.from_bytes(actual, "big") & ~int.from_bytes(claim.logs_bloom, "big")
    if claim.logs_filtered and not beyond:
        return unproven(Check.LOGS_BLOOM, "only the logs that pass a filter were given")
    reason = "the logs do not give the block's bloom"
    return failed(Check.LOGS_BLOOM, reason, claim.logs_bloom, actual)


def _gas_used(claim: Claim) -> Finding:
    if claim.receipts is None:
        return unproven(Check.GAS_USED, "receipts were not given")
    before = 0
    for index, receipt in enumerate(claim.receipts):
        if isinstance(receipt, Gap):
            return receipt.finding(Check.GAS_USED, f"receipt {index}")
        used = claim.transaction_gas[index]
        if used is None:
            return unproven(Check.GAS_USED, f"transaction {index}: not given: gas_used")
        if receipt.cumulative_gas_used != before + used:
            reason = f"transaction {index}: its gas and that of those before it do not add up"
            return failed(Check.GAS_USED, reason, receipt.cumulative_gas_used, before + used)
        before += used
    if claim.gas_used is None:
        return unproven(Check.GAS_USED, "block: not given: gas_used")
    reason = "the transactions used another amount of gas than the block says"
    return equal(Check.GAS_USED, reason, expected=claim.gas_used, actual=before)


def _log_indexes(claim: Claim) -> Finding:
    if claim.logs is None or claim.logs_filtered:
        return unproven(Check.LOG_INDEXES, "not all logs were given")
    if list(claim.log_indexes) == list(range(len(claim.log_indexes))):
        return proven(Check.LOG_INDEXES)
    # Some nodes count with gaps, and no root contains the index: only the order is committed to.
    return unproven(Check.LOG_INDEXES, "log indexes are not consecutive from zero")


def _withdrawals(claim: Claim, sizes: _Sizes, *, header_proven: bool) -> Finding:
    check = Check.WITHDRAWALS_ROOT
    if claim.withdrawals is None:
        return unproven(check, "withdrawals were not given")
    if isinstance(claim.withdrawals, Gap):
        return claim.withdrawals.finding(check, "withdrawals")
    if claim.withdrawals_root is not None:
        encoded = [receipts.encode_withdrawal(w) for w in claim.withdrawals]
        sizes.withdrawals = sum(map(len, encoded))
        return _root(check, claim.withdrawals_root, encoded)
    if not header_proven:
        return unproven(check, "block: not given: withdrawals_root")
    if claim.withdrawals:
        return failed(check, "the block's rules have no withdrawals, yet it has some")
    return proven(check)


def _block_size(claim: Claim, sizes: _Sizes) -> Finding:
    check = Check.BLOCK_SIZE
    if claim.size is None:
        return unproven(check, "block: not given: size")
    if isinstance(claim.header, Gap) or sizes.header is None or sizes.transactions is None:
        return unproven(check, "not all parts of the block were given")
    if claim.header.sha3_uncles != headers.EMPTY_UNCLES:
        return unproven(check, "the block has uncles, which are not stored")
    size = sizes.header + rlp.size_with_prefix(sizes.transactions) + _NO_UNCLES_SIZE
    if claim.withdrawals_root is not None:
        if sizes.withdrawals is None:
            return unproven(check, "not all parts of the block were given")
        if claim.size == rlp.size_with_prefix(size):
            # No hash contains the size, and some nodes take it of the block as it once was.
            return unproven(check, "the size is that of the block without its withdrawals")
        size += rlp.size_with_prefix(sizes.withdrawals)
    reason = "the encoded block has another size than it says"
    return equal(check, reason, expected=claim.size, actual=rlp.size_with_prefix(size))


#: Bytes of an empty list.
_NO_UNCLES_SIZE = 1


def _root(check: Check, expected: bytes | None, encoded: Sequence[bytes]) -> Finding:
    if expected is None:
        return unproven(check, f"block: not given: {check.value}")
    reason = "the rows do not hash to the root in the header"
    return equal(check, reason, expected=expected, actual=ordered_root(encoded))
