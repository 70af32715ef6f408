"""Owns what a header commits to: roots, bloom, hash and size, real ones or stand-ins.

Stand-ins are constants and draws: they cost nothing and prove nothing. Real ones are computed by
`unfork.proof`, the same code that later proves stored blocks; its own tests hold it to real chains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unfork.devnet.block import Executed
from unfork.proof import receipt as proof_receipt
from unfork.proof import rlp, trie
from unfork.proof import transaction as proof_transaction
from unfork.proof.receipt import Receipt, Withdrawal
from unfork.proof.trie import EMPTY_ROOT

NO_BLOOM = bytes(256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commitments:
    """What a block's header says of its content."""

    transactions_root: bytes = EMPTY_ROOT
    receipts_root: bytes = EMPTY_ROOT
    withdrawals_root: bytes = EMPTY_ROOT
    logs_bloom: bytes = NO_BLOOM
    #: Bytes of the encoded block beside its header.
    body_size: int


def real(transactions: Sequence[Executed], withdrawals: Sequence[Withdrawal]) -> Commitments:
    """The commitments that consensus asks for."""
    encoded = [proof_transaction.encode(each.transaction) for each in transactions]
    blooms = [proof_receipt.bloom(each.logs) if each.logs else NO_BLOOM for each in transactions]
    receipts = [
        proof_receipt.encode(_receipt(each), bloom)
        for each, bloom in zip(transactions, blooms, strict=True)
    ]
    paid_out = [proof_receipt.encode_withdrawal(each) for each in withdrawals]
    bits = 0
    for bloom in blooms:
        bits |= int.from_bytes(bloom, "big")
    # In a block a typed transaction stands as a string, a legacy one as the list it is.
    standing = (
        rlp.encode(text) if each.transaction.type else text
        for each, text in zip(transactions, encoded, strict=True)
    )
    return Commitments(
        transactions_root=trie.ordered_root(encoded),
        receipts_root=trie.ordered_root(receipts),
        withdrawals_root=trie.ordered_root(paid_out),
        logs_bloom=bits.to_bytes(256, "big"),
        body_size=len(rlp.wrap(b"".join(standing)) + b"\xc0" + rlp.wrap(b"".join(paid_out))),
    )


def stand_in(transactions: Sequence[Executed]) -> Commitments:
    """Constants in place of commitments."""
    return Commitments(body_size=sum(120 + len(each.transaction.input) for each in transactions))


def whole_size(payload_size: int) -> int:
    """Bytes of an encoded block whose header and body take so many."""
    if payload_size < 56:
        return payload_size + 1
    return payload_size + 1 + (payload_size.bit_length() + 7) // 8


def _receipt(executed: Executed) -> Receipt:
    return Receipt(
        type=executed.transaction.type,
        status=executed.status,
        root=None,
        cumulative_gas_used=executed.cumulative_gas_used,
        logs=executed.logs,
    )
