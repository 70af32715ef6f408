"""Owns the receipt with its logs: fields, encoding and bloom."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from unfork.proof import rlp
from unfork.proof.keccak import keccak256


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """One log entry as a receipt commits to it (its position is not part of the commitment)."""

    address: bytes
    topics: tuple[bytes, ...]
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The outcome of one transaction; status from Byzantium on, root before."""

    #: Type of the transaction it belongs to.
    type: int
    status: int | None
    root: bytes | None
    cumulative_gas_used: int
    logs: tuple[Log, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """One withdrawal of the consensus layer, amount in Gwei."""

    index: int
    validator_index: int
    address: bytes
    amount: int


def encode(receipt: Receipt, logs_bloom: bytes | None = None) -> bytes:
    """The envelope put into the trie; pass the bloom of its logs where it is known already."""
    outcome = receipt.root if receipt.status is None else receipt.status
    assert outcome is not None, "a receipt has a status or a root"
    body = rlp.encode(
        (
            outcome,
            receipt.cumulative_gas_used,
            bloom(receipt.logs) if logs_bloom is None else logs_bloom,
            [(log.address, log.topics, log.data) for log in receipt.logs],
        )
    )
    return bytes((receipt.type,)) + body if receipt.type else body


def bloom(logs: Iterable[Log]) -> bytes:
    """The 256-byte filter over the addresses and topics of the logs."""
    bits = 0
    for log in logs:
        bits |= _bits(log.address)
        for topic in log.topics:
            bits |= _bits(topic)
    return bits.to_bytes(256, "big")


def may_hold(logs_bloom: bytes, values: Iterable[bytes]) -> bool:
    """Whether a log of the filtered block may have one of these addresses or topics."""
    bits = int.from_bytes(logs_bloom, "big")
    return any(bits & (mask := _bits(value)) == mask for value in values)


def encode_withdrawal(withdrawal: Withdrawal) -> bytes:
    """The encoding put into the trie of withdrawals."""
    return rlp.encode(
        (
            withdrawal.index,
            withdrawal.validator_index,
            withdrawal.address,
            withdrawal.amount,
        )
    )


# Few values make up most logs (the topic of a token transfer, the busy contracts); a mask takes
# about 300 bytes.
@lru_cache(maxsize=8192)
def _bits(value: bytes) -> int:
    """The three bits that a value sets, each by eleven bits of its hash."""
    digest = keccak256(value)
    bits = 0
    for at in (0, 2, 4):
        bits |= 1 << (((digest[at] << 8) | digest[at + 1]) & 2047)
    return bits
