"""Goal: what is final comes into the lake whole, once and linked, whoever compacts it.

Method: a devnet in real Postgres, a worker's compaction on a real Spark, taken a step at a time;
the files are read back and compared with the oracle's rows; the chain, the files and the claims are
changed between two steps, where a fork, a crash or another worker would.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
import yaml
from pyspark.sql import functions as F

from tests.batches import batch
from tests.engines import engine
from tests.lakes import raw_lake
from tests.spark.test_source import difference, filled
from tests.sparks import Chain, Near
from unfork import wiring, wiring_jobs
from unfork.app.refs import Refs
from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot.advance import Upstream
from unfork.jobs import lake_repair
from unfork.jobs.compact import Compacted, Compaction
from unfork.jobs.compaction import Settings
from unfork.jobs.spark import joined, schema
from unfork.jobs.spark import place as places
from unfork.jobs.worker import Happened
from unfork.lake import files, gc, lookup, pieces
from unfork.lake import rows as lake_rows
from unfork.lake.file import total
from unfork.lake.versions import Version, Versions
from unfork.testing import compare, derived, oracle


class Compactor:
    """The compaction of a chain, step by step."""

    def __init__(
        self, chain: Chain, *datasets: str, blocks: int = 20, threshold: int = 15, **lake: object
    ) -> None:
        self.chain = chain
        document = yaml.safe_load(chain.file.read_text())
        document["lake"] = {"partition_blocks": blocks, **lake}
        document["chains"] = [{"name": chain.place.name, "traces": True}]
        chain.file.write_text(yaml.safe_dump(document))
        self.place = places.find(str(chain.file), chain.place.name)
        self.app = chain.place.app_database()
        self.raw = chain.place.database()
        self.refs = Refs(chain.place.name, self.app, Upstream(chain.place.name, self.raw))
        self.versions, self.storage = wiring.lake(self.place.config, self.app, self.place.chain)
        self.done: list[Compacted] = []
        self.settings = Settings(datasets=datasets, finality_threshold=threshold)
        self.compaction = self.other("worker-1")

    def other(self, name: str) -> Compaction:
        """Another worker over the same chain."""
        return Compaction(
            self.chain.spark,
            self.place,
            self.settings,
            raw=self.raw,
            app=self.app,
            refs=self.refs,
            versions=self.versions,
            worker=name,
            config=str(self.chain.file),
            listener=self.done.append,
        )

    async def follow(self) -> None:
        while await self.refs.step() is not None:
            pass

    async def all(self) -> list[tuple[str, Span]]:
        """Compacts what is due; returns what it was."""
        self.done.clear()
        await self.follow()
        while await self.compaction.step() is not None:
            pass
        assert self.compaction.rests
        return [(one.dataset, one.span) for one in self.done]

    def rows(self, versions: list[Version], name: str) -> list[dict[str, object]]:
        """The rows of a dataset in the lake, as Arrow reads them."""
        dataset = evm.BY_NAME[name]
        wanted = schema.arrow(dataset.columns)
        found = []
        for piece in pieces.of([one for one in versions if one.dataset == name], Span(0, 10**9)):
            batches = lake_rows.batches(self.storage, piece, wanted, number=dataset.number_column)
            found += [row for batch in batches for row in batch.to_pylist()]
        return found

    async def errors(self) -> list[tuple[str, str]]:
        rows = await self.chain.place.app_rows(
            "SELECT worker_name, severity, resolved FROM {app}.indexing_errors ORDER BY 1"
        )
        return [(row["worker_name"], row["severity"]) for row in rows if not row["resolved"]]


async def test_every_raw_dataset_comes_into_the_lake_up_to_the_floor_and_the_threshold(
    chain: Chain,
) -> None:
    tree = Tree(Knobs(density=4, hostile=True, finality_lag=10))
    tree.extend(39)
    store = await filled(chain.place, tree, finality_depth_min=10)
    compactor = Compactor(chain)
    # Blocks 0 to 24 lie 15 below the head; those up to 29 are final.
    done = await compactor.all()
    every = ("blocks", "transactions", "logs", "withdrawals", "traces")
    assert done == [(name, Span(0, 19)) for name in every]
    # What is there is not done again; what becomes final is.
    assert await compactor.all() == []
    added = tree.extend(20).added
    await store.commit(batch(*added, head=tree.head, finalized=tree.finalized))
    assert await compactor.all() == [(name, Span(20, 39)) for name in every]
    current = await compactor.versions.current()
    expected = oracle.canonical_rows(tree, 0, 39)
    for dataset in evm.DATASETS:
        found = compactor.rows(current, dataset.name)
        assert compare.difference(dataset, expected[dataset.name], found) == ""
        assert [row[dataset.number_column] for row in found] == sorted(
            row[dataset.number_column] for row in found
        )
    by_key = {(one.dataset, one.key): one for one in current}
    for one in current:
        assert one.last.hash == tree.at(one.span.last).hash
        assert one.first_hash == tree.at(one.span.first).hash
        assert one.content == total(file.content for file in one.files)
        below = by_key.get((one.dataset, "0-19")) if one.span.first else None
        assert one.parent_hash == (below.last.hash if below is not None else None)
    transaction = expected["transactions"][7]
    found_at = lookup.find(
        compactor.storage,
        [one for one in current if one.dataset == "transactions"],
        transaction["hash"],
    )
    assert [(place.number, place.index, place.timestamp) for place in found_at] == [
        (
            transaction["block_number"],
            transaction["transaction_index"],
            transaction["block_timestamp"],
        )
    ]
    blocks = [one for one in current if one.dataset == "blocks"]
    assert [place.number for place in lookup.find(compactor.storage, blocks, tree.at(33).hash)] == [
        33
    ]
    assert lookup.find(compactor.storage, blocks, b"\0" * 32) == []
    assert await compactor.errors() == []
    # Both stores are one table, to Spark's own reader and through the data source.
    await chain.place.rows("DELETE FROM {raw}.logs WHERE block_number < 40")
    named = {"chain": chain.place.name, "config": str(chain.file)}
    logs = joined.read(chain.spark, "logs", **named)
    assert difference(tree, "logs", logs) == ""
    assert [field.metadata["kind"] for field in logs.schema] == [
        column.kind.value for column in evm.LOGS.columns
    ]
    some = joined.read(chain.spark, "logs", first=35, last=44, columns="data,log_index", **named)
    assert some.columns == ["data", "log_index"]
    expected_logs = oracle.canonical_rows(tree, 35, 44)["logs"]
    assert sorted(bytes(row["data"]) for row in some.collect()) == sorted(
        row["data"] for row in expected_logs
    )
    address = expected_logs[0]["address"]
    by_source = chain.read("logs").where(F.col("address") == F.lit(address)).count()
    every = oracle.canonical_rows(tree, 0, 59)["logs"]
    assert by_source == sum(row["address"] == address for row in every)


async def test_a_job_computes_history_from_the_lake(chain: Chain) -> None:
    config = {
        "jobs": [{"name": "token_transfers"}],
        "planning": {"live_blocks_max": 4, "range_size": 100},
    }
    async with engine(chain, Knobs(density=4, hostile=True, finality_lag=10), config=config) as one:
        await one.grow(40)
        await one.worker.follow()
        near = Near(chain.place, chain.file)
        lake = raw_lake(near)
        await lake.compact("logs", Span(0, 19))
        await lake.forget_hot("logs", Span(0, 19))
        await one.settle()
        held = await one.rows("token_transfers", "block_number, log_index, batch_ordinal")
    assert held == derived.token_transfers(one.blocks)
    assert any(row["block_number"] < 20 for row in held)
    assert {done.kind.value for done in one.happened} >= {"backfill"}


async def test_a_dataset_without_rows_gets_empty_versions_and_a_missing_one_gets_none(
    chain: Chain,
) -> None:
    tree = Tree(Knobs(density=0, finality_lag=5))
    tree.extend(30)
    await filled(chain.place, tree, finality_depth_min=5)
    compactor = Compactor(chain, "logs", blocks=10, threshold=0)
    assert [span for _, span in await compactor.all()] == [Span(0, 9), Span(10, 19)]
    current = await compactor.versions.current()
    assert [(one.rows, one.files, one.lookups) for one in current] == [(0, (), ())] * 2
    assert current[1].parent_hash == current[0].last.hash == tree.at(9).hash


async def test_a_fork_past_the_threshold_is_reported_and_repaired(chain: Chain) -> None:
    tree = Tree(Knobs(density=1, finality_lag=5))
    tree.extend(39)
    store = await filled(chain.place, tree, finality_depth_min=5)
    compactor = Compactor(chain, "blocks", "logs", blocks=10, threshold=15)
    assert len(await compactor.all()) == 4
    # What was compacted is of a fork that the stores do not hold any more.
    await chain.place.app_rows(
        "UPDATE {app}.lake_versions SET last_hash = '\\x00'"
        " WHERE dataset = 'blocks' AND first_number = 10"
    )
    added = tree.extend(10).added
    await store.commit(batch(*added, head=tree.head, finalized=tree.finalized))
    # Nothing is published on top; the other dataset goes on.
    assert await compactor.all() == [("logs", Span(20, 29))]
    assert await compactor.errors() == [("parquet_compact:blocks", "FATAL")]
    raw, name = compactor.raw, chain.place.name
    found = await lake_repair.find(raw, name, compactor.versions)
    assert [(one.dataset, one.key, one.is_mendable) for one in found] == [("blocks", "10-19", True)]
    assert await lake_repair.mend(compactor.versions, found) == 1
    assert await lake_repair.find(raw, name, compactor.versions) == []
    later = Compactor(chain, "blocks", "logs", blocks=10, threshold=15)
    assert await later.all() == [("blocks", Span(first, first + 9)) for first in (10, 20)]
    blocks = later.rows(await later.versions.current(), "blocks")
    expected = oracle.canonical_rows(tree, 0, 29)["blocks"]
    assert compare.difference(evm.BLOCKS, expected, blocks) == ""
    assert await later.errors() == []


async def test_two_compactors_at_once_publish_one_version_of_everything(chain: Chain) -> None:
    tree = Tree(Knobs(density=1, finality_lag=5))
    tree.extend(39)
    await filled(chain.place, tree, finality_depth_min=5)
    compactor = Compactor(chain, "blocks", "logs", blocks=10, threshold=0)
    await compactor.follow()

    async def all_of(one: Compaction) -> None:
        while await one.step() is not None:
            pass

    await asyncio.gather(all_of(compactor.compaction), all_of(compactor.other("worker-2")))
    current = await compactor.versions.current()
    assert [(one.dataset, one.span) for one in current] == [
        (name, span)
        for name in ("blocks", "logs")
        for span in (Span(0, 9), Span(10, 19), Span(20, 29))
    ]
    found = await gc.find(compactor.versions, compactor.storage, keep_s=0)
    assert found.is_empty, "nobody wrote what somebody else had"


async def test_a_worker_that_is_ended_in_the_middle_leaves_the_partition_to_the_next(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(Knobs(density=1, finality_lag=5))
    tree.extend(29)
    await filled(chain.place, tree, finality_depth_min=5)
    compactor = Compactor(chain, "blocks", blocks=20, threshold=0)
    await compactor.follow()
    written, going_on = threading.Event(), threading.Event()
    write = files.write

    def and_then_wait(*given: Any, **named: Any) -> None:
        write(*given, **named)
        written.set()
        going_on.wait()

    with monkeypatch.context() as patched:
        patched.setattr(files, "write", and_then_wait)
        working = asyncio.create_task(compactor.compaction.step())
        await asyncio.to_thread(written.wait)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert working.cancelled()
        going_on.set()
    assert await compactor.versions.current() == []
    assert await compactor.all() == [("blocks", Span(0, 19))]
    found = await gc.find(compactor.versions, compactor.storage, keep_s=0)
    assert [one.is_abandoned for one in found.versions] == [True]
    await gc.remove(compactor.versions, compactor.storage, found)
    blocks = compactor.rows(await compactor.versions.current(), "blocks")
    expected = oracle.canonical_rows(tree, 0, 19)["blocks"]
    assert compare.difference(evm.BLOCKS, expected, blocks) == ""


async def test_a_worker_compacts_what_the_file_declares(chain: Chain) -> None:
    config = {
        "jobs": [
            {
                "name": "parquet_compact",
                "input_datasets": ["hot_blocks", "logs"],
                "config": {"finality_threshold": 5},
            }
        ],
        "lake": {"partition_blocks": 10},
    }
    happened: list[Happened] = []
    done, stopping = asyncio.Event(), asyncio.Event()

    def heard(one: Happened) -> None:
        happened.append(one)
        if len(happened) == 4:
            done.set()

    place = chain.place
    where = wiring.Urls(raw=place.dsn, app=place.dsn)
    async with engine(chain, Knobs(density=1, finality_lag=5), config=config, workers=0) as made:
        await made.grow(30)
        known = made.computing.loaded.config.chains[0]
        async with wiring_jobs.worker(made.computing, where, known, listener=heard) as worker:
            working = asyncio.create_task(worker.work(stopping))
            waiting = asyncio.create_task(done.wait())
            await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
            stopping.set()
            await working
        versions = Versions(place.name, place.app, place.app_database())
        found = await versions.current()
    assert {one.dataset for one in found} == {"blocks", "logs"}
    assert {one.key for one in found} == {"0-9", "10-19"}
    assert {(one.job, one.outcome) for one in happened} == {("parquet_compact", "committed")}
