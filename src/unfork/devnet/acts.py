"""Owns what transactions do: transfers, token events, approvals, creations, calls within calls.

An act is what a transaction asks for together with what comes of it, before it has a signature or
a place in a block. Acts are drawn without balances: a chain's readers must not assume any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from unfork.devnet import abi, calls, contracts, hostile
from unfork.devnet.calls import Frame
from unfork.devnet.cast import DEPLOYER, Cast
from unfork.devnet.contracts import Contract, Standard
from unfork.devnet.dice import Dice
from unfork.proof.receipt import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What an act is drawn from."""

    dice: Dice
    cast: Cast
    #: Contracts that can be called.
    contracts: tuple[Contract, ...]
    is_hostile: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """What a transaction does."""

    to: bytes | None
    value: int = 0
    input: bytes
    logs: tuple[Log, ...] = ()
    #: The outermost call; its error is the transaction's failure.
    frame: Frame
    #: Address of the contract it creates.
    contract_address: bytes | None = None


def draw(scene: Scene, sender: bytes) -> Act:
    """Something that an account does: any act but a creation."""
    dice = scene.dice
    act = _ACTS[dice.below(len(_ACTS))](scene, sender)
    if dice.one_in(12):
        return failed(act, dice.pick((calls.REVERTED, calls.OUT_OF_GAS)))
    return act


