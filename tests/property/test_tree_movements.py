"""Compares the devnet's tree with a list of hashes through any sequence of movements.

Method: a state machine extends, forks, flips and advances; the model applies what each movement
says was removed and added. Whatever was done, the tree answers as the model does, a thrifty tree
that forgets its blocks answers as one that keeps them, and finality keeps its rules.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from unfork.devnet import cache
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Movement, Tree


class TreeMachine(RuleBasedStateMachine):
    """A tree, its thrifty twin and the path both should show."""

    @initialize(seed=st.integers(0, 50), lag=st.sampled_from([None, 1, 4, 9]))
    def begin(self, seed: int, lag: int | None) -> None:
        knobs = {"seed": seed, "finality_lag": lag, "fork_rate": 0.5, "hostile": True}
        self.tree = Tree(Knobs(**knobs))
        self.thrifty = Tree(Knobs(**knobs, keep_blocks=2))
        self.path = [self.tree.head.hash]
        self.ever = [self.tree.head.hash]
        self.final: tuple[int, bytes] | None = None
        self.is_deep = False

    @rule(blocks=st.integers(1, 5))
    def extend(self, blocks: int) -> None:
        self._apply(self.tree.extend(blocks), self.thrifty.extend(blocks))

    @rule()
    def advance(self) -> None:
        self._apply(self.tree.advance(), self.thrifty.advance())

    @rule(depth=st.integers(0, 12), length=st.integers(0, 8), style=st.sampled_from(Style))
    def fork(self, depth: int, length: int, style: Style) -> None:
        depth = min(depth, len(self.path) - 1)
        self._goes_below(len(self.path) - 1 - depth)
        movement = self.tree.fork(depth=depth, length=length, style=style)
        assert (len(movement.removed), len(movement.added)) == (depth, length)
        self._apply(movement, self.thrifty.fork(depth=depth, length=length, style=style))

    @rule(data=st.data())
    def switch(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(self.ever))
        ancestor = self.tree.by_hash(target)
        while ancestor is not None and ancestor.hash not in self.path:
            ancestor = self.tree.by_hash(ancestor.header.parent_hash)
        assert ancestor is not None
        self._goes_below(ancestor.number)
        movement = self.tree.switch(target)
        assert movement.head.hash == target
        self._apply(movement, self.thrifty.switch(target))

    @invariant()
    def the_canonical_path_is_the_models(self) -> None:
        shown = [self.tree.at(number) for number in range(len(self.path) + 1)]
        assert [None if block is None else block.hash for block in shown] == [*self.path, None]
        assert self.tree.head.hash == self.path[-1]
        assert {hash for hash in self.ever if self.tree.is_canonical(hash)} == set(self.path)
        for parent, child in zip(self.path, shown[1:], strict=True):
            assert child is None or child.header.parent_hash == parent

    @invariant()
    def every_block_ever_made_is_known_and_can_be_made_again(self) -> None:
        # Otherwise the twin would be handed the very blocks it is compared with.
        cache.SHARED.clear()
        for hash in self.ever[-6:]:
            assert self.thrifty.by_hash(hash) == self.tree.by_hash(hash) is not None

    @invariant()
    def finality_rises_along_the_path_unless_a_caller_forks_below_it(self) -> None:
        block = self.tree.finalized
        if block is not None:
            assert block.number <= self.tree.head.number
            assert self.tree.is_canonical(block.hash)
        if self.final is not None and not self.is_deep:
            assert block is not None and block.number >= self.final[0]
            assert self.tree.is_canonical(self.final[1])
        self.final = None if block is None else (block.number, block.hash)
        self.is_deep = False

    def _goes_below(self, ancestor: int) -> None:
        final = self.tree.finalized
        self.is_deep = final is not None and ancestor < final.number

    def _apply(self, movement: Movement, twin: Movement) -> None:
        assert movement == twin
        for block in movement.removed:
            assert self.path.pop() == block.hash
        for block in movement.added:
            assert block.header.parent_hash == self.path[-1]
            self.path.append(block.hash)
            if block.hash not in self.ever:
                self.ever.append(block.hash)
        assert movement.head.hash == self.path[-1]


TestTreeMovements = TreeMachine.TestCase
TestTreeMovements.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
