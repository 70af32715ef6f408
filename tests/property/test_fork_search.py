"""Compares fork resolution with a brute-force search over whole chains.

Method: a state machine grows a tree of blocks, moves both sides through it, lets the other side
answer with samples of any shape (short, gappy, backwards), and drives the search to its end. The
brute force looks at both whole chains and knows the answer.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from unfork.chain import fork
from unfork.chain.block import BlockRef
from unfork.chain.fork import Ancestor, AtFloor, Conflict, NeedsOlder, Restart, TooDeep


class ForkMachine(RuleBasedStateMachine):
    """Two whole chains that share a prefix; we hold a part of ours."""

    @initialize(start=st.integers(0, 3))
    def begin(self, start: int) -> None:
        self.start = start
        self.salt = 0
        self.ours = [self._block(start)]
        self.theirs = list(self.ours)
        self.floor: BlockRef | None = None

    def _block(self, number: int) -> BlockRef:
        self.salt += 1
        return BlockRef(number, b"%d/%d" % (number, self.salt))

    @rule(blocks=st.integers(1, 12))
    def both_extend(self, blocks: int) -> None:
        if self.ours == self.theirs:
            for _ in range(blocks):
                self.ours.append(self._block(self.ours[-1].number + 1))
            self.theirs = list(self.ours)

    @rule(depth=st.integers(0, 30), length=st.integers(1, 30))
    def they_fork(self, depth: int, length: int) -> None:
        keep = max(0, len(self.theirs) - depth)
        first = self.theirs[keep - 1].number + 1 if keep else self.start
        self.theirs = self.theirs[:keep] + [self._block(first + n) for n in range(length)]

    @rule(depth=st.integers(0, 40))
    def floor_rises(self, depth: int) -> None:
        if depth < len(self.ours):
            candidate = self.ours[len(self.ours) - 1 - depth]
            if self.floor is None or candidate.number > self.floor.number:
                self.floor = candidate

    @rule(
        depth_max=st.integers(1, 50),
        sizes=st.lists(st.integers(0, 6), min_size=1, max_size=4),
        gap=st.integers(1, 3),
        backwards=st.booleans(),
        hold_every=st.integers(1, 3),
    )
    def search_ends_where_brute_force_says(
        self, depth_max: int, sizes: list[int], gap: int, backwards: bool, hold_every: int
    ) -> None:
        # Our history may have gaps, but always holds its first block, the floor and the position.
        history = [
            ref
            for n, ref in enumerate(self.ours)
            if n % hold_every == 0 or ref in (self.floor, self.ours[-1])
        ]
        shared = [ref for ref in history if ref in self.theirs]
        position = history[-1]
        search = fork.Search(position=position, floor=self.floor, depth_max=depth_max)
        asked, ended = position, None
        for rounds in range(200):
            if asked in self.theirs:
                ended = search.accepted(history, asked)
            else:
                size = sizes[rounds % len(sizes)]
                below = [ref for ref in self.theirs if ref.number <= asked.number][::-1][::gap]
                sample = tuple(below[:size] if backwards else below[:size][::-1])
                ended = search.declined(history, fork.Fork(sample=sample, refuted=asked))
            if not isinstance(ended, NeedsOlder):
                break
            asked = ended.ref
        if isinstance(ended, AtFloor):
            # Their sample ends below the floor: they lag, or were asked with too small a sample.
            assert self.floor is not None
            return
        highest = max(shared, default=None)
        final = self.floor is None or self.floor in self.theirs
        match ended:
            case Ancestor(ref):
                assert ref == highest and final
                assert position.number - ref.number <= depth_max
            case TooDeep(depth, _):
                assert depth > depth_max
                assert highest is None or position.number - highest.number > depth_max
            case Conflict(ours, theirs):
                assert not final and ours in history and theirs in self.theirs
            case Restart(first):
                assert not shared and self.floor is None and first == history[0].number
            case _:
                raise AssertionError(f"no end after 200 rounds: {ended}")
        # What we know afterwards is what they have: the next round starts from a common chain.
        self.ours, self.floor = list(self.theirs), None

    @invariant()
    def chains_are_contiguous(self) -> None:
        for side in (getattr(self, "ours", []), getattr(self, "theirs", [])):
            assert [ref.number for ref in side] == [side[0].number + n for n in range(len(side))]


TestForkMachine = ForkMachine.TestCase
TestForkMachine.settings = settings(max_examples=300, stateful_step_count=12, deadline=None)
