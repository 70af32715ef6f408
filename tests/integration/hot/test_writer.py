"""Goal: one writer at a time; a stale one writes nothing (I5); our own leftovers do not hinder."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest

from tests.batches import batch, ref
from tests.places import Place
from unfork import errors
from unfork.database.queries import Query
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot.store import HotStore

BUSY = """
import asyncio, sys
from unfork.config import tree
from unfork.database.database import Database
from unfork.hot.payloads import PayloadStore
from unfork.hot.store import HotStore

async def main():
    database = Database(sys.argv[1], service="another")
    store = HotStore(tree.Chain(name=sys.argv[2]), database, PayloadStore(sys.argv[3]))
    await store.open()
    print("open", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def another_process(place: Place) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", BUSY, place.dsn, place.name, str(place.folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "open\n"
    return process


async def opened(place: Place, tree: Tree) -> HotStore:
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(tree.at(0)))
    return store


async def test_a_second_writer_is_refused_and_told_who_writes(any_place: Place) -> None:
    process = another_process(any_place)
    try:
        with pytest.raises(errors.WriterBusy, match="unfork another") as told:
            await any_place.store(lock_wait_s=0.2).open()
        assert told.value.fields["pid"] > 0
    finally:
        process.kill()
        process.communicate()


async def test_a_killed_writer_is_replaced_without_a_word(any_place: Place) -> None:
    process = another_process(any_place)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (await any_place.store().open()).position is None


async def test_a_backend_of_our_own_that_outlived_its_connection_is_ended(place: Place) -> None:
    tree = Tree(Knobs())
    store = await opened(place, tree)
    # The server still waits for a client that is gone: as when the network was cut.
    assert store._session is not None
    left_behind, store._session = store._session, None
    async with asyncio.timeout(30):
        state = await store.open()
    assert state.position == ref(tree.at(0))
    with pytest.raises(errors.DatabaseUnavailable):
        await left_behind.row(Query("dead", "SELECT 1"))
    left_behind.cut()


async def test_a_writer_whose_token_is_stale_writes_nothing(any_place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(3)
    store = await opened(any_place, tree)
    await any_place.rows("UPDATE {raw}.chain SET token = token + 1")
    with pytest.raises(errors.WriterReplaced):
        await store.commit(batch(tree.at(1)))
    with pytest.raises(errors.DatabaseUnavailable):
        await store.commit(batch(tree.at(1)))
    assert await any_place.rows("SELECT number FROM {raw}.blocks") == [{"number": 0}]
    await store.open()
    await any_place.rows("UPDATE {raw}.chain SET epoch = epoch + 1")
    with pytest.raises(errors.WriterReplaced):
        await store.unwind(None)
    assert await any_place.rows("SELECT number FROM {raw}.blocks") == [{"number": 0}]


async def test_the_wrong_chain_and_another_start_are_refused(place: Place) -> None:
    store = await opened(place, Tree(Knobs()))
    with pytest.raises(errors.WrongChain, match="1337"):
        await store.claim(chain_id=1, start=0)
    with pytest.raises(errors.StartMismatch, match="starts at block 0"):
        await store.claim(chain_id=1337, start=5)
    assert (await store.claim(chain_id=1337, start=0)).first == 0


async def test_a_schema_without_its_migrations_is_refused(any_place: Place) -> None:
    store = any_place.store(chain=any_place.chain().model_copy(update={"name": "never_made"}))
    with pytest.raises(errors.SchemaOutdated, match="unfork migrate"):
        await store.open()


async def test_rows_that_no_commit_wrote_are_noticed_at_the_start(place: Place) -> None:
    tree = Tree(Knobs())
    store = await opened(place, tree)
    await store.close()
    await place.rows("UPDATE {raw}.chain SET position_number = NULL, position_hash = NULL")
    with pytest.raises(errors.Inconsistent, match="holds block 0"):
        await store.open()
