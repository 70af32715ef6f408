"""Owns the drawn chain: the blocks of a test's text, each with the rows that a node would give.

The text is read by script.py. Here its blocks are linked: every one has a real header with a hash
of its own, so two forks never share a block by accident, and the same words are the same
transaction wherever they stand: a transaction that a fork moves keeps its hash.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from unfork.chain.block import BlockRef
from unfork.devnet.block import Block, Call, Executed
from unfork.proof import header as headers
from unfork.proof import receipt
from unfork.proof import transaction as transactions
from unfork.proof.header import EMPTY_UNCLES, Header
from unfork.proof.keccak import keccak256
from unfork.proof.transaction import Transaction
from unfork.testing import events, script
from unfork.testing.script import Action, Names, Unreadable, Written

#: When block 0 would have been made, and seconds between two blocks.
GENESIS = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp())
BLOCK_TIME_S = 12

CHAIN_ID = 1337
_GAS = 21_000
_NO_WORD = bytes(32)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Blocks that come one after the other, and what goes before they do."""

    #: The block that they stand on, where blocks above it go first; None where nothing goes.
    ancestor: BlockRef | None
    #: Whether everything goes: the very first block is another one.
    is_restart: bool
    blocks: tuple[Block, ...]


class Chain:
    """A chain that a test has drawn: what happened, in order, and what stands in the end."""

    def __init__(self, moves: Sequence[Move], labels: Mapping[str, Block], names: Names) -> None:
        self.moves = tuple(moves)
        self._labels = dict(labels)
        self._names = names
        blocks: list[Block] = []
        for move in moves:
            first = move.blocks[0].number
            blocks = [*(held for held in blocks if held.number < first), *move.blocks]
        self.blocks = tuple(blocks)

    @property
    def first(self) -> int:
        """The number of its first block."""
        return self.blocks[0].number

    def address(self, name: str) -> str:
        """The address of an account, contract or token, as rows have it: 0x and hex."""
        return "0x" + self._names.address(name).hex()

    def hash(self, label: int | str) -> str:
        """The hash of a block by its name in the text: 2, or "2'"."""
        found = self._labels.get(str(label))
        if found is None:
            raise KeyError(f"there is no block {label}; there are {', '.join(self._labels)}")
        return "0x" + found.hash.hex()

    def time(self, label: int | str) -> datetime:
        """When a block was made."""
        return datetime.fromtimestamp(self._labels[str(label)].header.timestamp, UTC)

    def named(self, value: Any) -> Any:
        """A value as the text calls it: an account by its name, a block's hash by its label."""
        if not isinstance(value, str) or not value.startswith("0x"):
            return value
        data = bytes.fromhex(value[2:])
        for label, block in self._labels.items():
            if block.hash == data:
                return label
        return self._names.names.get(data, value)


def chain(
    text: str,
    *,
    abi: str | Path | Sequence[Any] = (),
    names: Mapping[str, str | bytes] | None = None,
) -> Chain:
    """The chain that a text draws; see `unfork.testing.script` for what it may say.

    `abi` gives the events that the text may call: an ABI's file, its parsed JSON, or signatures
    such as `Paid(address indexed to, uint256 amount)`. `names` gives accounts addresses of their
    own. Raises Unreadable, which is a ValueError, with the line that means nothing.
    """
    known = Names(names or {})
    written = script.read(text, events.known(abi) if abi else (), known)
    if not written:
        raise Unreadable("the text holds no block, such as `1: transfer alice -> bob 5 DAI`")
    return _Drawing(known).of(written)


