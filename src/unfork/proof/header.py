"""Owns the block header: its fields, its encoding and its hash."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

from unfork.proof import rlp
from unfork.proof.keccak import keccak256

#: The hash of an empty list of uncles.
EMPTY_UNCLES = keccak256(b"\xc0")

#: The fields that later rules added, in the order they are encoded; a block has the first few.
LATER = (
    "base_fee_per_gas",
    "withdrawals_root",
    "blob_gas_used",
    "excess_blob_gas",
    "parent_beacon_block_root",
    "requests_hash",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """A header as consensus sees it; a field that its rules do not have yet is None."""

    parent_hash: bytes
    sha3_uncles: bytes
    miner: bytes
    state_root: bytes
    transactions_root: bytes
    receipts_root: bytes
    logs_bloom: bytes
    difficulty: int
    number: int
    gas_limit: int
    gas_used: int
    #: Seconds since 1970.
    timestamp: int
    extra_data: bytes
    mix_hash: bytes
    nonce: bytes
    #: From London on.
    base_fee_per_gas: int | None = None
    #: From Shanghai on.
    withdrawals_root: bytes | None = None
    #: From Cancun on, with the two below.
    blob_gas_used: int | None = None
    excess_blob_gas: int | None = None
    parent_beacon_block_root: bytes | None = None
    #: From Prague on.
    requests_hash: bytes | None = None

    def __hash__(self) -> int:
        # Written out because the generated one would call this module's `hash`.
        return builtins.hash((self.number, self.parent_hash, self.state_root, self.extra_data))


def encode(header: Header) -> bytes:
    """The encoding that is hashed; fields of later rules follow in the order they came."""
    fields: list[rlp.Item] = [
        header.parent_hash,
        header.sha3_uncles,
        header.miner,
        header.state_root,
        header.transactions_root,
        header.receipts_root,
        header.logs_bloom,
        header.difficulty,
        header.number,
        header.gas_limit,
        header.gas_used,
        header.timestamp,
        header.extra_data,
        header.mix_hash,
        header.nonce,
    ]
    later = [getattr(header, name) for name in LATER[: later_count(header)]]
    assert None not in later, "a later field without the ones before it"
    return rlp.encode([*fields, *later])


def hash(header: Header) -> bytes:
    """The hash that names the block."""
    return keccak256(encode(header))


def later_count(header: Header) -> int:
    """How many of `LATER` the header reaches, which tells the rules it was made under."""
    for count in range(len(LATER), 0, -1):
        if getattr(header, LATER[count - 1]) is not None:
            return count
    return 0
