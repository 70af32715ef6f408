"""Goal: the stream of changes leads to the chain, through forks and restarts, or says it cannot.

Method: a stream is run with a checkpoint, batch after batch, while the chain forks between; the
changes, applied in the order of their journal entries, must leave the canonical rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from tests import sparks
from tests.batches import batch, ref
from tests.sparks import Chain
from unfork import errors
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot.store import HotStore
from unfork.jobs.spark import failures
from unfork.testing import compare, oracle


async def opened(chain: Chain, tree: Tree, **settings: Any) -> HotStore:
    store = chain.place.store(chain=chain.place.chain(**settings))
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(n) for n in range(tree.head.number + 1)], head=tree.head))
    return store


async def fork(store: HotStore, tree: Tree, depth: int, length: int) -> None:
    ancestor = tree.at(tree.head.number - depth)
    movement = tree.fork(depth=depth, length=length, style=Style.REPLACED)
    await store.unwind(ref(ancestor), tip=ref(movement.head))
    for block in movement.added:
        await store.commit(batch(block))


class Sink:
    """What a stream has delivered, in files that survive it."""

    def __init__(self, folder: Path) -> None:
        self.rows = folder / "rows"
        self.checkpoint = folder / "checkpoint"

    def drain(self, frame: DataFrame) -> None:
        """Runs the stream until it has read what is there now."""
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(self.rows))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def changes(self, chain: Chain) -> list[dict[str, Any]]:
        return chain.spark.read.parquet(str(self.rows)).toArrow().to_pylist()

    def held(self, chain: Chain, name: str) -> list[dict[str, Any]]:
        """The changes applied in their order."""
        key = evm.BY_NAME[name].key
        held: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in sorted(self.changes(chain), key=lambda row: row["change_seq"]):
            place = tuple(row[column] for column in key)
            if row["change"] == "insert":
                assert place not in held, "inserted twice"
                held[place] = row
            else:
                del held[place]
        return list(held.values())


@pytest.mark.everywhere
@pytest.mark.skipif(
    sparks.WHERE.startswith("sc:") and not sparks.IS_INSTALLED,
    reason="Spark does not hand the files of a session to the process that drives a stream",
)
async def test_a_stream_follows_forks_over_restarts(chain: Chain, tmp_path: Path) -> None:
    tree = Tree(Knobs(density=3, hostile=True))
    tree.extend(8)
    store = await opened(chain, tree)
    sink = Sink(tmp_path)
    for depth, length in ((3, 4), (2, 1), (4, 6)):
        sink.drain(chain.stream("logs", "follower"))
        expected = oracle.canonical_rows(tree, 0, tree.head.number)["logs"]
        assert compare.difference(evm.LOGS, expected, sink.held(chain, "logs")) == ""
        await fork(store, tree, depth, length)
    sink.drain(chain.stream("logs", "follower", entries_max=2))
    expected = oracle.canonical_rows(tree, 0, tree.head.number)["logs"]
    assert compare.difference(evm.LOGS, expected, sink.held(chain, "logs")) == ""


async def test_every_journal_entry_is_told_where_a_stream_begins_with_the_first(
    chain: Chain, tmp_path: Path
) -> None:
    tree = Tree(Knobs(density=1))
    tree.extend(4)
    store = await opened(chain, tree)
    await fork(store, tree, 2, 2)
    told, held = Sink(tmp_path / "journal"), Sink(tmp_path / "snapshot")
    told.drain(chain.stream("blocks", "told", start="journal"))
    held.drain(chain.stream("blocks", "held"))
    kinds = [(row["change"], row["change_seq"], row["number"]) for row in told.changes(chain)]
    assert sorted(kinds, key=lambda kind: kind[1:]) == [
        *(("insert", 1, number) for number in range(5)),
        ("delete", 2, 3),
        ("delete", 2, 4),
        ("insert", 3, 3),
        ("insert", 4, 4),
    ]
    assert {row["change"] for row in held.changes(chain)} == {"insert"}
    assert len(held.changes(chain)) == 5


async def test_what_a_registered_stream_has_to_read_is_kept_and_what_nobody_needs_goes(
    chain: Chain, tmp_path: Path
) -> None:
    tree = Tree(Knobs(density=1, finality_lag=4))
    tree.extend(10)
    settings = {"finality_depth_min": 4, "reorg_depth_max": 8, "orphan_keep_blocks": 1}
    store = await opened(chain, tree, **settings)
    sink = Sink(tmp_path)
    sink.drain(chain.stream("blocks", "slow"))
    await fork(store, tree, 2, 3)
    for block in tree.extend(30).added:
        await store.commit(batch(block, finalized=tree.finalized))
    assert await store.prune() == 0, "the stream has not read the fork yet"
    sink.drain(chain.stream("blocks", "slow"))
    expected = oracle.canonical_rows(tree, 0, tree.head.number)["blocks"]
    assert compare.difference(evm.BLOCKS, expected, sink.held(chain, "blocks")) == ""


async def test_an_offset_older_than_what_is_kept_is_an_error_and_never_a_gap(
    chain: Chain, tmp_path: Path
) -> None:
    tree = Tree(Knobs(density=1, finality_lag=4))
    tree.extend(10)
    settings = {"finality_depth_min": 4, "reorg_depth_max": 8, "orphan_keep_blocks": 1}
    store = await opened(chain, tree, **settings)
    sink = Sink(tmp_path)
    sink.drain(chain.stream("blocks", "late"))
    await chain.place.rows("DELETE FROM {raw}.streams")
    await fork(store, tree, 2, 3)
    for block in tree.extend(30).added:
        await store.commit(batch(block, finalized=tree.finalized))
    assert await store.prune() > 0
    with pytest.raises(PySparkException) as raised:
        sink.drain(chain.stream("blocks", "late"))
    assert isinstance(failures.typed(raised.value), errors.StreamLost)


async def test_a_store_that_was_made_anew_is_not_taken_for_the_old_one(
    chain: Chain, tmp_path: Path
) -> None:
    tree = Tree(Knobs(seed=1))
    tree.extend(3)
    await opened(chain, tree)
    sink = Sink(tmp_path)
    sink.drain(chain.stream("blocks", "reset"))
    folder, file = chain.place.folder, chain.file.read_text()
    await chain.place.wipe()
    folder.mkdir(parents=True, exist_ok=True)
    chain.file.write_text(file)
    other = Tree(Knobs(seed=2))
    other.extend(3)
    await opened(chain, other)
    with pytest.raises(PySparkException) as raised:
        sink.drain(chain.stream("blocks", "reset"))
    assert isinstance(failures.typed(raised.value), errors.StreamLost)
