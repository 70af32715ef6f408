"""Owns what a fork does with the transactions it takes away, as orders to the new blocks.

A fork replaces blocks; its style says what becomes of what was in them. The plan is a pure function
of the blocks taken away, so a block made by a fork can be built again like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from unfork.devnet import contracts
from unfork.devnet.block import Block, Executed
from unfork.devnet.cast import ACCOUNTS, DEPLOYER, Cast
from unfork.devnet.contracts import Standard
from unfork.devnet.dice import Dice


class Style(Enum):
    """What becomes of the transactions of replaced blocks."""

    #: The same transactions at the same places, in blocks of another hash.
    KEPT = "kept"
    #: Some are gone, the others stay in their blocks.
    DROPPED = "dropped"
    #: The same transactions, by hash, in another block or at another index; some now fail.
    MOVED = "moved"
    #: Others by the same senders with the same nonces.
    REPLACED = "replaced"
    #: Every contract created is created again at the same address as something else. Where
    #: nothing was created, something is.
    REDEPLOYED = "redeployed"


@dataclass(frozen=True, slots=True)
class Keep:
    """Include a transaction again, if its sender's nonce has come."""

    executed: Executed
    #: Whether it fails this time.
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Send:
    """Include a new transaction by an account."""

    #: Position of the account in the cast.
    position: int


@dataclass(frozen=True, slots=True)
class Create:
    """Include a new creation by the deployer."""

    #: What must not be created.
    avoid: Standard | None = None


Order = Keep | Send | Create


def plan(
    style: Style, removed: Sequence[Block], length: int, cast: Cast, dice: Dice
) -> list[tuple[Order, ...] | None]:
    """Orders for each of the new blocks, None where it is a block like any other.

    `removed` ascends. Orders of removed blocks that have no successor are lost, except where the
    style must keep what was in them: then the last new block takes them.
    """
    if length == 0:
        return []
    planned: list[list[Order]] = [[] for _ in range(min(length, len(removed) + 1))]
    taken = [executed for block in removed for executed in block.transactions]
    for offset, block in enumerate(removed):
        match style:
            case Style.MOVED:
                target = min(offset + 1, length - 1)
            case Style.REDEPLOYED:
                target = min(offset, length - 1)
            case _:
                target = offset
        if target < length:
            planned[target] += [
                order
                for executed in block.transactions
                for order in _orders(style, executed, executed is taken[-1], cast, dice)
            ]
    if style is Style.MOVED:
        planned = [_shuffled(orders, cast) for orders in planned]
        _push_back(planned, taken, cast, dice)
    if style is Style.REDEPLOYED and not any(e.contract_address for e in taken):
        planned[0].append(Create())
    filled: list[tuple[Order, ...] | None] = [tuple(orders) for orders in planned]
    if style is not Style.MOVED:
        # Beyond the blocks it replaces a fork goes on like any chain.
        filled = filled[: len(removed)]
    return filled + [None] * (length - len(filled))


def _orders(style: Style, executed: Executed, is_last: bool, cast: Cast, dice: Dice) -> list[Order]:
    position = cast.positions[executed.sender]
    match style:
        case Style.KEPT:
            return [Keep(executed)]
        case Style.DROPPED:
            # At least the last one goes: no other waits for its nonce.
            return [] if is_last or dice.one_in(3) else [Keep(executed)]
        case Style.MOVED:
            return [Keep(executed, fails=executed.status == 1 and dice.one_in(8))]
        case Style.REPLACED:
            return [Create() if position == DEPLOYER else Send(position)]
        case Style.REDEPLOYED:
            if position != DEPLOYER:
                return [Keep(executed)]
            address = executed.contract_address
            if address is None:
                return [Create()]
            return [Create(contracts.created_by(executed.transaction.input, address).standard)]


def _shuffled(orders: list[Order], cast: Cast) -> list[Order]:
    """The transactions in another order, each sender's own still in the order of their nonces."""
    senders = [cast.positions[o.executed.sender] for o in orders if isinstance(o, Keep)]
    order = sorted(range(len(orders)), key=lambda index: (-senders[index], index))
    return [orders[index] for index in order]


def _push_back(
    planned: list[list[Order]], taken: Sequence[Executed], cast: Cast, dice: Dice
) -> None:
    """Puts a new transaction before the others, so that even a lone one gets another index.

    Its sender must have none of its own waiting, whose nonces would no longer fit.
    """
    busy = {executed.sender for executed in taken}
    idle = [p for p in range(1, ACCOUNTS) if cast.accounts[p] not in busy]
    for orders in planned:
        if idle:
            orders.insert(0, Send(dice.pick(idle)))
