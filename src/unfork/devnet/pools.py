"""Owns the pools of a devnet: contracts that factories announce, and events of every type.

Who announced whom is told by logs alone. A pool logs whether or not it was announced, before and
after, for its address depends on nothing but its factory and its number: so a reader who takes logs
of contracts that nobody announced yet, or that a fork has un-announced, is found out.

Where awkward values are mixed in, some of the data is malformed: cut off, with offsets that lead
nowhere or back, with dirt where zeros belong, or with more than there should be.
"""

from __future__ import annotations

from unfork.devnet import abi, hostile
from unfork.devnet.acts import Act, Scene
from unfork.devnet.calls import Frame
from unfork.devnet.dice import Dice
from unfork.proof.keccak import keccak256
from unfork.proof.receipt import Log

#: The contract that announces factories.
REGISTRY = keccak256(b"unfork devnet registry")[12:]
#: The contracts that announce pools.
FACTORIES = tuple(keccak256(b"unfork devnet factory %d" % n)[12:] for n in range(2))

FACTORY_ADDED = abi.topic("FactoryAdded(address)")
POOL_CREATED = abi.topic("PoolCreated(address,address,uint256)")
SWAPPED = abi.topic("Swapped(address,int256,int256,uint160,int24,bool)")
DESCRIBED = abi.topic("Described(address,string,string,bytes32[],(uint256,string)[],bytes)")

_CALL = abi.selector("poke()")


def pool(factory: bytes, number: int) -> bytes:
    """The address of a factory's pool."""
    return keccak256(factory + number.to_bytes(4, "big"))[12:]


def draw(scene: Scene, sender: bytes, count: int) -> Act:
    """Something about pools, of which each factory has so many."""
    dice = scene.dice
    logs = [_log(scene, sender, count) for _ in range(1 + dice.below(3))]
    to = logs[0].address
    frame = Frame(sender=sender, to=to, input=_CALL, output=b"")
    return Act(to=to, input=_CALL, logs=tuple(logs), frame=frame)


def _log(scene: Scene, sender: bytes, count: int) -> Log:
    dice = scene.dice
    factory, number = dice.pick(FACTORIES), dice.below(count)
    match dice.below(8):
        case 0:
            return _made(REGISTRY, (FACTORY_ADDED, abi.padded(factory)), b"")
        case 1:
            data = abi.padded(pool(factory, number)) + abi.word(number)
            address = dice.data(20) if dice.one_in(5) else factory
            topics: tuple[bytes, ...] = (POOL_CREATED, abi.padded(sender))
        case 2 | 3:
            address, data, topics = pool(factory, number), _described(scene), _described_by(scene)
        case 4:
            # An anonymous event: Ping(uint64 indexed, address).
            address, data = pool(factory, number), abi.padded(sender)
            topics = (abi.word(dice.number(8)),)
        case _:
            address, data = pool(factory, number), _swapped(scene)
            topics = (SWAPPED, abi.padded(sender))
    if scene.is_hostile and dice.one_in(6):
        data = _malformed(dice, data)
    return _made(address, topics, data)


def _made(address: bytes, topics: tuple[bytes, ...], data: bytes) -> Log:
    return Log(address=address, topics=topics, data=data)


def _swapped(scene: Scene) -> bytes:
    dice = scene.dice
    amount = hostile.amount(dice, hostile=scene.is_hostile) % 2**255
    tick = dice.below(2**24) - 2**23
    numbers = (amount, -amount - 1, dice.number(20), tick, dice.below(2))
    return b"".join(_signed(number) for number in numbers)


def _described_by(scene: Scene) -> tuple[bytes, ...]:
    """The topics: by whom, and the hash of an indexed string."""
    dice = scene.dice
    return (DESCRIBED, abi.padded(dice.pick(scene.cast.accounts)), keccak256(dice.data(3)))


def _described(scene: Scene) -> bytes:
    """title, tags, notes, payload; what is indexed stands in topics."""
    dice = scene.dice
    title = _bytes(hostile.string(dice, hostile=scene.is_hostile))
    tags = [dice.data(32) for _ in range(dice.below(3))]
    notes = [
        _tuple(abi.word(dice.number(32)), _bytes(hostile.string(dice, hostile=scene.is_hostile)))
        for _ in range(dice.below(3))
    ]
    listed = abi.word(len(notes)) + _tails(notes)
    payload = _bytes(dice.data(dice.below(70)))
    return _tails([title, abi.word(len(tags)) + b"".join(tags), listed, payload])


def _malformed(dice: Dice, data: bytes) -> bytes:
    """Data as somebody leaves it who does not know the ABI, or means harm."""
    words = max(1, len(data) // 32)
    at = 32 * dice.below(words)
    match dice.below(5):
        case 0:
            return data[: dice.below(len(data) + 1)]
        case 1:
            return data + dice.data(1 + dice.below(40))
        case 2:
            return data[:at] + abi.word(hostile.U256_MAX) + data[at + 32 :]
        case 3:
            return data[:at] + abi.word(32 * dice.below(words + 1)) + data[at + 32 :]
        case _:
            return data[:at] + dice.data(32) + data[at + 32 :]


def _signed(number: int) -> bytes:
    return (number % 2**256).to_bytes(32, "big")


def _bytes(value: bytes) -> bytes:
    return abi.word(len(value)) + value + bytes(-len(value) % 32)


def _tuple(head: bytes, tail: bytes) -> bytes:
    return head + abi.word(64) + tail


def _tails(tails: list[bytes]) -> bytes:
    """The offsets of some tails, and the tails."""
    at = 32 * len(tails)
    offsets = []
    for tail in tails:
        offsets.append(abi.word(at))
        at += len(tail)
    return b"".join((*offsets, *tails))
