"""Goal: raw in one Postgres server and app in another are read and computed from as one chain (I1).

Method: blocks go into one server, what is derived from them into another, of another release where
the machine has one. Real workers compute on a real Spark, with few blocks being many, so that tasks
read both servers and stage into the second; a reader of its own joins rows of both through a fork.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests import sparks
from tests.batches import ref
from tests.engines import engine
from tests.places import Place
from tests.spark.test_source import failure_of
from unfork import errors
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.jobs.spark import snapshot
from unfork.testing import derived


def moved(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Transfers, as far as two ways of telling them have to agree."""
    found = []
    for row in rows:
        amount = row["amount"]
        if isinstance(amount, bytes):
            amount = int.from_bytes(amount, "big")
        names = ("block_number", "block_hash", "log_index", "transaction_hash", "to_address")
        found.append((*(row[name] for name in names), amount))
    return sorted(found)


@pytest.mark.everywhere
async def test_two_servers_are_read_and_computed_from_as_one_chain_through_a_fork(
    spark: SparkSession, split_place: Place
) -> None:
    place, chain = split_place, sparks.chain(spark, split_place)
    assert place.dsn != place.app_dsn
    small = {"planning": {"range_size": 16, "live_blocks_max": 4}}
    knobs = Knobs(density=3, hostile=True, finality_lag=4, block_time_s=7200)
    async with engine(chain, knobs, config=small, finality_depth_min=4) as made:
        await made.grow(16)
        await made.settle()
        await made.check()
        kinds = {(one.job, one.kind.value) for one in made.happened}
        assert {("token_transfers", "backfill"), ("token_balances", "backfill")} <= kinds

        before, old = made.blocks, ref(made.tree.head)
        raw, app = place.database(), place.app_database()
        held_both = snapshot.hold_both(raw, app, place.name, holder="test", first=0)
        async with held_both as held:
            assert held.app is not None and held.raw.at == held.app.at == old
            await made.fork(depth=3, length=5, style=Style.MOVED)
            await made.settle()
            span = {"first": 0, "last": old.number}
            logs = chain.read("logs", **span, **held.raw.options()).select(
                "block_hash", "log_index", "transaction_hash"
            )
            transfers = chain.read("token_transfers", **span, **held.app.options()).drop(
                "transaction_hash"
            )
            joined = transfers.join(logs, ["block_hash", "log_index"], how="inner").toArrow()
            assert moved(joined.to_pylist()) == moved(derived.token_transfers(before))
        await made.check()

        gone = f"{old.number}:0x{old.hash.hex()}"
        told = failure_of(lambda: chain.read("token_transfers", at=gone).toArrow())
        assert isinstance(told, errors.BlockReplaced)
        now = chain.read("token_transfers").toArrow().to_pylist()
        assert (
            moved(now)
            == moved(derived.token_transfers(made.blocks))
            != moved(derived.token_transfers(before))
        )
    tables = "SELECT count(*) AS count FROM pg_tables WHERE schemaname = '{schema}'"
    assert (await place.rows(tables.replace("{schema}", place.app)))[0]["count"] == 0
    assert (await place.app_rows(tables.replace("{schema}", place.raw)))[0]["count"] == 0
