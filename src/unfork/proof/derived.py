"""Owns the proof of what follows from a block's transactions though no root commits to it.

A node adds values to a transaction that consensus never sees: prices, addresses, blob gas. Where
they can be worked out from what is proven they are, by Ethereum's rules; a block with a transaction
of a type that Ethereum does not have follows rules of its own chain, so that its prices stay
unproven. Where clients differ (a price for blobs that are not there, no address for a creation that
failed) the value is unproven too: it may be as the node gave it.

The sender is named by the signature alone. Recovering it takes longer than all other proofs of a
block together, so it stays unproven; only what follows from it is held against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unfork.proof import rlp
from unfork.proof.block import Gap
from unfork.proof.fields import Row, number
from unfork.proof.finding import Check, Finding, failed, proven, unproven
from unfork.proof.keccak import keccak256
from unfork.proof.transaction import Transaction

#: Gas of one blob.
BLOB_GAS = 131_072
#: How slowly the price of blobs rises, by the rules that had blobs first; later ones vary.
BLOB_PRICE_FRACTION = 3_338_477

_SENDERS = unproven(Check.SENDERS, "only the signature names a sender, and it is not recovered")


def check(
    block: Row, transactions: Sequence[Row], signed: Sequence[Transaction | Gap]
) -> tuple[Finding, ...]:
    """The findings on a block's transactions; `signed` are the same as far as they are whole."""
    if not transactions:
        return _NOTHING_TO_FIND
    fields, created = _Judge(Check.TRANSACTION_FIELDS), _Judge(Check.CREATED_CONTRACTS)
    prices, blob_gas = _Judge(Check.GAS_PRICES), _Judge(Check.BLOB_GAS_USED)
    base_fee = number(block.get("base_fee_per_gas"))
    for at, row in enumerate(transactions):
        kind: Any = row.get("transaction_type")
        _fields(fields, at, row, kind, signed[at])
        _created(created, at, row)
        if kind not in _ABSENT:
            prices.unproven(f"transaction {at}: type {kind} has rules of its own")
        elif kind < 2:
            _legacy_price(prices, at, row)
        else:
            _price(prices, at, row, signed[at], base_fee)
        _blob_gas(blob_gas, at, row, kind, signed[at])
    return (
        fields.finding(),
        _SENDERS,
        created.finding(),
        prices.finding(),
        blob_gas.finding(),
        _blob_prices(block, transactions),
    )


class _Judge:
    """One check over the transactions of a block: the first failure counts, or the first doubt."""

    __slots__ = ("_check", "_doubt", "_failure")

    def __init__(self, check: Check) -> None:
        self._check = check
        self._doubt = ""
        self._failure: Finding | None = None

    def failed(self, reason: str, expected: Any = None, actual: Any = None) -> None:
        if self._failure is None:
            self._failure = failed(self._check, reason, expected, actual)

    def unproven(self, reason: str) -> None:
        self._doubt = self._doubt or reason

    def finding(self) -> Finding:
        if self._failure is not None:
            return self._failure
        return unproven(self._check, self._doubt) if self._doubt else proven(self._check)


def _fields(judge: _Judge, at: int, row: Row, kind: Any, signed: Transaction | Gap) -> None:
    for name in _ABSENT.get(kind, ()):
        if row.get(name) is not None:
            judge.unproven(f"transaction {at}: type {kind} has no {name}, yet it is given")
    if row.get("root") is not None and row.get("status") is not None:
        judge.unproven(f"transaction {at}: has both a status and a root")
    if kind == 0:
        # From EIP-155 on v contains the chain; that the two agree is checked with the hash.
        v = signed.v if isinstance(signed, Transaction) else number(row.get("v"))
        is_given = row.get("chain_id") is not None
        if v is not None and (v >= 35) != is_given:
            what = "given, yet not signed" if is_given else "signed, yet not given"
            judge.unproven(f"transaction {at}: chain_id is {what}")


def _created(judge: _Judge, at: int, row: Row) -> None:
    named = row.get("contract_address")
    if row.get("to_address") is not None:
        if named is not None:
            judge.failed(f"transaction {at}: creates no contract, yet names one", None, named)
        return
    sender, nonce = row.get("from_address"), number(row.get("nonce"))
    if named is None:
        # Some nodes name the contract that a failed creation would have made, others do not.
        judge.unproven(f"transaction {at}: not given: contract_address")
    elif sender is None or nonce is None:
        judge.unproven(f"transaction {at}: not given: from_address or nonce")
    else:
        expected = keccak256(rlp.encode((sender, nonce)))[12:]
        if named != expected:
            reason = f"transaction {at}: its sender and nonce give another contract_address"
            judge.failed(reason, expected, named)


def _legacy_price(judge: _Judge, at: int, row: Row) -> None:
    """The price of types 0 and 1 is the one that was signed."""
    signed, paid = row.get("gas_price"), row.get("effective_gas_price")
    if paid is None:
        judge.unproven(f"transaction {at}: not given: effective_gas_price")
    elif signed is None:
        judge.unproven(f"transaction {at}: not given: gas_price")
    elif paid != signed and number(paid) != number(signed):
        reason = f"transaction {at}: effective_gas_price is not gas_price"
        judge.failed(reason, number(signed), number(paid))