def create(scene: Scene, nonce: int, *, avoid: Standard | None = None) -> Act:
    """A creation by the deployer, of another standard than the one to avoid."""
    dice = scene.dice
    deployer = scene.cast.accounts[DEPLOYER]
    address = contracts.address_of(deployer, nonce)
    standard = dice.pick([each for each in _CREATED if each is not avoid])
    contract = contracts.draw(dice, address, standard, hostile=scene.is_hostile)
    is_large = scene.is_hostile and dice.one_in(6)
    filling = hostile.large(dice) if is_large else dice.data(64 + dice.below(192))
    code = contracts.init_code(contract, filling)
    frame = Frame(
        type="create",
        call_type=None,
        sender=deployer,
        to=address,
        input=code,
        output=filling[: len(filling) // 2],
    )
    minted = (
        (_log(contract, (abi.TRANSFER, _NOBODY, abi.padded(deployer)), abi.word(10**24)),)
        if standard is Standard.ERC20
        else ()
    )
    return Act(to=None, input=code, logs=minted, frame=frame, contract_address=address)


def failed(act: Act, error: str) -> Act:
    """The same transaction without effect: no logs, no contract, every call undone."""
    return Act(to=act.to, value=act.value, input=act.input, frame=calls.failed(act.frame, error))


def _ether(scene: Scene, sender: bytes) -> Act:
    dice = scene.dice
    to = dice.pick(scene.cast.accounts) if dice.below(3) else dice.data(20)
    value = dice.number(1 + dice.below(9))
    payload = b""
    if scene.is_hostile:
        payload = _awkward_payload(dice)
        if dice.one_in(16):
            # No account holds this much, so it can only fail.
            frame = Frame(sender=sender, to=to, value=hostile.U256_MAX, input=payload)
            act = Act(to=to, value=hostile.U256_MAX, input=payload, frame=frame)
            return failed(act, calls.REVERTED)
    frame = Frame(sender=sender, to=to, value=value, input=payload)
    return Act(to=to, value=value, input=payload, frame=frame)


def _transfer(scene: Scene, sender: bytes) -> Act:
    token = _contract(scene, Standard.ERC20)
    to, amount = _account(scene), hostile.amount(scene.dice, hostile=scene.is_hostile)
    log = _transferred(token, sender, to, amount)
    payload = abi.CALL_TRANSFER + abi.padded(to) + abi.word(amount)
    return _simple(token, sender, payload, (log,))


def _approve(scene: Scene, sender: bytes) -> Act:
    token = _contract(scene, Standard.ERC20)
    spender, amount = _account(scene), hostile.amount(scene.dice, hostile=scene.is_hostile)
    log = _log(token, (abi.APPROVAL, abi.padded(sender), abi.padded(spender)), abi.word(amount))
    payload = abi.CALL_APPROVE + abi.padded(spender) + abi.word(amount)
    return _simple(token, sender, payload, (log,))


def _nft(scene: Scene, sender: bytes) -> Act:
    """A transfer, a mint or an approval of one non-fungible token."""
    dice = scene.dice
    token = _contract(scene, Standard.ERC721)
    to = _account(scene)
    number = hostile.amount(dice, hostile=scene.is_hostile)
    origin = bytes(20) if dice.one_in(3) else sender
    event = abi.APPROVAL if dice.one_in(4) else abi.TRANSFER
    log = _log(token, (event, abi.padded(origin), abi.padded(to), abi.word(number)), b"")
    payload = abi.CALL_TRANSFER_FROM + abi.padded(origin) + abi.padded(to) + abi.word(number)
    return _simple(token, sender, payload, (log,))


def _approve_all(scene: Scene, sender: bytes) -> Act:
    dice = scene.dice
    token = _contract(scene, dice.pick((Standard.ERC721, Standard.ERC1155)))
    operator, granted = _account(scene), abi.word(dice.below(2))
    log = _log(token, (abi.APPROVAL_FOR_ALL, abi.padded(sender), abi.padded(operator)), granted)
    payload = abi.CALL_APPROVE_ALL + abi.padded(operator) + granted
    return _simple(token, sender, payload, (log,))


def _single(scene: Scene, sender: bytes) -> Act:
    token = _contract(scene, Standard.ERC1155)
    to, number = _account(scene), scene.dice.below(1000)
    amount = hostile.amount(scene.dice, hostile=scene.is_hostile)
    data = abi.word(number) + abi.word(amount)
    log = _log(token, (abi.TRANSFER_SINGLE, *map(abi.padded, (sender, sender, to))), data)
    payload = abi.CALL_SINGLE + abi.padded(sender) + abi.padded(to) + data + abi.word(160)
    return _simple(token, sender, payload + abi.word(0), (log,))


def _batch(scene: Scene, sender: bytes) -> Act:
    dice = scene.dice
    token = _contract(scene, Standard.ERC1155)
    to, count = _account(scene), dice.below(5)
    ids = abi.numbers([dice.below(1000) for _ in range(count)])
    amounts = abi.numbers([hostile.amount(dice, hostile=scene.is_hostile) for _ in range(count)])
    data = abi.word(64) + abi.word(64 + len(ids)) + ids + amounts
    log = _log(token, (abi.TRANSFER_BATCH, *map(abi.padded, (sender, sender, to))), data)
    payload = abi.CALL_BATCH + abi.padded(sender) + abi.padded(to) + data
    return _simple(token, sender, payload, (log,))


def _swap(scene: Scene, sender: bytes) -> Act:
    """Ether for tokens through a proxy: calls of every kind, one of them failing on its own."""
    dice = scene.dice
    pool = _contract(scene, Standard.PLAIN).address
    token = _contract(scene, Standard.ERC20)
    code, vault = _account(scene), _account(scene)
    value = 1 + dice.number(1 + dice.below(8))
    amount = hostile.amount(dice, hostile=scene.is_hostile)
    ask = abi.CALL_BALANCE + abi.padded(pool)
    pay = abi.CALL_TRANSFER + abi.padded(sender) + abi.word(amount)
    inner = [
        Frame(
            call_type="staticcall",
            sender=pool,
            to=token.address,
            input=ask,
            output=abi.word(amount),
        ),
        Frame(sender=pool, to=token.address, input=pay, output=abi.word(1)),
        Frame(sender=pool, to=vault, value=value // 2),
    ]
    if dice.one_in(2):
        # The caller survives this failure; what the failing call did is undone.
        undone = Frame(sender=vault, to=sender, value=value // 3)
        inner.append(
            Frame(
                sender=pool,
                to=vault,
                value=hostile.U256_MAX if scene.is_hostile and dice.one_in(4) else value // 3,
                error=dice.pick((calls.REVERTED, calls.OUT_OF_GAS)),
                children=(undone,),
            )
        )
    payload = abi.CALL_SWAP + abi.word(amount) + abi.padded(sender)
    # A delegated call runs with the value of the call that delegates.
    proxied = Frame(
        call_type="delegatecall",
        sender=pool,
        to=code,
        value=value,
        input=payload,
        output=abi.word(amount),
        children=tuple(inner),
    )
    logs = (
        _transferred(token, pool, sender, amount),
        Log(address=pool, topics=(abi.padded(sender),), data=abi.word(value) + abi.word(amount)),
    )
    frame = Frame(
        sender=sender,
        to=pool,
        value=value,
        input=payload,
        output=abi.word(amount),
        children=(proxied,),
    )
    return Act(to=pool, value=value, input=payload, logs=logs, frame=frame)


def _factory(scene: Scene, sender: bytes) -> Act:
    """A contract made within a call and gone with it, and another that could not be made."""
    dice = scene.dice
    factory = _contract(scene, Standard.PLAIN).address
    child, value = dice.data(20), dice.number(4)
    code = dice.data(40)
    suicide = Frame(type="suicide", call_type=None, sender=child, to=sender, value=value)
    children = [
        Frame(
            type="create",
            call_type=None,
            sender=factory,
            to=child,
            value=value,
            input=code,
            output=code[8:],
        ),
        Frame(sender=factory, to=child, input=code[:4], children=(suicide,)),
    ]
    if dice.one_in(2):
        children.append(
            Frame(
                type="create",
                call_type=None,
                sender=factory,
                to=None,
                input=code,
                error=calls.OUT_OF_GAS,
            )
        )
    frame = Frame(sender=sender, to=factory, value=value, input=code[:4], children=tuple(children))
    return Act(to=factory, value=value, input=code[:4], frame=frame)


def _note(scene: Scene, sender: bytes) -> Act:
    """Logs of any shape: none to four topics, with or without data."""
    dice = scene.dice
    book = _contract(scene, Standard.PLAIN)
    string = hostile.string(dice, hostile=scene.is_hostile)
    logs = [_log(book, (abi.NOTE,), abi.text(string))]
    for _ in range(dice.below(3)):
        topics = tuple(dice.data(32) for _ in range(dice.below(5)))
        data = dice.data(dice.below(100))
        if scene.is_hostile and dice.one_in(12):
            data = dice.pick((abi.word(hostile.U256_MAX), hostile.large(dice)))
        logs.append(_log(book, topics, data))
    return _simple(book, sender, abi.CALL_NOTE + abi.text(string), tuple(logs))


#: Each as often as it stands here.
_ACTS: tuple[Callable[[Scene, bytes], Act], ...] = (
    *(_ether, _ether, _ether, _transfer, _transfer, _transfer, _transfer),
    *(_approve, _nft, _nft, _approve_all, _single, _batch, _swap, _swap, _factory, _note),
)
_CREATED = (Standard.ERC20, Standard.ERC721, Standard.ERC1155)
_NOBODY = bytes(32)


def _simple(contract: Contract, sender: bytes, payload: bytes, logs: tuple[Log, ...]) -> Act:
    """One call of a contract without calls of its own."""
    frame = Frame(sender=sender, to=contract.address, input=payload, output=abi.word(1))
    return Act(to=contract.address, input=payload, logs=logs, frame=frame)


def _contract(scene: Scene, standard: Standard) -> Contract:
    return scene.dice.pick([each for each in scene.contracts if each.standard is standard])


def _account(scene: Scene) -> bytes:
    return scene.dice.pick(scene.cast.accounts)


def _transferred(token: Contract, origin: bytes, to: bytes, amount: int) -> Log:
    topics = (abi.TRANSFER, abi.padded(origin), abi.padded(to))
    return _log(token, topics, abi.word(amount))


def _log(contract: Contract, topics: tuple[bytes, ...], data: bytes) -> Log:
    return Log(address=contract.address, topics=topics, data=data)


def _awkward_payload(dice: Dice) -> bytes:
    if dice.one_in(24):
        return hostile.large(dice)
    return dice.pick((b"", b"", b"\0", b"memo\0with\0nul"))
