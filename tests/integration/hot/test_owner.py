"""Goal: the payloads of one chain in one database are never taken for another's.

Method: two chains over one folder, and one chain whose folder is looked for in the wrong place.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.batches import batch
from tests.places import Place
from unfork import errors
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot import owner, reset, schema
from unfork.hot.payloads import PayloadStore
from unfork.hot.store import HotStore


async def filled(place: Place) -> HotStore:
    tree = Tree(Knobs(density=4))
    tree.extend(12)
    store = place.store(inline_max_bytes=100)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(number) for number in range(13)]))
    return store


async def require(place: Place, store: PayloadStore) -> bool:
    async with place.database().session() as session:
        return await owner.require(session, schema.bound(place.name), store)


async def blobs(store: PayloadStore) -> int:
    return sum([len(await store.blobs(f"{byte:02x}")) for byte in range(256)])


async def test_a_second_database_is_refused_a_folder_that_is_taken(
    place: Place, fresh_place: Place
) -> None:
    await filled(place)
    other = replace(fresh_place, folder=place.folder, databases=[], stores=[])
    before = await blobs(place.payloads())
    assert before > 0
    try:
        with pytest.raises(errors.PayloadsElsewhere, match="belongs to another"):
            await filled(other)
        await other.close()
        with pytest.raises(errors.PayloadsElsewhere, match="belongs to another"):
            await reset.reset(other.name, other.database(), other.payloads(), lock_wait_s=0.1)
    finally:
        await other.close()
    assert await blobs(place.payloads()) == before
    assert await require(place, place.payloads())


async def test_payloads_that_are_looked_for_elsewhere_are_not_called_damaged(
    place: Place, tmp_path: Path
) -> None:
    store = await filled(place)
    elsewhere = PayloadStore(str(tmp_path / "elsewhere"))
    with pytest.raises(errors.PayloadsElsewhere, match="name the same one"):
        await require(place, elsewhere)
    await store.close()
    moved = HotStore(place.chain(), place.database(), elsewhere)
    await moved.open()
    try:
        with pytest.raises(errors.PayloadsElsewhere, match="name the same one"):
            await moved.claim(chain_id=1337, start=0)
    finally:
        await moved.close()
    assert await elsewhere.owner() is None


async def test_a_store_without_payloads_may_move(place: Place, tmp_path: Path) -> None:
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.close()
    other = PayloadStore(str(tmp_path / "other"))
    moved = HotStore(place.chain(), place.database(), other)
    await moved.open()
    await moved.claim(chain_id=1337, start=0)
    await moved.close()
    assert await require(place, other)