class _Drawing:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._path: list[Block] = []
        self._moves: list[tuple[BlockRef | None, bool, list[Block]]] = []
        self._labels: dict[str, Block] = {}
        #: How often the words of a transaction stand on the path, by block.
        self._said: dict[bytes, dict[str, int]] = {}

    def of(self, written: Sequence[Written]) -> Chain:
        for one in written:
            self._place(one)
        moves = [
            Move(ancestor=ancestor, is_restart=is_restart, blocks=tuple(blocks))
            for ancestor, is_restart, blocks in self._moves
        ]
        return Chain(moves, self._labels, self._names)

    def _place(self, one: Written) -> None:
        """Puts a block on the path: after its end, or in the place of what stands there."""
        if one.label in self._labels:
            raise Unreadable(f"block {one.label} is there already; a fork's has one ' more")
        if self._path and one.number <= self._path[-1].number:
            self._cut(one)
        elif self._path:
            for number in range(self._path[-1].number + 1, one.number):
                self._add(Written(number=number, label=str(number)))
        else:
            self._moves.append((None, False, []))
        self._add(one)

    def _cut(self, one: Written) -> None:
        """A fork: what stands at the number and above goes."""
        first = self._path[0].number
        if one.number < first:
            raise Unreadable(f"block {one.label} lies below block {first}, the first one")
        del self._path[one.number - first :]
        ancestor = self._path[-1].ref if self._path else None
        self._moves.append((ancestor, ancestor is None, []))

    def _add(self, one: Written) -> None:
        parent = self._path[-1] if self._path else None
        made = self._block(parent, one)
        self._path.append(made)
        self._moves[-1][2].append(made)
        self._labels[one.label] = made

    def _block(self, parent: Block | None, one: Written) -> Block:
        timestamp = GENESIS + BLOCK_TIME_S * one.number
        if parent is not None:
            timestamp = max(parent.header.timestamp + BLOCK_TIME_S, timestamp)
        if one.at is not None:
            timestamp = int(one.at.timestamp())
            if parent is not None and timestamp < parent.header.timestamp:
                raise Unreadable(f"block {one.label} is older than the one before it")
        said = dict(self._said.get(parent.hash, {})) if parent is not None else {}
        executed: list[Executed] = []
        for action in one.actions:
            said[action.text] = said.get(action.text, 0) + 1
            executed.append(_executed(action, said[action.text] - 1, executed))
        logs = [log for each in executed for log in each.logs]
        header = Header(
            parent_hash=_NO_WORD if parent is None else parent.hash,
            sha3_uncles=EMPTY_UNCLES,
            miner=script.NOBODY,
            state_root=_NO_WORD,
            transactions_root=_NO_WORD,
            receipts_root=_NO_WORD,
            logs_bloom=receipt.bloom(logs),
            difficulty=0,
            number=one.number,
            gas_limit=30_000_000,
            gas_used=_GAS * len(executed),
            timestamp=timestamp,
            # Blocks of two forks differ although the same happens in them.
            extra_data=one.label.encode(),
            mix_hash=_NO_WORD,
            nonce=bytes(8),
            base_fee_per_gas=7,
            withdrawals_root=_NO_WORD,
        )
        made = Block(
            header=header,
            hash=headers.hash(header),
            size=len(headers.encode(header)),
            transactions=tuple(executed),
            withdrawals=(),
        )
        self._said[made.hash] = said
        return made


def _executed(action: Action, nonce: int, before: Sequence[Executed]) -> Executed:
    """A transaction as its block holds it."""
    own = Transaction(
        type=2,
        chain_id=CHAIN_ID,
        nonce=nonce,
        gas_price=None,
        max_priority_fee_per_gas=1,
        max_fee_per_gas=100,
        gas=100_000,
        to=action.to,
        value=action.value,
        input=action.input,
        v=0,
        # It stands for the signature: who sends, and what for, makes another transaction.
        r=int.from_bytes(action.sender, "big") or 1,
        s=int.from_bytes(keccak256(action.text.encode()), "big"),
    )
    first = sum(len(each.logs) for each in before)
    outer = Call(
        path=(),
        type="call",
        call_type="call",
        sender=action.sender,
        to=action.to,
        value=action.value,
        gas=100_000,
        gas_used=_GAS,
        input=action.input,
        output=b"",
        subtraces=0,
        error="Reverted" if action.is_failed else None,
    )
    return Executed(
        transaction=own,
        hash=transactions.hash(own),
        sender=action.sender,
        status=0 if action.is_failed else 1,
        gas_used=_GAS,
        cumulative_gas_used=_GAS * (len(before) + 1),
        effective_gas_price=8,
        contract_address=None,
        logs=action.logs,
        log_indexes=tuple(range(first, first + len(action.logs))),
        calls=(outer,),
    )
