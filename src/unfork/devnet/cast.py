"""Owns who acts on a devnet: its accounts, and the contracts that stand from the first block on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from unfork.devnet import contracts
from unfork.devnet.contracts import Contract, Standard
from unfork.devnet.dice import Dice

#: Accounts that send transactions.
ACCOUNTS = 24
#: The account that creates contracts and does nothing else, so that the address of the next one
#: depends on nothing but how many it has created.
DEPLOYER = 0

_FIRST = (
    Standard.ERC20,
    Standard.ERC20,
    Standard.ERC20,
    Standard.ERC721,
    Standard.ERC1155,
    Standard.PLAIN,
    Standard.PLAIN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """The accounts and first contracts of one seed."""

    accounts: tuple[bytes, ...]
    #: Position of each account.
    positions: dict[bytes, int]
    #: Contracts that the first block holds already.
    contracts: tuple[Contract, ...]


@lru_cache(maxsize=64)
def of(seed: int, hostile: bool) -> Cast:
    """The cast of a seed."""
    dice = Dice(b"cast", str(seed).encode())
    accounts = tuple(dice.data(20) for _ in range(ACCOUNTS))
    return Cast(
        accounts=accounts,
        positions={account: position for position, account in enumerate(accounts)},
        contracts=tuple(
            contracts.draw(dice, dice.data(20), standard, hostile=hostile) for standard in _FIRST
        ),
    )
