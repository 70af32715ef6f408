"""Owns the state of the chain after a block: everything that the next block builds on.

It is small and immutable and names no block before it, so any block can be built again from the
state before it, however long ago that was.
"""

from __future__ import annotations

from dataclasses import dataclass

from unfork.devnet.contracts import Contract


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What the next block needs to know of all blocks before it."""

    number: int
    hash: bytes
    timestamp: int
    #: Next nonce of each account, in the order of the cast.
    nonces: tuple[int, ...]
    #: Contracts that transactions turn to: the first ones and the latest created.
    contracts: tuple[Contract, ...]
    #: Contracts that this very block created.
    created: tuple[Contract, ...]
    #: Number of the next withdrawal.
    withdrawal_index: int
