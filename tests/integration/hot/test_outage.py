"""Goal: a database that stops, hangs or drops us costs nothing but time: the store says so, can be
opened again, and holds either all of a batch or none of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.batches import batch, ref
from tests.integration.database.test_sessions import frozen, hasty
from tests.places import Place
from unfork import errors
from unfork.database.embedded import Embedded
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot.store import HotStore


async def place_in(server: Embedded, folder: Path) -> Place:
    place = Place(server.start(), "outage", folder)
    await place.migrate()
    return place


async def opened(place: Place, tree: Tree, **settings: object) -> HotStore:
    store = place.store(database=place.database(**settings))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(tree.at(0)))
    return store


async def test_a_restarted_server_is_found_again_with_everything_in_it(
    own_server: Embedded, tmp_path: Path
) -> None:
    tree = Tree(Knobs())
    tree.extend(2)
    place = await place_in(own_server, tmp_path)
    store = await opened(place, tree)
    own_server.stop()
    for _ in range(2):
        with pytest.raises(errors.DatabaseUnavailable):
            await store.commit(batch(tree.at(1)))
        with pytest.raises(errors.DatabaseUnavailable):
            await store.open()
    own_server.start()
    assert (await store.open()).position == ref(tree.at(0))
    assert (await store.commit(batch(tree.at(1)))).position == ref(tree.at(1))
    await place.close()


async def test_a_frozen_server_is_left_in_time_and_taken_up_again(
    own_server: Embedded, tmp_path: Path
) -> None:
    tree = Tree(Knobs())
    tree.extend(2)
    place = await place_in(own_server, tmp_path)
    store = await opened(place, tree, statement_timeout_s=2.0)
    (database,) = place.databases
    with frozen(own_server):
        async with asyncio.timeout(50):
            with pytest.raises(errors.DatabaseUnavailable):
                await store.commit(batch(tree.at(1)))
            with hasty(database), pytest.raises(errors.DatabaseUnavailable):
                await store.open()
    state = await store.open()
    if state.position == ref(tree.at(0)):
        await store.commit(batch(tree.at(1)))
    assert (await store.commit(batch(tree.at(2)))).position == ref(tree.at(2))
    await place.close()


async def test_a_commit_whose_answer_is_lost_is_in_or_not_and_open_says(any_place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(2)

    def cut_after_commit(word: str) -> None:
        if armed and word == "after commit":
            raise errors.DatabaseUnavailable("the answer was lost")

    armed = False
    store = any_place.store(probe=cut_after_commit)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(tree.at(0)))
    armed = True
    with pytest.raises(errors.DatabaseUnavailable):
        await store.commit(batch(tree.at(1)))
    armed = False
    with pytest.raises(errors.DatabaseUnavailable, match="not open"):
        await store.state()
    assert (await store.open()).position == ref(tree.at(1))
    with pytest.raises(errors.ParentMismatch):
        await store.commit(batch(tree.at(1)))
    assert (await store.commit(batch(tree.at(2)))).position == ref(tree.at(2))


async def test_a_connection_ended_by_an_administrator_is_replaced(any_place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(1)
    store = await opened(any_place, tree)
    await any_place.rows(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name = 'unfork tools' AND pid <> pg_backend_pid()"
    )
    with pytest.raises(errors.DatabaseUnavailable):
        await store.commit(batch(tree.at(1)))
    await store.open()
    assert (await store.commit(batch(tree.at(1)))).position == ref(tree.at(1))
