"""Owns the tree of a devnet: every block ever made, and which path through them is canonical.

The chain is a pure function of its knobs and of the calls made on the tree. What a block holds
derives from its parent's hash and a salt, never from time, process or the order of Python's sets.

Invariants: the canonical path is linked from block 0 to the head; `finalized` lies on it, at or
below the head, and its number never falls while the head stays above it; forks made by `advance`
never replace a finalized block.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from unfork.config.tree import ForkLength
from unfork.devnet import cast
from unfork.devnet.block import Block
from unfork.devnet.blocks import Blocks
from unfork.devnet.contracts import Contract
from unfork.devnet.dice import Dice
from unfork.devnet.knobs import Knobs
from unfork.devnet.node import Node, Plan
from unfork.devnet.orders import Style

#: Abandoned branches that `advance` may flip back to.
_TIPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """What one change of the head took away and brought."""

    #: Blocks that are canonical no more, descending.
    removed: tuple[Block, ...]
    #: Blocks that are canonical now, ascending.
    added: tuple[Block, ...]
    head: Block


class Metadata(NamedTuple):
    """What a contract says of itself."""

    name: bytes
    symbol: bytes
    decimals: int | None
    #: "erc20", "erc721", "erc1155" or "plain".
    standard: str


class Tree:
    """A chain that grows, forks and finalizes."""

    def __init__(self, knobs: Knobs) -> None:
        self.knobs = knobs
        self._key = knobs.content_key
        self._cast = cast.of(knobs.seed, knobs.hostile)
        self._blocks = Blocks(knobs)
        self._nodes: dict[bytes, Node] = {}
        #: Who created what at an address.
        self._created: dict[bytes, list[tuple[Node, Contract]]] = {}
        self._tips: deque[Node] = deque(maxlen=_TIPS)
        self._steps = 0
        self._finalized_number = -1
        self._canonical = [self._blocks.genesis()]
        self._know(self._canonical[0])

    @property
    def head(self) -> Block:
        """The tip of the canonical path."""
        return self._blocks.of(self._canonical[-1])

    @property
    def finalized(self) -> Block | None:
        """The highest block called final; its number never falls while the head is above it."""
        if self._finalized_number < 0:
            return None
        return self.at(min(self._finalized_number, self._canonical[-1].number))

    @property
    def safe(self) -> Block | None:
        """A block half way between the finalized one and the head."""
        lag = self.knobs.finality_lag
        number = -1 if lag is None else self._canonical[-1].number - lag // 2
        finalized = self.finalized
        if finalized is not None and finalized.number > number:
            return finalized
        return self.at(number)

    def at(self, number: int) -> Block | None:
        """The canonical block with a number."""
        if 0 <= number < len(self._canonical):
            return self._blocks.of(self._canonical[number])
        return None

    def by_hash(self, hash: bytes) -> Block | None:
        """Any block ever made."""
        node = self._nodes.get(hash)
        return None if node is None else self._blocks.of(node)

    def is_canonical(self, hash: bytes) -> bool:
        """Whether a block is on the path to the head."""
        node = self._nodes.get(hash)
        return node is not None and self._is_canonical(node)

    def metadata(self, address: bytes, block_hash: bytes) -> Metadata | None:
        """What the contract at an address says of itself at a block, None where none stands."""
        node = self._nodes.get(block_hash)
        if node is None:
            return None
        for contract in self._cast.contracts:
            if contract.address == address:
                return _metadata(contract)
        # The latest creation comes first: on one path an address is used once at most.
        for creator, contract in reversed(self._created.get(address, ())):
            if self._is_ancestor(creator, node):
                return _metadata(contract)
        return None

    def advance(self) -> Movement:
        """One step as the seed has it: mostly one block more, sometimes a fork or a flip back."""
        self._steps += 1
        head = self._canonical[-1]
        dice = Dice(b"advance", self._key, self._steps.to_bytes(8, "big"), head.state.hash)
        floor = max(self._finalized_number, 0)
        depth_max = min(self.knobs.fork_depth_max, head.number - floor)
        if depth_max < 1 or not dice.chance(self.knobs.fork_rate):
            return self.extend()
        if dice.one_in(5):
            back = [
                tip
                for tip in self._tips
                if self._can_flip(tip, head.number - depth_max)
                and _length(tip.number - head.number) in self.knobs.fork_lengths
            ]
            if back:
                return self.switch(dice.pick(back).state.hash)
        depth = 1 + min(dice.below(depth_max), dice.below(depth_max))
        more = (1, 1, 0, 1 + dice.below(3), -1, 0)
        grown = dice.pick([by for by in more if _length(by) in self.knobs.fork_lengths])
        length = depth + grown if grown >= 0 else dice.below(depth)
        return self.fork(depth=depth, length=length, style=self._style(dice, depth))

    def extend(self, blocks: int = 1) -> Movement:
        """More blocks after the head."""
        added = []
        for _ in range(blocks):
            node = self._blocks.grow(self._canonical[-1])
            self._know(node)
            self._canonical.append(node)
            added.append(self._blocks.of(node))
            self._finalize()
        return Movement(removed=(), added=tuple(added), head=self.head)

    def fork(self, *, depth: int, length: int, style: Style) -> Movement:
        """Replaces the last `depth` blocks by `length` new ones.

        The new ones may be fewer, or none: then the head falls. A caller may go below the
        finalized block on purpose; `advance` never does.
        """
        tip = self._canonical[-1]
        assert 0 <= depth <= tip.number, "block 0 stays"
        assert length >= 0
        ancestor = self._canonical[tip.number - depth]
        plan = Plan(style=style, ancestor=ancestor, tip=tip, length=length)
        path = self._blocks.fork(plan)
        for node in path:
            self._know(node)
        return self._move(ancestor, path)

    def switch(self, hash: bytes) -> Movement:
        """Makes the path to a known block canonical, whether it was so before or never."""
        node = self._nodes[hash]
        path = []
        while not self._is_canonical(node):
            path.append(node)
            assert node.parent is not None
            node = node.parent
        return self._move(node, path[::-1])

    def _move(self, ancestor: Node, path: list[Node]) -> Movement:
        """Replaces everything above the ancestor by a path that continues it."""
        removed = self._canonical[ancestor.number + 1 :]
        if removed:
            self._tips.append(removed[-1])
        self._canonical[ancestor.number + 1 :] = path
        self._finalize()
        return Movement(
            removed=tuple(self._blocks.of(node) for node in reversed(removed)),
            added=tuple(self._blocks.of(node) for node in path),
            head=self.head,
        )

    def _finalize(self) -> None:
        lag = self.knobs.finality_lag
        if lag is not None:
            self._finalized_number = max(self._finalized_number, self._canonical[-1].number - lag)

    def _style(self, dice: Dice, depth: int) -> Style:
        """A style that has something to work on: best redeployed is what has been created."""
        allowed = self.knobs.fork_styles
        has_created = any(node.state.created for node in self._canonical[-depth:])
        if Style.REDEPLOYED.value in allowed and has_created and dice.one_in(2):
            return Style.REDEPLOYED
        usual = (Style.KEPT, Style.DROPPED, Style.MOVED, Style.MOVED, Style.REPLACED)
        return dice.pick([style for style in usual if style.value in allowed] or [Style.REDEPLOYED])

    def _can_flip(self, tip: Node, floor: int) -> bool:
        """Whether an abandoned branch starts at or above a number and is still abandoned."""
        if self._is_canonical(tip):
            return False
        node = tip
        while not self._is_canonical(node) and node.number > floor:
            assert node.parent is not None
            node = node.parent
        return self._is_canonical(node)

    def _is_canonical(self, node: Node) -> bool:
        return node.number < len(self._canonical) and self._canonical[node.number] is node

    def _is_ancestor(self, ancestor: Node, node: Node) -> bool:
        """Whether a node is on the path to another, or is it."""
        while not self._is_canonical(node):
            if node is ancestor:
                return True
            assert node.parent is not None
            node = node.parent
        return ancestor.number <= node.number and self._is_canonical(ancestor)

    def _know(self, node: Node) -> None:
        """Remembers a node and what its block created."""
        self._nodes[node.state.hash] = node
        for contract in node.state.created:
            self._created.setdefault(contract.address, []).append((node, contract))


def _length(blocks: int) -> ForkLength:
    """What a fork is called by how much higher the head is after it."""
    return "longer" if blocks > 0 else "shorter" if blocks < 0 else "same"


def _metadata(contract: Contract) -> Metadata:
    return Metadata(contract.name, contract.symbol, contract.decimals, contract.standard.value)
