"""Owns the contracts of the devnet: what stands at an address, and how it comes to stand there.

What a contract is follows from the code that creates it, and its address from creator and nonce
alone. So a creation that moves to another block deploys the same thing, and another creation with
the same nonce puts something else at the same address.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from unfork.devnet.dice import Dice
from unfork.proof import rlp
from unfork.proof.keccak import keccak256


class Standard(Enum):
    """What a contract does; the value is what a reader of chains would call it."""

    ERC20 = "erc20"
    ERC721 = "erc721"
    ERC1155 = "erc1155"
    #: No token: it notes things in logs of any shape and calls others.
    PLAIN = "plain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A contract at an address."""

    address: bytes
    standard: Standard
    #: What its functions name() and symbol() return, as the bytes of the string; may hold anything.
    name: bytes
    symbol: bytes
    #: What decimals() returns; None where it has no such function.
    decimals: int | None


def address_of(creator: bytes, nonce: int) -> bytes:
    """The address that CREATE gives."""
    return keccak256(rlp.encode((creator, nonce)))[12:]


def draw(dice: Dice, address: bytes, standard: Standard, *, hostile: bool) -> Contract:
    """A contract of a standard, with names that fit it or, where hostile, that fit nothing."""
    adjective, noun = dice.pick(_ADJECTIVES), dice.pick(_NOUNS)
    name = f"{adjective} {noun}".encode()
    symbol = (adjective[:2] + noun[:2]).upper().encode()
    decimals = dice.pick((6, 8, 18, 18)) if standard is Standard.ERC20 else None
    if hostile and dice.one_in(2):
        name = dice.pick((name, b"", b"nul\0name\0", b"\xff\xfe not utf-8", b"long " * 40))
        symbol = dice.pick((b"", b"", b"\0", b"S\0Y", b"\xc3\x28", "🦄".encode()))
        if decimals is not None:
            decimals = dice.pick((0, 18, 77, 255))
    return Contract(address=address, standard=standard, name=name, symbol=symbol, decimals=decimals)


def init_code(contract: Contract, filling: bytes) -> bytes:
    """The code that creates the contract: what it is, then filling."""
    decimals = b"" if contract.decimals is None else bytes((contract.decimals,))
    parts = (contract.standard.value.encode(), contract.name, contract.symbol, decimals)
    return _PREFIX + b"".join(len(part).to_bytes(2, "big") + part for part in parts) + filling


def created_by(code: bytes, address: bytes) -> Contract:
    """The contract that an init code of this devnet creates at an address."""
    assert code.startswith(_PREFIX)
    position = len(_PREFIX)
    parts = []
    for _ in range(4):
        start = position + 2
        position = start + int.from_bytes(code[position:start], "big")
        parts.append(code[start:position])
    standard, name, symbol, decimals = parts
    return Contract(
        address=address,
        standard=Standard(standard.decode()),
        name=name,
        symbol=symbol,
        decimals=decimals[0] if decimals else None,
    )


#: How compiled init code begins.
_PREFIX = bytes.fromhex("608060405234801561001057600080fd5b50")
_ADJECTIVES = ("Amber", "Basalt", "Copper", "Dusty", "Early", "Frozen", "Gentle", "Hollow")
_NOUNS = ("Anchor", "Beacon", "Coin", "Dollar", "Ember", "Fjord", "Gold", "Harbour")
