"""Goal: the floor is the highest final block of our own chain, rises alone, and falls by an
operator's word only (I4). Method: batches whose heads claim this and that."""

from __future__ import annotations

import pytest

from tests.batches import batch, ref
from tests.places import Place
from unfork import errors
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot import store as store_module
from unfork.hot.store import HotStore

DEPTHS = {"finality_depth_min": 4, "reorg_depth_max": 20}


async def opened(place: Place, *, start: int = 0) -> HotStore:
    store = place.store(chain=place.chain(**DEPTHS))
    await store.open()
    await store.claim(chain_id=1337, start=start)
    return store


@pytest.fixture
def tree() -> Tree:
    tree = Tree(Knobs())
    tree.extend(60)
    return tree


async def test_the_floor_is_our_own_block_at_what_the_source_calls_final(
    any_place: Place, tree: Tree
) -> None:
    store = await opened(any_place)
    blocks = [tree.at(number) for number in range(61)]
    state = await store.commit(batch(*blocks[:20], head=blocks[30], finalized=blocks[10]))
    assert (state.floor, state.finalized_seen) == (ref(blocks[10]), 10)
    # Within one batch, above the batch, and closer to the head than is believed.
    state = await store.commit(batch(*blocks[20:30], head=blocks[40], finalized=blocks[25]))
    assert state.floor == ref(blocks[25])
    state = await store.commit(batch(blocks[30], head=blocks[60], finalized=blocks[50]))
    assert (state.floor, state.finalized_seen) == (ref(blocks[30]), 50)
    state = await store.commit(batch(*blocks[31:56], head=blocks[58], finalized=blocks[55]))
    assert state.floor == ref(blocks[54])


async def test_a_lower_word_from_another_replica_never_lowers_the_floor(
    place: Place, tree: Tree
) -> None:
    store = await opened(place)
    blocks = [tree.at(number) for number in range(61)]
    await store.commit(batch(*blocks[:20], head=blocks[30], finalized=blocks[10]))
    state = await store.commit(batch(blocks[20], head=blocks[21], finalized=blocks[3]))
    assert (state.floor, state.finalized_seen) == (ref(blocks[10]), 10)


async def test_without_finality_the_floor_keeps_its_distance_from_the_head(
    place: Place, tree: Tree
) -> None:
    store = await opened(place)
    blocks = [tree.at(number) for number in range(61)]
    state = await store.commit(batch(*blocks[:20], head=blocks[19], finalized=blocks[19]))
    assert state.floor is None
    state = await store.commit(batch(*blocks[20:31], head=blocks[30], finalized=blocks[30]))
    assert (state.floor, state.finalized_seen) == (ref(blocks[10]), None)


async def test_a_final_block_below_the_first_one_held_is_no_floor(place: Place, tree: Tree) -> None:
    store = await opened(place, start=30)
    blocks = [tree.at(number) for number in range(61)]
    state = await store.commit(batch(*blocks[30:40], head=blocks[40], finalized=blocks[20]))
    assert (state.floor, state.finalized_seen) == (None, 20)
    with pytest.raises(errors.ParentMismatch):
        await store.commit(batch(blocks[30]))


async def test_nothing_at_or_below_the_floor_is_unwound(any_place: Place, tree: Tree) -> None:
    store = await opened(any_place)
    blocks = [tree.at(number) for number in range(61)]
    before = await store.commit(batch(*blocks[:20], head=blocks[30], finalized=blocks[10]))
    for target in (ref(blocks[9]), None):
        with pytest.raises(errors.ForkConflict):
            await store.unwind(target)
    assert await store.state() == before
    state = await store.unwind(ref(blocks[10]))
    assert state.position == state.floor == ref(blocks[10])


async def test_an_operator_goes_below_the_floor_and_starts_an_epoch(
    any_place: Place, tree: Tree
) -> None:
    store = await opened(any_place)
    blocks = [tree.at(number) for number in range(61)]
    await store.commit(batch(*blocks[:20], head=blocks[30], finalized=blocks[10]))
    state = await store.unwind(ref(blocks[5]), operator=True)
    assert state.position == state.floor == ref(blocks[5])
    assert (state.epoch, state.finalized_seen) == (2, None)
    tree.fork(depth=55, length=56, style=Style.REPLACED)
    state = await store.commit(batch(tree.at(6)))
    assert (state.epoch, state.position) == (2, ref(tree.at(6)))
    state = await store.unwind(ref(blocks[5]), operator=True)
    assert state.epoch == 2, "above the floor an operator is nobody special"
    state = await store.unwind(None, operator=True)
    assert (state.position, state.floor, state.epoch) == (None, None, 3)
    kinds = await any_place.rows("SELECT kind, epoch FROM {raw}.journal ORDER BY seq")
    assert [tuple(row.values()) for row in kinds] == [
        *(("commit", 1), ("unwind", 2), ("commit", 2), ("unwind", 2), ("unwind", 3)),
    ]


async def test_an_operators_long_way_down_goes_in_steps_of_one_epoch(
    any_place: Place, tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "STEP_BLOCKS", 10)
    store = await opened(any_place)
    blocks = [tree.at(number) for number in range(61)]
    await store.commit(batch(*blocks[:50], head=blocks[60], finalized=blocks[40]))
    state = await store.unwind(ref(blocks[15]), operator=True)
    assert state.position == state.floor == ref(blocks[15])
    assert (state.epoch, state.seq) == (2, 5)
    spans = await any_place.rows("SELECT first, last FROM {raw}.journal ORDER BY seq OFFSET 1")
    assert [tuple(row.values()) for row in spans] == [(40, 49), (30, 39), (20, 29), (16, 19)]
    state = await store.unwind(None, operator=True)
    assert (state.position, state.epoch, state.seq) == (None, 3, 7)
    assert await any_place.rows("SELECT 1 FROM {raw}.blocks") == []


async def test_everything_can_be_unwound_while_nothing_is_final(
    any_place: Place, tree: Tree
) -> None:
    store = await opened(any_place)
    await store.commit(batch(*[tree.at(number) for number in range(3)]))
    state = await store.unwind(None)
    assert (state.position, state.seq) == (None, 2)
    assert await store.unwind(None) == state, "a second time changes nothing"
    tree.fork(depth=60, length=61, style=Style.REPLACED)
    await store.commit(batch(tree.at(0), tree.at(1)))
    assert (await store.state()).position == ref(tree.at(1))
