"""Owns what a devnet block is made of: consensus values, and what only a node knows (its calls).

Everything here is plain Python values; rendering as JSON-RPC and as expected rows happens
elsewhere, so that the two are independent readings of one block.
"""

from __future__ import annotations

from dataclasses import dataclass

from unfork.chain.block import BlockRef
from unfork.proof.header import Header
from unfork.proof.receipt import Log, Withdrawal
from unfork.proof.transaction import Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a transaction's call tree, depth first; the outermost has an empty path."""

    #: Path in the tree.
    path: tuple[int, ...]
    #: "call", "create" or "suicide".
    type: str
    #: "call", "delegatecall", "staticcall"; None for create and suicide.
    call_type: str | None
    sender: bytes
    to: bytes | None
    value: int
    gas: int
    gas_used: int
    input: bytes
    output: bytes
    subtraces: int
    #: None where the call took effect.
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """A transaction in its block, with its outcome."""

    transaction: Transaction
    hash: bytes
    sender: bytes
    status: int
    gas_used: int
    cumulative_gas_used: int
    effective_gas_price: int
    #: Address of the contract it created, None where it created none.
    contract_address: bytes | None
    logs: tuple[Log, ...]
    #: Index in the block of each log: ascending, gaps and values above 2^31 allowed.
    log_indexes: tuple[int, ...]
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of the tree."""

    header: Header
    hash: bytes
    #: Size of the encoded block in bytes.
    size: int
    transactions: tuple[Executed, ...]
    withdrawals: tuple[Withdrawal, ...]

    @property
    def number(self) -> int:
        return self.header.number

    @property
    def ref(self) -> BlockRef:
        return BlockRef(self.header.number, self.hash)
