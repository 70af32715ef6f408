"""Owns what stands around a transaction's act: its type, fees, lists and signature.

Signatures are random numbers: nobody can recover a sender from them, the node's word counts.
"""

from __future__ import annotations

from unfork.devnet.acts import Act
from unfork.devnet.dice import Dice
from unfork.proof.transaction import Authorization, Transaction

#: A block's base fee is drawn between this and twice this, so that every transaction made for one
#: block can pay for any other.
BASE_FEE = 10**9
#: Gas that one blob takes.
BLOB_GAS = 131_072
#: Blobs in a block at most: the target of the rules, so that blob gas always costs 1 Wei.
BLOBS_MAX = 6

_TYPES = (0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 4)
_CREATING_TYPES = (0, 1, 2)


def seal(
    dice: Dice, act: Act, *, nonce: int, gas: int, chain_id: int, blobs_left: int
) -> Transaction:
    """The act as a signed transaction."""
    type = dice.pick(_CREATING_TYPES if act.to is None else _TYPES)
    if type == 3 and blobs_left == 0:
        type = 2
    parity = dice.below(2)
    tip = dice.below(2 * 10**9)
    price = 2 * BASE_FEE + tip
    return Transaction(
        type=type,
        chain_id=None if type == 0 else chain_id,
        nonce=nonce,
        gas_price=price if type < 2 else None,
        max_priority_fee_per_gas=tip if type >= 2 else None,
        max_fee_per_gas=price if type >= 2 else None,
        gas=gas,
        to=act.to,
        value=act.value,
        input=act.input,
        access_list=_access_list(dice, act.to) if type >= 1 and dice.one_in(3) else (),
        max_fee_per_blob_gas=1 + dice.below(10**9) if type == 3 else None,
        blob_versioned_hashes=(
            tuple(b"\x01" + dice.data(31) for _ in range(1 + dice.below(min(3, blobs_left))))
            if type == 3
            else ()
        ),
        authorization_list=_authorizations(dice, chain_id) if type == 4 else (),
        v=_v(dice, parity, chain_id) if type == 0 else parity,
        r=_signature_number(dice),
        s=_signature_number(dice),
    )


def price_paid(transaction: Transaction, base_fee: int) -> int:
    """What each unit of gas costs in a block with this base fee."""
    if transaction.gas_price is not None:
        return transaction.gas_price
    fee, tip = transaction.max_fee_per_gas, transaction.max_priority_fee_per_gas
    assert fee is not None and tip is not None and fee >= base_fee
    return min(fee, base_fee + tip)


def _v(dice: Dice, parity: int, chain_id: int) -> int:
    """The v of a legacy transaction: now and then from before it named its chain."""
    return 27 + parity if dice.one_in(4) else 35 + 2 * chain_id + parity


def _signature_number(dice: Dice) -> int:
    # Short ones are rare on a chain and therefore made here: they lose their leading zeros.
    return 1 + dice.number(30 if dice.one_in(32) else 32) // 2


def _access_list(dice: Dice, to: bytes | None) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
    first = to if to is not None else dice.data(20)
    others = tuple(dice.data(20) for _ in range(dice.below(2)))
    return tuple(
        (address, tuple(dice.data(32) for _ in range(dice.below(3))))
        for address in (first, *others)
    )


def _authorizations(dice: Dice, chain_id: int) -> tuple[Authorization, ...]:
    return tuple(
        Authorization(
            chain_id=dice.pick((0, chain_id)),
            address=dice.data(20),
            nonce=dice.below(100),
            y_parity=dice.below(2),
            r=_signature_number(dice),
            s=_signature_number(dice),
        )
        for _ in range(1 + dice.below(2))
    )
