"""Owns the blocks behind the nodes of a tree: made, held, forgotten, and made again when asked for.

How many are held is a knob. A block made by a fork may hold transactions of the blocks which that
fork replaced, and those of blocks replaced before; so making one again may take others with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from unfork.devnet import builder, cache, cast, orders
from unfork.devnet.block import Block
from unfork.devnet.builder import Built
from unfork.devnet.dice import Dice
from unfork.devnet.knobs import Knobs
from unfork.devnet.node import Node, Origin, Plan, continuing, forking
from unfork.devnet.orders import Order


class Blocks:
    """The blocks of one tree."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self._key = knobs.content_key
        self._cast = cast.of(knobs.seed, knobs.hostile)
        #: Nodes that hold their block, oldest first, where blocks are forgotten.
        self._holding: deque[Node] = deque()

    def genesis(self) -> Node:
        """The node of block 0."""
        return self._plant(None, Origin(salt=b""), builder.genesis(self._knobs, self._key))

    def grow(self, parent: Node) -> Node:
        """One more block after another, like any."""
        origin = continuing(parent)
        built = self._found(parent, origin) or self._built(parent, origin, None)
        return self._plant(parent, origin, built)

    def fork(self, plan: Plan) -> list[Node]:
        """The blocks that a fork makes, ascending."""
        ordinal = plan.ancestor.children
        planned: list[tuple[Order, ...] | None] | None = None
        path: list[Node] = []
        for position in range(plan.length):
            parent = path[-1] if path else plan.ancestor
            origin = forking(plan, ordinal, position)
            built = self._found(parent, origin)
            if built is None:
                if planned is None:
                    planned = self._planned(plan, [self.of(node) for node in plan.removed])
                built = self._built(parent, origin, planned[position])
            path.append(self._plant(parent, origin, built))
        return path

    def of(self, node: Node) -> Block:
        """The block of a node, made again where it was forgotten."""
        return node.block if node.block is not None else self._again(node)

    def _again(self, node: Node) -> Block:
        """A forgotten block, after the forgotten blocks that it took transactions from.

        Written without recursion: forks that overlap lean on each other in chains of any length.
        """
        made: dict[Node, Block] = {}
        waiting = [node]
        while waiting:
            each = waiting[-1]
            sources = () if each.origin.plan is None else each.origin.plan.removed
            built = self._found(each.parent, each.origin)
            if built is None:
                missing = [one for one in sources if one.block is None and one not in made]
                if missing:
                    waiting += missing
                    continue
                built = self._build_again(each, [one.block or made[one] for one in sources])
            made[waiting.pop()] = built.block
        return made[node]

    def _build_again(self, node: Node, removed: Sequence[Block]) -> Built:
        origin = node.origin
        if node.parent is None:
            return builder.genesis(self._knobs, self._key)
        if origin.plan is None:
            return self._built(node.parent, origin, None)
        return self._built(
            node.parent, origin, self._planned(origin.plan, removed)[origin.position]
        )

    def _planned(self, plan: Plan, removed: Sequence[Block]) -> list[tuple[Order, ...] | None]:
        """The orders for every block of a fork; the removed blocks ascend."""
        dice = Dice(b"fork", self._key, plan.digest)
        return orders.plan(plan.style, removed, plan.length, self._cast, dice)

    def _found(self, parent: Node | None, origin: Origin) -> Built | None:
        if parent is None:
            return None
        return cache.SHARED.find((self._key, parent.state.hash, origin.salt))

    def _built(self, parent: Node, origin: Origin, wanted: Sequence[Order] | None) -> Built:
        built = builder.build(self._knobs, self._key, parent.state, origin.salt, wanted)
        cache.SHARED.keep((self._key, parent.state.hash, origin.salt), built)
        return built

    def _plant(self, parent: Node | None, origin: Origin, built: Built) -> Node:
        """A new node after another."""
        if parent is not None:
            parent.children += 1
        node = Node(parent, origin, built.state)
        node.block = built.block
        if self._knobs.keep_blocks is not None:
            self._holding.append(node)
            if len(self._holding) > self._knobs.keep_blocks:
                self._holding.popleft().block = None
        return node
