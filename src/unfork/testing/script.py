"""Owns the text in which tests write a chain: its lines become blocks, or an error names the line.

    chain('''
        1:  transfer alice -> bob 5 DAI
        2:  transfer bob -> carol 3 DAI; send alice -> bob 1 ether
            Paid(to=carol, amount=7) by SHOP
        2': transfer bob -> dave 3 DAI          # block 2 of another fork takes its place
        3':
    ''', abi=["Paid(address indexed to, uint256 amount)"])

A line begins with the number of a block; what follows belongs to it, up to the next number. A
number that was there already is a fork: the blocks from there on go, this one comes in their place,
and its name has a `'` more. Numbers left out are empty blocks. `@ 2024-01-31 23:59` behind a number
says when the block was made, 12 seconds after the one before it otherwise.

Statements are transactions, with `;` or a new line between them; `&` puts more logs into one.

| statement | is |
|---|---|
| `transfer A -> B 5 TOKEN`, `approve A -> B 5 TOKEN` | a log of an ERC-20 token |
| `transfer A -> B TOKEN #7` | of an ERC-721 token |
| `send A -> B 1 ether` | a transaction with a value |
| `call A -> B 0x12345678` | a transaction with this input |
| `Event(a, b)`, `Event(name=a, …)`, with `by CONTRACT` | a log of an event of the ABI |
| `log CONTRACT [0x…, 0x…] 0x…` | a log of these topics and this data |

`from A` behind any of them names the sender, `failed` before it makes it fail (no logs). Words are
accounts: `alice` has the same address everywhere, `0xa` is that address, `nobody` is zero. Numbers
are exact: `2^256-1`, `1_000`, `1.5e18`, `0xff`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from unfork.proof.keccak import keccak256
from unfork.proof.receipt import Log
from unfork.testing import events
from unfork.testing.events import Event

NOBODY = bytes(20)
#: Who sends a transaction of which nobody says it.
SOMEBODY = "somebody"

UNITS = {"wei": 1, "gwei": 10**9, "ether": 10**18}

#: The events that stand behind `transfer` and `approve`.
TRANSFER, TRANSFER_OF_ONE, APPROVAL = events.known(
    [
        "Transfer(address indexed from, address indexed to, uint256 value)",
        "Transfer(address indexed from, address indexed to, uint256 indexed id)",
        "Approval(address indexed owner, address indexed spender, uint256 value)",
    ]
)

_BLOCK = re.compile(
    r"(\d+)('*)\s*(?:@\s*(\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?)\s*)?:(?:\s+|\Z)(.*)"
)
_COMMENT = re.compile(r"(?:^|\s)#(?:\s.*|\Z)")
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<arrow>->|→)|(?P<id>\#[\w^-]+)
    |(?P<word>[\w.^-]*\w(?:\^\d+(?:[-+]\d+)?)?)|(?P<mark>[()\[\],=]))""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"-?\d[\d_]*(?:\.\d+)?(?:e\d+)?|0x[0-9a-fA-F]+")
_POWER = re.compile(r"(-?)(\d+)\^(\d+)(?:([-+])(\d+))?")


class Unreadable(ValueError):
    """A line that means nothing; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One transaction of a block."""

    #: As it was written: the same words are the same transaction in another fork.
    text: str
    sender: bytes
    to: bytes
    value: int = 0
    input: bytes = b""
    is_failed: bool = False
    logs: tuple[Log, ...] = ()


@dataclass(slots=True, kw_only=True)
class Written:
    """One block as it was written."""

    number: int
    #: `2` or `2'`.
    label: str
    #: When it was made, None where nobody says.
    at: datetime | None = None
    actions: list[Action] = field(default_factory=list)


class Names:
    """Accounts by name: the same name has the same address in every test."""

    def __init__(self, given: Mapping[str, str | bytes]) -> None:
        self._known = {name: _bytes_of(value) for name, value in given.items()}
        self._known |= {"nobody": NOBODY}
        self.names: dict[bytes, str] = {}

    def address(self, name: str) -> bytes:
        """The address of a name, or of 0x and up to forty digits."""
        found = self._known.get(name)
        if found is None and re.fullmatch(r"0x[0-9a-fA-F]{1,40}", name):
            found = bytes.fromhex(name[2:].zfill(40))
        if found is None:
            found = keccak256(name.encode())[-20:]
        self.names.setdefault(found, name)
        return found


def read(text: str, known: Sequence[Event], names: Names) -> list[Written]:
    """The blocks in the order in which they were written; raises Unreadable."""
    found: list[Written] = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _COMMENT.sub("", line).strip()
        match = _BLOCK.fullmatch(bare)
        if match is not None:
            digits, primes, at, bare = match.groups()
            moment = None if at is None else datetime.fromisoformat(at).replace(tzinfo=UTC)
            found.append(Written(number=int(digits), label=f"{int(digits)}{primes}", at=moment))
        try:
            for statement in filter(None, map(str.strip, _parts(bare, ";"))):
                if not found:
                    raise Unreadable("a block begins with its number, as in `1: …`")
                found[-1].actions.append(_action(statement, known, names))
        except (ValueError, InvalidOperation) as error:
            raise Unreadable(f"line {number} ({line.strip()}): {error}") from None
    return found


def number(text: str, unit: int = 1) -> int:
    """A whole number as tests write it, of units perhaps; raises ValueError."""
    power = _POWER.fullmatch(text)
    if power is not None:
        sign, base, exponent, plus, rest = power.groups()
        found: int = int(base) ** int(exponent) + int(f"{plus or '+'}{rest or 0}")
        return (-found if sign else found) * unit
    if text.startswith("0x"):
        return int(text, 16) * unit
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"`{text}` is no number")
    exact = Decimal(text.replace("_", "")) * unit
    if exact != exact.to_integral_value():
        raise ValueError(f"`{text}` is no whole number")
    return int(exact)


def _parts(text: str, sign: str) -> list[str]:
    """A text cut at a sign that stands outside of brackets and quotes."""
    parts, depth, is_quoted = [""], 0, False
    for letter in text:
        is_quoted ^= letter == '"'
        depth += (letter in "([") - (letter in ")]")
        if letter == sign and depth == 0 and not is_quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _action(statement: str, known: Sequence[Event], names: Names) -> Action:
    whole = " ".join(statement.split())
    is_failed = whole.startswith("failed ")
    made = [
        _Reader(part, known, names).action() for part in _parts(whole.removeprefix("failed "), "&")
    ]
    first = made[0]
    logs = () if is_failed else tuple(log for one in made for log in one.logs)
    return Action(
        text=whole,
        sender=first.sender,
        to=first.to,
        value=first.value,
        input=first.input,
        is_failed=is_failed,
        logs=logs,
    )


class _Reader:
    """One statement, word by word."""

    def __init__(self, text: str, known: Sequence[Event], names: Names) -> None:
        self.text = text.strip()
        self.known = known
        self.names = names
        self.words: list[str] = []
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise Unreadable(f"`{self.text[at:].strip()}` cannot be read")
            self.words.append(match.group().strip())
            at = match.end()
        self.at = 0

    def action(self) -> Action:
        verb = self.next("a statement")
        if verb in ("transfer", "approve"):
            made = self.token(verb)
        elif verb in ("send", "call"):
            made = self.transaction(verb)
        elif verb == "log":
            made = self.log()
        elif self.peek() == "(":
            made = self.event(verb)
        else:
            raise Unreadable(f"`{verb}` is no statement: transfer, approve, send, call, log, Event")
        if self.at < len(self.words):
            raise Unreadable(f"`{' '.join(self.words[self.at :])}` is too much")
        return made

    def token(self, verb: str) -> Action:
        sender, receiver = self.pair()
        first = self.next("an amount or a token")
        if self.peek().startswith("#"):
            contract, amount = first, number(self.next("a token id")[1:])
            event = TRANSFER_OF_ONE
        else:
            amount = number(first)
            if self.peek() == "of":
                self.at += 1
            contract = self.next("a token")
            event = TRANSFER if verb == "transfer" else APPROVAL
        place = self.names.address(contract)
        log = _log(place, *event.log([sender, receiver, amount]))
        # A mint has no sender of its own.
        acting = self.sender(sender if any(sender) else self.names.address(SOMEBODY))
        return Action(text="", sender=acting, to=place, logs=(log,))

    def transaction(self, verb: str) -> Action:
        sender, receiver = self.pair()
        value, data = 0, b""
        if verb == "send":
            word = self.next("a value")
            value = number(word, UNITS[self.next("a unit")] if self.peek() in UNITS else 1)
        elif self.peek().startswith("0x"):
            data = _data(self.next("input"))
        return Action(text="", sender=self.sender(sender), to=receiver, value=value, input=data)

    def log(self) -> Action:
        place = self.names.address(self.next("a contract"))
        self.expect("[")
        topics = []
        while self.peek() != "]":
            topics.append(_data(self.next("a topic")).rjust(32, b"\0"))
            if self.peek() == ",":
                self.at += 1
        self.expect("]")
        data = _data(self.next("data")) if self.peek().startswith("0x") else b""
        if len(topics) > 4 or any(len(topic) != 32 for topic in topics):
            raise Unreadable("a log has up to four topics of 32 bytes")
        acting = self.sender(self.names.address(SOMEBODY))
        return Action(text="", sender=acting, to=place, logs=(_log(place, tuple(topics), data),))

    def event(self, name: str) -> Action:
        given = self.arguments()
        called = [event for event in self.known if event.name == name]
        fitting = [event for event in called if len(event.arguments) == len(given)]
        if not fitting:
            signatures = ", ".join(event.signature for event in called or self.known) or "none"
            raise Unreadable(f"no event `{name}` takes {len(given)} values; known: {signatures}")
        self.expect("by")
        place = self.names.address(self.next("a contract"))
        log = _log(place, *fitting[0].log(self.ordered(fitting[0], given)))
        acting = self.sender(self.names.address(SOMEBODY))
        return Action(text="", sender=acting, to=place, logs=(log,))

    def ordered(self, event: Event, given: list[tuple[str, Any]]) -> list[Any]:
        """The values in the order of an event's arguments, each of its type."""
        by_name = {name: value for name, value in given if name}
        if by_name and set(by_name) != {one.name for one in event.arguments}:
            raise Unreadable(f"{event.signature} takes {[one.name for one in event.arguments]}")
        values = [
            by_name[one.name] if by_name else value
            for one, (_, value) in zip(event.arguments, given, strict=True)
        ]
        return [self.typed(one.type, v) for one, v in zip(event.arguments, values, strict=True)]

    def arguments(self) -> list[tuple[str, Any]]:
        """What stands between the brackets: names, empty where there are none, and values."""
        self.expect("(")
        found: list[tuple[str, Any]] = []
        while self.peek() != ")":
            name = ""
            if self.at + 1 < len(self.words) and self.words[self.at + 1] == "=":
                name = self.next("a name")
                self.at += 1
            found.append((name, self.value()))
            if self.peek() == ",":
                self.at += 1
        self.expect(")")
        return found

    def value(self) -> Any:
        """A word, or a list of values."""
        word = self.next("a value")
        if word not in ("(", "["):
            return word
        closing = ")" if word == "(" else "]"
        items = []
        while self.peek() != closing:
            items.append(self.value())
            if self.peek() == ",":
                self.at += 1
        self.expect(closing)
        return items

    def typed(self, kind: str, word: Any) -> Any:
        """A word as a value of a type."""
        if kind.endswith("]"):
            return [self.typed(kind[: kind.rindex("[")], item) for item in word]
        if kind.startswith("("):
            return [self.typed(*pair) for pair in zip(events.members(kind), word, strict=True)]
        if kind == "address":
            return self.names.address(word)
        if kind == "bool":
            return {"true": True, "false": False}.get(word, word)
        if kind == "string":
            return word[1:-1].replace('\\"', '"') if word.startswith('"') else word
        if kind.startswith("bytes"):
            return word[1:-1].encode() if word.startswith('"') else _data(word)
        return number(word)

    def pair(self) -> tuple[bytes, bytes]:
        """`A -> B`."""
        sender = self.names.address(self.next("who"))
        if self.next("->") not in ("->", "→"):
            raise Unreadable("`->` is missing")
        return sender, self.names.address(self.next("to whom"))

    def sender(self, otherwise: bytes) -> bytes:
        """Who acts, where somebody says it."""
        if self.peek() != "from":
            return otherwise
        self.at += 1
        return self.names.address(self.next("who"))

    def expect(self, word: str) -> None:
        if self.next(f"`{word}`") != word:
            raise Unreadable(f"`{word}` is missing before `{self.words[self.at - 1]}`")

    def next(self, what: str) -> str:
        if self.at >= len(self.words):
            raise Unreadable(f"{what} is missing at the end")
        self.at += 1
        return self.words[self.at - 1]

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""


def _data(word: str) -> bytes:
    if not re.fullmatch(r"0x(?:[0-9a-fA-F]{2})*", word):
        raise Unreadable(f"`{word}` is no 0x and whole bytes")
    return bytes.fromhex(word[2:])


def _bytes_of(value: str | bytes) -> bytes:
    found = bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else value
    if len(found) != 20:
        raise ValueError(f"{value!r} is no address of 20 bytes")
    return found


def _log(address: bytes, topics: tuple[bytes, ...], data: bytes) -> Log:
    return Log(address=address, topics=topics, data=data)
