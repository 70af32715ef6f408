"""Owns the finding: what one check says of one block.

There are three outcomes and never a fourth: a value that nobody gave is unproven, however likely it
is; a contradiction is a failure, however small; proven is what was recomputed and found equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """What came of a check."""

    #: Recomputed from the parts and equal to what the block commits to.
    PROVEN = "proven"
    #: Two things that must agree do not.
    FAILED = "failed"
    #: Not everything that the check needs was given.
    UNPROVEN = "unproven"


class Check(StrEnum):
    """What is checked of a block."""

    #: The block follows the one stored below it: no number is missing.
    CONTIGUITY = "contiguity"
    #: The parent hash is the hash of the block stored below.
    PARENT_LINK = "parent_link"
    #: The header's fields hash to the block's hash.
    HEADER_HASH = "header_hash"
    #: Every row names its block and transaction rightly and stands at its position.
    PLACEMENT = "placement"
    #: As many transactions as the block says.
    TRANSACTION_COUNT = "transaction_count"
    #: Each transaction's fields hash to its hash.
    TRANSACTION_HASHES = "transaction_hashes"
    #: The transactions hash to the root in the header.
    TRANSACTIONS_ROOT = "transactions_root"
    #: No transaction has a field that its type does not have, nor lacks one that repeats another.
    TRANSACTION_FIELDS = "transaction_fields"
    #: Each sender is the one that signed: no hash commits to it by itself.
    SENDERS = "senders"
    #: The address of a created contract follows from its creator and the creator's nonce.
    CREATED_CONTRACTS = "created_contracts"
    #: The price of gas follows from the fees of the transaction and the block's base fee.
    GAS_PRICES = "gas_prices"
    #: The gas of blobs follows from their number.
    BLOB_GAS_USED = "blob_gas_used"
    #: The price of blobs follows from the block's excess of them, by rules that chains set.
    BLOB_GAS_PRICES = "blob_gas_prices"
    #: Outcomes and logs hash to the root in the header.
    RECEIPTS_ROOT = "receipts_root"
    #: The gas of the transactions adds up to that of the receipts and of the header.
    GAS_USED = "gas_used"
    #: The logs give the bloom in the header.
    LOGS_BLOOM = "logs_bloom"
    #: Each log names the hash of the transaction at its index.
    LOG_TRANSACTIONS = "log_transactions"
    #: Each log's index is its position in the block; no root commits to it.
    LOG_INDEXES = "log_indexes"
    #: The withdrawals hash to the root in the header.
    WITHDRAWALS_ROOT = "withdrawals_root"
    #: The encoded block has the size that it says.
    BLOCK_SIZE = "block_size"
    #: The difficulty of the block and of all below it adds up.
    TOTAL_DIFFICULTY = "total_difficulty"
    #: Each transaction has one whole tree of calls: none is missing, none is there twice.
    TRACE_TREES = "trace_trees"
    #: The outermost calls repeat their transactions; nothing commits to what else calls say.
    TRACE_VALUES = "trace_values"
    #: Values kept outside the row are there and hash to their name.
    PAYLOADS = "payloads"
    #: The lookup tables hold this block and its transactions, and nothing else for its number.
    LOOKUPS = "lookups"
    #: A source has the same hash at this number.
    SOURCE_HASH = "source_hash"
    #: First block, position, floor and scopes as recorded fit the blocks held; no row is outside.
    POSITION = "position"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of one block, with what is needed to act on it."""

    check: Check
    outcome: Outcome
    #: Why it failed or could not be proven; empty where it was proven.
    reason: str = ""
    #: What the block commits to, None where there is no single value.
    expected: str | None = None
    #: What the parts give.
    actual: str | None = None

    def document(self) -> dict[str, str | None]:
        """The finding as plain JSON values."""
        return {
            "check": self.check.value,
            "outcome": self.outcome.value,
            "reason": self.reason or None,
            "expected": self.expected,
            "actual": self.actual,
        }


#: One shared finding per check, since nearly every block is proven in nearly every way.
_PROVEN = {check: Finding(check=check, outcome=Outcome.PROVEN) for check in Check}


def proven(check: Check) -> Finding:
    """The check held."""
    return _PROVEN[check]


def unproven(check: Check, reason: str) -> Finding:
    """The check could not be made."""
    return Finding(check=check, outcome=Outcome.UNPROVEN, reason=reason)


def failed(
    check: Check,
    reason: str,
    expected: bytes | int | None = None,
    actual: bytes | int | None = None,
) -> Finding:
    """The check found a contradiction."""
    return Finding(
        check=check,
        outcome=Outcome.FAILED,
        reason=reason,
        expected=_shown(expected),
        actual=_shown(actual),
    )


def equal(check: Check, reason: str, *, expected: bytes | int, actual: bytes | int) -> Finding:
    """Proven where the two are equal, else failed for `reason`."""
    if expected == actual:
        return proven(check)
    return failed(check, reason, expected, actual)


def _shown(value: bytes | int | None) -> str | None:
    if value is None:
        return None
    return "0x" + value.hex() if isinstance(value, bytes) else str(value)
