"""Owns the transaction: its fields, its five encodings and its hash."""

from __future__ import annotations

import builtins
from dataclasses import dataclass

from unfork.proof import rlp
from unfork.proof.keccak import keccak256


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """One entry of a type-4 transaction's authorization list."""

    chain_id: int
    address: bytes
    nonce: int
    y_parity: int
    r: int
    s: int

    def __hash__(self) -> int:
        # Written out because the generated one would call this module's `hash`.
        return builtins.hash((self.address, self.nonce, self.r, self.s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """A signed transaction of type 0 to 4; a field that its type does not have is None or empty."""

    type: int
    #: None in a type-0 transaction (there it is folded into v).
    chain_id: int | None
    nonce: int
    #: Types 0 and 1.
    gas_price: int | None
    #: From type 2 on.
    max_priority_fee_per_gas: int | None = None
    max_fee_per_gas: int | None = None
    gas: int
    #: None creates a contract.
    to: bytes | None
    value: int
    input: bytes
    #: From type 1 on: address and storage keys.
    access_list: tuple[tuple[bytes, tuple[bytes, ...]], ...] = ()
    #: Type 3.
    max_fee_per_blob_gas: int | None = None
    blob_versioned_hashes: tuple[bytes, ...] = ()
    #: Type 4.
    authorization_list: tuple[Authorization, ...] = ()
    #: Legacy v in type 0, y parity from type 1 on.
    v: int
    r: int
    s: int

    def __hash__(self) -> int:
        return builtins.hash((self.nonce, self.to, self.r, self.s))


def encode(transaction: Transaction) -> bytes:
    """The envelope that is hashed and put into the trie: from type 1 on the type stands in front.

    A type-0 transaction is encoded alike whether its v names a chain (EIP-155) or not.
    """
    t = transaction
    to = t.to or b""
    match t.type:
        case 0:
            assert t.gas_price is not None
            return rlp.encode((t.nonce, t.gas_price, t.gas, to, t.value, t.input, t.v, t.r, t.s))
        case 1:
            assert t.chain_id is not None and t.gas_price is not None
            return b"\x01" + rlp.encode(
                (
                    *(t.chain_id, t.nonce, t.gas_price, t.gas, to, t.value, t.input),
                    *(t.access_list, t.v, t.r, t.s),
                )
            )
        case 2 | 3 | 4:
            return bytes((t.type,)) + rlp.encode((*_dynamic_fee(t), *_own(t), t.v, t.r, t.s))
        case _:
            raise ValueError(f"transaction type {t.type} is not known (0 to 4 are)")


def hash(transaction: Transaction) -> bytes:
    """The hash that names the transaction."""
    return keccak256(encode(transaction))


def _dynamic_fee(t: Transaction) -> tuple[rlp.Item, ...]:
    """The fields that types 2 to 4 begin with."""
    assert t.chain_id is not None
    assert t.max_priority_fee_per_gas is not None and t.max_fee_per_gas is not None
    return (
        t.chain_id,
        t.nonce,
        t.max_priority_fee_per_gas,
        t.max_fee_per_gas,
        t.gas,
        t.to or b"",
        t.value,
        t.input,
        t.access_list,
    )


def _own(t: Transaction) -> tuple[rlp.Item, ...]:
    """The fields that only its type has, before the signature."""
    if t.type == 3:
        assert t.max_fee_per_blob_gas is not None
        return (t.max_fee_per_blob_gas, t.blob_versioned_hashes)
    if t.type == 4:
        return (
            tuple(
                (a.chain_id, a.address, a.nonce, a.y_parity, a.r, a.s) for a in t.authorization_list
            ),
        )
    return ()
