"""Goal: the hot store holds exactly the canonical chain after any commits and unwinds, and refuses
everything else without a trace. Method: real Postgres, devnet blocks, the oracle's rows."""

from __future__ import annotations

import pytest

from tests.batches import batch, ref
from tests.places import Place
from unfork import errors
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot.store import HotStore
from unfork.testing import compare, oracle


async def opened(place: Place, *, start: int = 0, **settings: object) -> HotStore:
    store = place.store(chain=place.chain(**settings))
    await store.open()
    await store.claim(chain_id=1337, start=start)
    return store


async def require_exact(place: Place, tree: Tree, first: int, last: int) -> None:
    """The tables and lookups hold the canonical blocks of the span, and nothing else."""
    actual = {
        dataset.name: await place.reader().rows(dataset, Span(0, 10**9)) for dataset in evm.DATASETS
    }
    expected = oracle.canonical_rows(tree, first, last)
    assert compare.differences(expected, actual) == ""
    found = await place.rows("SELECT id, block_number, transaction_index FROM {raw}.tx_lookup")
    assert sorted((r["id"], r["block_number"], r["transaction_index"]) for r in found) == sorted(
        (r["hash"], r["block_number"], r["transaction_index"]) for r in expected["transactions"]
    )
    found = await place.rows("SELECT id, block_number, timestamp FROM {raw}.block_lookup")
    assert sorted((r["id"], r["block_number"], r["timestamp"]) for r in found) == sorted(
        (r["hash"], r["number"], r["timestamp"]) for r in expected["blocks"]
    )


async def test_committed_blocks_read_back_as_the_chain_has_them(any_place: Place) -> None:
    tree = Tree(Knobs(density=6, hostile=True))
    tree.extend(40)
    store = await opened(any_place)
    blocks = [tree.at(number) for number in range(41)]
    await store.commit(batch(*blocks[:1], head=tree.head))
    await store.commit(batch(*blocks[1:30], head=tree.head))
    state = await store.commit(batch(*blocks[30:], head=tree.head))
    assert state.position == ref(tree.head)
    assert state.seq == 3
    await require_exact(any_place, tree, 0, 40)


async def test_an_unwind_leaves_what_the_other_fork_shares_and_keeps_the_rest_as_orphaned(
    any_place: Place,
) -> None:
    tree = Tree(Knobs(density=4))
    tree.extend(20)
    store = await opened(any_place)
    await store.commit(batch(*[tree.at(n) for n in range(21)]))
    movement = tree.fork(depth=5, length=7, style=Style.REPLACED)
    ancestor = ref(tree.at(15))
    state = await store.unwind(ancestor, tip=ref(tree.head))
    assert state.position == ancestor
    await require_exact(any_place, tree, 0, 15)
    orphaned = {
        dataset.name: await any_place.rows(f"SELECT * FROM {{raw}}.orphaned_{dataset.name}")
        for dataset in evm.DATASETS
    }
    assert compare.differences(oracle.rows_of(movement.removed), orphaned) == ""
    assert {row["unwind_seq"] for row in orphaned["blocks"]} == {state.seq}
    assert {row["journal_seq"] for row in orphaned["blocks"]} == {1}
    state = await store.commit(batch(*movement.added))
    assert state.position == ref(tree.head)
    await require_exact(any_place, tree, 0, 22)


async def test_a_batch_with_another_parent_changes_nothing(place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(10)
    store = await opened(place)
    before = await store.commit(batch(*[tree.at(n) for n in range(6)]))
    for wrong in (batch(tree.at(7)), batch(tree.at(5)), batch(tree.at(0))):
        with pytest.raises(errors.ParentMismatch):
            await store.commit(wrong)
    tree.fork(depth=6, length=7, style=Style.REPLACED)
    with pytest.raises(errors.ParentMismatch):
        await store.commit(batch(tree.at(6)))
    assert await store.state() == before
    await store.unwind(ref(tree.at(4)))
    await require_exact(place, tree, 0, 4)


async def test_refs_are_those_held_in_the_span(place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(9)
    store = await opened(place)
    await store.commit(batch(*[tree.at(n) for n in range(10)]))
    assert await store.refs(Span(7, 50)) == [ref(tree.at(n)) for n in (7, 8, 9)]
    assert await store.refs(Span(50, 60)) == []


async def test_a_reopened_store_continues_at_the_exact_block(place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(4)
    first = await opened(place)
    left = await first.commit(batch(*[tree.at(n) for n in range(5)]))
    await first.close()
    second = place.store()
    assert await second.open() == left
    tree.extend(1)
    await second.commit(batch(tree.at(5)))
    await require_exact(place, tree, 0, 5)


async def test_position_ref_must_match_by_hash_not_by_number(place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(3)
    store = await opened(place)
    await store.commit(batch(*[tree.at(n) for n in range(4)]))
    with pytest.raises(errors.ParentMismatch):
        await store.unwind(BlockRef(2, b"\x01" * 32))
    with pytest.raises(errors.ParentMismatch):
        await store.unwind(BlockRef(9, tree.head.hash))
    await require_exact(place, tree, 0, 3)
