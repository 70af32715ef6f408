"""Owns a node of the tree: the little that must be remembered of a block to build it again.

Blocks are large and nodes are small. A tree remembers every node and may forget blocks: the state
before a block, its salt and, for a block made by a fork, the plan of that fork give it back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from unfork.devnet.block import Block
from unfork.devnet.orders import Style
from unfork.devnet.state import State


class Node:
    """A block's place in the tree."""

    __slots__ = ("block", "children", "number", "origin", "parent", "state")

    def __init__(self, parent: Node | None, origin: Origin, state: State) -> None:
        #: None for block 0.
        self.parent = parent
        self.origin = origin
        #: The state after the block.
        self.state = state
        self.number = state.number
        #: Blocks made after this one so far.
        self.children = 0
        #: The block itself, None while it is forgotten.
        self.block: Block | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What a fork was asked to do."""

    style: Style
    #: The last block that stays.
    ancestor: Node
    #: The head that is replaced.
    tip: Node
    #: How many blocks come instead.
    length: int

    @property
    def removed(self) -> tuple[Node, ...]:
        """The nodes that are replaced, ascending."""
        path = []
        node = self.tip
        while node is not self.ancestor:
            path.append(node)
            assert node.parent is not None
            node = node.parent
        return tuple(reversed(path))

    @property
    def digest(self) -> bytes:
        """Names the plan: with the blocks before it, everything about what it makes."""
        text = f"{self.style.value} {self.length} {self.tip.state.hash.hex()}"
        return hashlib.sha256(text.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Origin:
    """How a block came to be, beside what was before it."""

    #: Tells it from every other block with the same parent.
    salt: bytes
    #: The fork that made it, None for a block that merely continued the head.
    plan: Plan | None = None
    #: Its position among the blocks of that fork.
    position: int = 0


def continuing(parent: Node) -> Origin:
    """The origin of a block that continues its parent, whatever else does already."""
    return Origin(salt=parent.children.to_bytes(4, "big"))


def forking(plan: Plan, ordinal: int, position: int) -> Origin:
    """The origin of a block of a fork; `ordinal` counts what continues the ancestor already."""
    numbers = ordinal.to_bytes(4, "big") + position.to_bytes(4, "big")
    return Origin(salt=numbers + plan.digest, plan=plan, position=position)
