"""Goal: a reset shows what goes, refuses to pull the floor from under a writer, and leaves a chain
as new; orphaned rows are pruned in bounded steps, and only the old ones."""

from __future__ import annotations

import asyncio

import pytest

from tests.batches import batch, ref
from tests.places import Place
from unfork import errors
from unfork.app import reset as app_reset
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot import orphans, payloads, reset
from unfork.hot.store import HotStore


async def filled(place: Place, tree: Tree, **settings: object) -> HotStore:
    store = place.store(chain=place.chain(**settings), inline_max_bytes=100)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(number) for number in range(tree.head.number + 1)]))
    return store


async def test_a_reset_shows_what_goes_and_leaves_a_chain_as_new(fresh_place: Place) -> None:
    tree = Tree(Knobs(density=4))
    tree.extend(12)
    store = await filled(fresh_place, tree)
    database = fresh_place.database()
    loss = await reset.preview(fresh_place.name, database)
    assert loss.bytes > 100_000
    assert loss.state is not None and loss.state.position == ref(tree.head)
    with pytest.raises(errors.WriterBusy):
        await reset.reset(fresh_place.name, database, fresh_place.payloads(), lock_wait_s=0.1)
    await store.close()
    for _ in range(2):
        await reset.reset(fresh_place.name, database, fresh_place.payloads())
    await app_reset.reset(fresh_place.name, database)
    assert (await reset.preview(fresh_place.name, database)).state is None
    for folder in payloads.FOLDERS:
        assert await fresh_place.payloads().blobs(folder) == []
    again = fresh_place.store()
    assert (await again.open()).seq == 0
    await again.claim(chain_id=1, start=3)
    await again.commit(batch(tree.at(3)))


async def test_only_orphaned_rows_far_below_the_floor_are_pruned(
    any_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "ROWS_AT_ONCE", 3)
    tree = Tree(Knobs(density=4, finality_lag=None))
    tree.extend(10)
    settings = {"finality_depth_min": 2, "reorg_depth_max": 4, "orphan_keep_blocks": 20}
    store = await filled(any_place, tree, **settings)
    tree.fork(depth=3, length=4, style=Style.REPLACED)
    await store.unwind(ref(tree.at(7)))
    assert await store.prune() == 0
    await store.commit(batch(*[tree.at(number) for number in range(8, 12)]))
    tree.extend(23)
    # The floor is 30 afterwards, so orphaned rows below block 10 are old.
    await store.commit(batch(*[tree.at(number) for number in range(12, 35)]))
    assert (await store.state()).floor == ref(tree.at(30))
    assert store._pruning is not None
    await asyncio.wait({store._pruning})
    left = await any_place.rows("SELECT number FROM {raw}.orphaned_blocks ORDER BY 1")
    assert [row["number"] for row in left] == [10]
    for table in ("transactions", "logs", "traces"):
        rows = await any_place.rows(f"SELECT block_number FROM {{raw}}.orphaned_{table}")
        assert {row["block_number"] for row in rows} <= {10}


async def test_what_an_unwind_would_remove_can_be_counted_first(place: Place) -> None:
    tree = Tree(Knobs(density=4))
    tree.extend(12)
    store = await filled(place, tree)
    counts = await place.reader().rows_above(9)
    assert counts["blocks"] == 3
    await store.unwind(ref(tree.at(9)))
    moved = await place.rows("SELECT count(*) AS n FROM {raw}.orphaned_logs")
    assert moved == [{"n": counts["logs"]}]