def _price(
    judge: _Judge, at: int, row: Row, signed: Transaction | Gap, base_fee: int | None
) -> None:
    """The price from type 2 on follows from the fees; nodes show it as gas_price too."""
    if isinstance(signed, Transaction):
        fee, tip = signed.max_fee_per_gas, signed.max_priority_fee_per_gas
    else:
        fee, tip = number(row.get("max_fee_per_gas")), number(row.get("max_priority_fee_per_gas"))
    stated, paid = row.get("gas_price"), row.get("effective_gas_price")
    if fee is None or tip is None or base_fee is None:
        judge.unproven(f"transaction {at}: not given: its fees or the block's base_fee_per_gas")
        return
    expected = min(fee, base_fee + tip)
    if paid is None:
        judge.unproven(f"transaction {at}: not given: effective_gas_price")
    elif number(paid) != expected:
        reason = f"transaction {at}: effective_gas_price does not follow from fees and base fee"
        judge.failed(reason, expected, number(paid))
    if stated is None:
        judge.unproven(f"transaction {at}: not given: gas_price")
    elif stated != paid and number(stated) != expected:
        if number(stated) == fee:
            judge.unproven(f"transaction {at}: gas_price is the fee at most, not the one paid")
        else:
            reason = f"transaction {at}: gas_price is not the one paid"
            judge.failed(reason, expected, number(stated))


def _blob_gas(judge: _Judge, at: int, row: Row, kind: Any, signed: Transaction | Gap) -> None:
    used = row.get("blob_gas_used")
    if kind != 3:
        if used is not None and used != 0:
            judge.failed(f"transaction {at}: has no blobs, yet blob_gas_used", 0, used)
        elif used is not None:
            judge.unproven(f"transaction {at}: type {kind} has no blob_gas_used, yet it is given")
    elif used is None:
        judge.unproven(f"transaction {at}: not given: blob_gas_used")
    elif isinstance(signed, Gap):
        judge.unproven(f"transaction {at}: it is not known how many blobs it has")
    else:
        expected = BLOB_GAS * len(signed.blob_versioned_hashes)
        if used != expected:
            reason = f"transaction {at}: blob_gas_used does not follow from its blobs"
            judge.failed(reason, expected, used)


def _blob_prices(block: Row, transactions: Sequence[Row]) -> Finding:
    judge = _Judge(Check.BLOB_GAS_PRICES)
    prices: list[int] = []
    for at, row in enumerate(transactions):
        given = row.get("blob_gas_price")
        if row.get("transaction_type") != 3:
            if given is not None:
                judge.unproven(f"transaction {at}: has no blobs, yet blob_gas_price")
            continue
        if given is None:
            judge.unproven(f"transaction {at}: not given: blob_gas_price")
            continue
        price = number(given)
        if price is None:
            judge.failed(f"transaction {at}: blob_gas_price is not a number from zero on: {given}")
            continue
        prices.append(price)
        if price != prices[0]:
            reason = f"transaction {at}: blob_gas_price is another than that of those before it"
            judge.failed(reason, prices[0], price)
    if prices:
        expected = _blob_price(block)
        if expected is None:
            judge.unproven("no block says by which rules its blobs are priced")
        elif prices[0] != expected:
            # Chains set rules of their own, so that this is no contradiction.
            judge.unproven(f"blob_gas_price is {prices[0]}, by Ethereum's first rules {expected}")
    return judge.finding()


def _blob_price(block: Row) -> int | None:
    """The price of blobs in a block, None where its rules cannot be told."""
    excess = number(block.get("excess_blob_gas"))
    if excess is None:
        return None
    if excess == 0:
        return 1
    # From Prague on, when blocks got this field, the fraction changes without a sign in the block.
    if block.get("requests_hash") is not None:
        return None
    # A Taylor series of e^(excess / fraction), in whole numbers, as EIP-4844 writes it.
    total, part, step = 0, BLOB_PRICE_FRACTION, 1
    while part > 0:
        total += part
        part = part * excess // (BLOB_PRICE_FRACTION * step)
        step += 1
    return total // BLOB_PRICE_FRACTION


#: Columns that a transaction of each type does not have.
_ABSENT: dict[Any, tuple[str, ...]] = {
    0: (
        *("max_fee_per_gas", "max_priority_fee_per_gas", "max_fee_per_blob_gas"),
        *("blob_versioned_hashes", "access_list", "authorization_list"),
    ),
    1: (
        *("max_fee_per_gas", "max_priority_fee_per_gas", "max_fee_per_blob_gas"),
        *("blob_versioned_hashes", "authorization_list"),
    ),
    2: ("max_fee_per_blob_gas", "blob_versioned_hashes", "authorization_list"),
    3: ("authorization_list",),
    4: ("max_fee_per_blob_gas", "blob_versioned_hashes"),
}
_NOTHING_TO_FIND = tuple(
    proven(check)
    for check in (
        *(Check.TRANSACTION_FIELDS, Check.SENDERS, Check.CREATED_CONTRACTS),
        *(Check.GAS_PRICES, Check.BLOB_GAS_USED, Check.BLOB_GAS_PRICES),
    )
)
