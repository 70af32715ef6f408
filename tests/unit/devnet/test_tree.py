"""Shows that the devnet's chain is a pure function of its knobs and forks in the styles it names.

Method: chains of a few hundred blocks are grown, forked and flipped, and what stands in the blocks
before and after is compared by hash and by place.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest

from unfork.config.tree import FORK_STYLES, Devnet, ForkLength, ForkStyle
from unfork.devnet import builder, cache
from unfork.devnet.block import Block, Executed
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Movement, Tree

_PROGRAM = """
import sys
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
tree = Tree(Knobs(seed=11, density=3, fork_rate=0.3, hostile=True, proven=sys.argv[1] == "1"))
for _ in range(120):
    tree.advance()
print(tree.head.number, tree.head.hash.hex())
"""


@pytest.mark.parametrize("proven", ["0", "1"])
def test_the_same_seed_gives_the_same_chain_in_processes_that_hash_differently(proven: str) -> None:
    heads = {_head_in_a_process(proven, hash_seed) for hash_seed in ("1", "2")}
    assert len(heads) == 1


@pytest.mark.parametrize(
    ("proven", "number", "hash"),
    [
        (False, 102, "1897df5cc7844939"),
        (True, 102, "7ea831accfeea157"),
    ],
)
def test_a_known_seed_gives_the_chain_it_always_gave(proven: bool, number: int, hash: str) -> None:
    # Recorded seeds name chains; change these only together with what blocks are made of.
    tree = Tree(Knobs(seed=11, density=3, fork_rate=0.3, hostile=True, proven=proven))
    _advanced(tree, 120)
    assert (tree.head.number, tree.head.hash.hex()[:16]) == (number, hash)


class Recorded(Tree):
    """A tree that remembers how it forked."""

    def __init__(self, knobs: Knobs) -> None:
        super().__init__(knobs)
        self.styles: set[Style] = set()

    def fork(self, *, depth: int, length: int, style: Style) -> Movement:
        self.styles.add(style)
        return super().fork(depth=depth, length=length, style=style)


@pytest.mark.parametrize("allowed", [*((name,) for name in FORK_STYLES), ("kept", "moved")])
def test_a_chain_forks_only_in_the_styles_it_was_told(allowed: tuple[ForkStyle, ...]) -> None:
    tree = Recorded(Knobs(seed=5, density=2, fork_rate=0.4, fork_styles=allowed))
    for _ in range(120):
        tree.advance()
    assert {style.value for style in tree.styles} == set(allowed)


@pytest.mark.parametrize(
    ("allowed", "signs"),
    [(("same",), {0}), (("longer",), {1}), (("shorter",), {-1}), (("same", "shorter"), {0, -1})],
)
def test_a_head_stands_after_a_fork_only_where_it_was_told(
    allowed: tuple[ForkLength, ...], signs: set[int]
) -> None:
    tree = Tree(Knobs(seed=6, density=1, fork_rate=0.4, fork_lengths=allowed))
    seen = set()
    for _ in range(200):
        before = tree.head.number
        movement = tree.advance()
        if movement.removed:
            grown = movement.head.number - before
            seen.add((grown > 0) - (grown < 0))
    assert seen == signs


def test_the_styles_of_the_configuration_are_those_of_the_tree() -> None:
    assert FORK_STYLES == tuple(style.value for style in Style)
    devnet = Devnet(fork_styles=("kept",), fork_lengths=("same",))
    knobs = Knobs.of(devnet)
    assert (knobs.fork_styles, knobs.fork_lengths) == (("kept",), ("same",))


def test_another_seed_gives_another_chain() -> None:
    assert Tree(Knobs(seed=1)).head.hash != Tree(Knobs(seed=2)).head.hash


def test_a_chain_built_again_is_equal_block_by_block_with_and_without_the_cache() -> None:
    knobs = Knobs(seed=3, density=4, fork_rate=0.3, hostile=True)
    once = _advanced(Tree(knobs), 150)
    from_cache = _advanced(Tree(knobs), 150)
    cache.SHARED.clear()
    afresh = _advanced(Tree(knobs), 150)
    assert once == from_cache == afresh


def test_blocks_that_were_forgotten_come_back_equal() -> None:
    knobs = Knobs(seed=4, density=3, fork_rate=0.4, hostile=True)
    whole = Tree(knobs)
    thrifty = Tree(Knobs(seed=4, density=3, fork_rate=0.4, hostile=True, keep_blocks=5))
    made = [block for movement in _advanced(whole, 120) for block in movement.added]
    _advanced(thrifty, 120)
    cache.SHARED.clear()
    assert thrifty.head == whole.head
    assert [thrifty.by_hash(block.hash) for block in made] == made
    assert thrifty.at(0) == whole.at(0)


def test_a_forgotten_block_comes_back_however_many_forks_lean_on_each_other() -> None:
    # Every step forks, so each block took transactions from one before it, back to the first.
    tree = Tree(Knobs(seed=4, fork_rate=1, fork_depth_max=2, finality_lag=None, keep_blocks=1))
    made = [block for movement in _advanced(tree, 1500) for block in movement.added]
    cache.SHARED.clear()
    assert tree.by_hash(made[-2].hash) == made[-2]


def test_what_is_remembered_of_built_blocks_is_bounded() -> None:
    knobs = Knobs(seed=1, density=4)
    small = cache.Cache(weight_max=300)
    built = builder.genesis(knobs, knobs.content_key)
    keys = []
    for _ in range(200):
        keys.append((knobs.content_key, built.state.hash, b""))
        built = builder.build(knobs, knobs.content_key, built.state, b"", None)
        small.keep(keys[-1], built)
        assert small.find(keys[-1]) is built
        assert small.weight <= 300
    held = [key for key in keys if small.find(key) is not None]
    assert 1 < len(held) < 100 and held == keys[-len(held) :]


def test_parents_link_and_numbers_and_timestamps_ascend_along_the_canonical_path() -> None:
    tree = Tree(Knobs(seed=5, fork_rate=0.4))
    _advanced(tree, 200)
    path = _path(tree)
    assert path[-1] is tree.head
    for parent, child in itertools.pairwise(path):
        assert child.header.parent_hash == parent.hash
        assert child.number == parent.number + 1
        assert child.header.timestamp > parent.header.timestamp


def test_nonces_of_every_sender_ascend_by_one_along_the_canonical_path() -> None:
    tree = Tree(Knobs(seed=6, density=4, fork_rate=0.4))
    _advanced(tree, 300)
    nonces: dict[bytes, int] = {}
    for executed in _executed(_path(tree)):
        assert executed.transaction.nonce == nonces.get(executed.sender, 0)
        nonces[executed.sender] = executed.transaction.nonce + 1
    assert len(nonces) > 10


def test_a_movement_names_what_left_from_the_top_and_what_came_from_the_bottom() -> None:
    tree = Tree(Knobs(seed=7))
    tree.extend(10)
    before = _path(tree)
    movement = tree.fork(depth=3, length=4, style=Style.REPLACED)
    assert movement.removed == tuple(reversed(before[-3:]))
    assert [block.number for block in movement.added] == [8, 9, 10, 11]
    assert movement.added[0].header.parent_hash == before[7].hash
    assert movement.head is tree.head is movement.added[-1]
    assert all(not tree.is_canonical(block.hash) for block in movement.removed)
    assert all(tree.by_hash(block.hash) is block for block in before)


def test_a_fork_may_be_shorter_and_may_bring_nothing_at_all() -> None:
    tree = Tree(Knobs(seed=8))
    tree.extend(10)
    assert tree.fork(depth=4, length=1, style=Style.DROPPED).head.number == 7
    movement = tree.fork(depth=2, length=0, style=Style.DROPPED)
    assert movement.added == () and tree.head.number == 5 and tree.at(6) is None


def test_a_head_that_fell_goes_on_with_other_blocks() -> None:
    tree = Tree(Knobs(seed=8))
    old = tree.extend(10).added
    tree.fork(depth=5, length=0, style=Style.KEPT)
    new = tree.extend(5).added
    assert {block.hash for block in old}.isdisjoint(block.hash for block in new)


def test_flipping_back_restores_the_same_blocks() -> None:
    tree = Tree(Knobs(seed=9))
    tree.extend(20)
    before = _path(tree)
    movement = tree.fork(depth=6, length=8, style=Style.MOVED)
    back = tree.switch(before[-1].hash)
    assert back.removed == tuple(reversed(movement.added))
    assert back.added == before[-6:]
    assert _path(tree) == before
    again = tree.switch(movement.head.hash)
    assert again.added == movement.added


def test_kept_transactions_stand_at_the_same_places_of_other_blocks() -> None:
    movement = _forked(Style.KEPT, depth=4, length=4)
    assert _places(movement.added) == _places(movement.removed)
    assert {b.hash for b in movement.added}.isdisjoint(b.hash for b in movement.removed)


def test_dropped_transactions_are_gone_and_the_others_stay() -> None:
    movement = _forked(Style.DROPPED, depth=4, length=4)
    before, after = _places(movement.removed), _places(movement.added)
    assert after.keys() < before.keys()
    assert after.keys()


@pytest.mark.parametrize(("depth", "length"), [(1, 1), (1, 2), (4, 4), (4, 6), (4, 1)])
def test_moved_transactions_keep_their_hash_at_another_place(depth: int, length: int) -> None:
    movement = _forked(Style.MOVED, depth=depth, length=length)
    before, after = _places(movement.removed), _places(movement.added)
    assert before.keys() <= after.keys()
    assert any(before[hash] != after[hash] for hash in before)


def test_a_moved_transaction_may_fail_in_its_new_block() -> None:
    outcomes = set()
    for seed in range(8):
        movement = _forked(Style.MOVED, depth=4, length=5, seed=seed)
        before = {e.hash: e for e in _executed(movement.removed)}
        for executed in _executed(movement.added):
            if executed.hash in before:
                outcomes.add((before[executed.hash].status, executed.status))
                assert executed.status == 1 or not executed.logs
    assert {(1, 1), (1, 0)} <= outcomes


def test_replaced_transactions_have_the_same_senders_and_nonces_and_other_hashes() -> None:
    movement = _forked(Style.REPLACED, depth=3, length=3)
    before, after = list(_executed(movement.removed)), list(_executed(movement.added))
    assert _slots(movement.removed) == _slots(movement.added)
    assert {e.hash for e in before}.isdisjoint(e.hash for e in after)


def test_a_redeployed_address_is_another_contract_on_each_branch() -> None:
    redeployed = 0
    for seed in range(6):
        tree = Tree(Knobs(seed=seed, density=6))
        tree.extend(20)
        movement = tree.fork(depth=5, length=5, style=Style.REDEPLOYED)
        before, after = _created(movement.removed), _created(movement.added)
        for address in before.keys() & after.keys():
            old = tree.metadata(address, before[address])
            new = tree.metadata(address, after[address])
            assert old is not None and new is not None
            assert old.standard != new.standard
            redeployed += 1
        assert before.keys() <= after.keys()
    assert redeployed


def test_a_fork_that_should_redeploy_creates_something_where_nothing_was_created() -> None:
    tree = Tree(Knobs(seed=1, density=0))
    tree.extend(5)
    assert _created(tree.fork(depth=1, length=1, style=Style.REDEPLOYED).added)


def test_metadata_is_known_from_the_block_of_the_creation_on_and_on_its_branch_only() -> None:
    tree = Tree(Knobs(seed=2, density=6))
    tree.extend(30)
    path = _path(tree)
    address, block_hash = next(iter(_created(path[10:]).items()))
    block = tree.by_hash(block_hash)
    assert block is not None
    assert tree.metadata(address, block.header.parent_hash) is None
    assert tree.metadata(address, block.hash) is not None
    assert tree.metadata(address, tree.head.hash) is not None
    tree.fork(depth=tree.head.number - block.number + 1, length=40, style=Style.DROPPED)
    assert tree.metadata(address, path[-1].hash) is not None
    assert tree.metadata(bytes(20), tree.head.hash) is None


def test_advancing_makes_forks_of_every_style_length_and_flips_back() -> None:
    tree = Tree(Knobs(seed=10, density=3, fork_rate=0.5, finality_lag=20))
    seen: set[str] = set()
    known: set[bytes] = set()
    for _ in range(600):
        movement = tree.advance()
        if movement.removed:
            difference = len(movement.added) - len(movement.removed)
            seen.add("longer" if difference > 0 else "same" if difference == 0 else "shorter")
            seen.add("none" if not movement.added else "some")
            seen.add("flip" if movement.head.hash in known and movement.added else "new")
        known.update(block.hash for block in movement.added)
    assert seen == {"longer", "same", "shorter", "none", "some", "flip", "new"}
    assert tree.head.number > 100


def test_advancing_does_everything_that_a_fork_may_do_to_transactions() -> None:
    tree = Tree(Knobs(seed=10, density=3, fork_rate=0.5, finality_lag=20))
    seen: set[str] = set()
    for _ in range(600):
        movement = tree.advance()
        before, after = _places(movement.removed), _places(movement.added)
        slots, new_slots = _slots(movement.removed), _slots(movement.added)
        if before and len(movement.removed) == len(movement.added):
            if before == after:
                seen.add("kept")
            elif after.items() < before.items():
                seen.add("dropped")
            elif slots == new_slots and before.keys().isdisjoint(after):
                seen.add("replaced")
        if any(before[hash] != after[hash] for hash in before.keys() & after.keys()):
            seen.add("moved")
        created, created_again = _created(movement.removed), _created(movement.added)
        for address in created.keys() & created_again.keys():
            old = tree.metadata(address, created[address])
            new = tree.metadata(address, created_again[address])
            assert old is not None and new is not None
            if old.standard != new.standard:
                seen.add("redeployed")
    assert seen == {style.value for style in Style}


def test_finality_never_falls_nor_passes_the_head_nor_is_forked_away_by_advancing() -> None:
    tree = Tree(Knobs(seed=12, fork_rate=0.6, fork_depth_max=30, finality_lag=8))
    finalized: dict[int, bytes] = {}
    for _ in range(800):
        tree.advance()
        block = tree.finalized
        if block is None:
            assert not finalized
            continue
        assert max(finalized, default=0) <= block.number <= tree.head.number
        assert block.number >= tree.head.number - 8
        assert tree.safe is not None
        assert block.number <= tree.safe.number <= tree.head.number
        finalized[block.number] = block.hash
        for number, hash in list(finalized.items())[-10:]:
            assert tree.at(number) is not None and tree.is_canonical(hash)
    assert len(finalized) > 50


def test_a_chain_without_finality_calls_nothing_final() -> None:
    tree = Tree(Knobs(seed=1, finality_lag=None))
    tree.extend(300)
    assert tree.finalized is None and tree.safe is None


def test_a_caller_may_fork_below_the_finalized_block_on_purpose() -> None:
    tree = Tree(Knobs(seed=1, finality_lag=4))
    tree.extend(20)
    old = tree.finalized
    assert old is not None
    tree.fork(depth=10, length=10, style=Style.REPLACED)
    new = tree.finalized
    assert new is not None and new.number == old.number and new.hash != old.hash
    tree.fork(depth=15, length=0, style=Style.REPLACED)
    assert tree.finalized is tree.head


def test_knobs_take_what_the_configuration_says() -> None:
    devnet = Devnet(seed=5, density=3, fork_rate=0.5, fork_depth_max=2, finality_lag=9)
    knobs = Knobs.of(devnet, chain_id=7)
    assert (knobs.seed, knobs.density, knobs.fork_rate) == (5, 3, 0.5)
    assert (knobs.fork_depth_max, knobs.finality_lag, knobs.chain_id) == (2, 9, 7)
    assert (knobs.proven, knobs.hostile) == (devnet.proven, devnet.hostile) == (True, True)
    assert knobs.empty_stretch >= 100


def test_knobs_that_only_say_when_to_fork_leave_the_blocks_alone() -> None:
    calm = Tree(Knobs(seed=1, fork_rate=0, finality_lag=None))
    wild = Tree(Knobs(seed=1, fork_rate=0.9, finality_lag=3, fork_depth_max=9, keep_blocks=3))
    assert calm.extend(20).added == wild.extend(20).added


def _head_in_a_process(proven: str, hash_seed: str) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, proven],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _advanced(tree: Tree, steps: int) -> list[Movement]:
    return [tree.advance() for _ in range(steps)]


def _forked(style: Style, *, depth: int, length: int, seed: int = 1) -> Movement:
    tree = Tree(Knobs(seed=seed, density=6))
    tree.extend(20)
    while not tree.head.transactions:
        tree.extend()
    return tree.fork(depth=depth, length=length, style=style)


def _path(tree: Tree) -> tuple[Block, ...]:
    blocks = (tree.at(number) for number in range(tree.head.number + 1))
    return tuple(block for block in blocks if block is not None)


def _executed(blocks: tuple[Block, ...]) -> list[Executed]:
    return [e for block in sorted(blocks, key=lambda b: b.number) for e in block.transactions]


def _places(blocks: tuple[Block, ...]) -> dict[bytes, tuple[int, int]]:
    return {
        executed.hash: (block.number, index)
        for block in blocks
        for index, executed in enumerate(block.transactions)
    }


def _slots(blocks: tuple[Block, ...]) -> set[tuple[bytes, int]]:
    """Sender and nonce of every transaction."""
    return {(e.sender, e.transaction.nonce) for e in _executed(blocks)}


def _created(blocks: tuple[Block, ...]) -> dict[bytes, bytes]:
    """The block hash of each contract created."""
    return {
        executed.contract_address: block.hash
        for block in blocks
        for executed in block.transactions
        if executed.contract_address is not None
    }
