"""Goal: rows that fail a check are published nowhere, through forks, until somebody mends it.

Method: a user's job with checks of every kind over drawn chains, in which one block holds what a
check forbids; real workers compute, judge and commit, and what people read, what is recorded and
what is planned is looked at after each move.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.engines import engine as devnet
from tests.sparks import Chain as Sparked
from unfork import errors
from unfork.devnet.knobs import Knobs
from unfork.testing import chain
from unfork.testing.engine import Engine, Failed, SparkJob

SQL = {
    "moves.sql": "SELECT block_number, block_hash, block_timestamp, transaction_hash, log_index,"
    " token_address, from_address, to_address, amount FROM token_transfers",
    "shops.sql": "SELECT block_number, block_hash, to_address AS shop FROM transactions"
    f" WHERE value = X'{7:064x}'",
    "small.sql": f"SELECT log_index, amount FROM moves WHERE amount > X'{100:064x}'",
}

MOVES = {"name": "moves", "input_datasets": ["token_transfers"], "sql": "moves.sql"}
SHOPS = {"name": "shops", "input_datasets": ["transactions"], "sql": "shops.sql"}
SMALL = {"sql": "small.sql"}


def project(folder: Path, *checks: dict[str, Any], **more: Any) -> Path:
    """A project whose job `moves` has these checks."""
    folder.mkdir(exist_ok=True)
    for name, text in SQL.items():
        (folder / name).write_text(text)
    jobs = [{"name": "token_transfers"}, {**MOVES, "checks": list(checks), **more}, SHOPS]
    (folder / "unfork.yaml").write_text(yaml.safe_dump({"jobs": jobs}, sort_keys=False))
    return folder / "unfork.yaml"


@pytest.fixture
def moves(unfork_engine: Engine, tmp_path: Path) -> Any:
    def run(*checks: dict[str, Any], **more: Any) -> SparkJob:
        return SparkJob(unfork_engine, project(tmp_path, *checks, **more))

    return run


FORKED = """
1: transfer alice -> bob 5 DAI
2: transfer alice -> bob 6 DAI
3: transfer alice -> bob 101 DAI; transfer bob -> alice 7 DAI
3': transfer alice -> bob 100 DAI
4': transfer alice -> bob 8 DAI
"""


def test_a_failing_check_publishes_nothing_and_the_dataset_keeps_its_state_through_a_fork(
    moves: Any,
) -> None:
    blocks = chain(FORKED)
    before, after = moves(SMALL).states("moves", blocks, block_by_block=True)
    assert before.select("block_hash", "amount") == [("1", 5), ("2", 6)]
    assert before.failure == (
        "moves: `moves` is not published: check `small` failed for blocks 3..3: its query found "
        "rows (1 of them): {log_index: 0, amount: 101}"
    )
    assert after.failure is None and after.warnings == ()
    assert after.select("block_hash", "amount") == [("1", 5), ("2", 6), ("3'", 100), ("4'", 8)]


def test_a_warning_is_put_on_record_and_taken_back_once_a_fork_has_mended_it(moves: Any) -> None:
    blocks = chain(FORKED)
    before, after = moves({**SMALL, "severity": "warn"}).states("moves", blocks)
    assert [row["amount"] for row in before] == [5, 6, 101, 7]
    assert before.failure is None
    assert before.warnings == (
        "check `small` failed for blocks 1..3: its query found rows (1 of them): "
        "{log_index: 0, amount: 101}",
    )
    assert [row["amount"] for row in after] == [5, 6, 100, 8] and after.warnings == ()


ONE_OF_EACH = """
1: transfer alice -> bob 5 DAI
2: transfer alice -> SHOP 5 DAI; send alice -> SHOP 7
3: transfer alice -> SHOP 9 DAI; transfer nobody -> SHOP 8 DAI & transfer nobody -> SHOP 9 DAI
"""


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ({"not_null": ["amount", "to_address"]}, None),
        ({"unique": ["block_number", "log_index"]}, None),
        (
            {"unique": ["block_number", "from_address"]},
            "block_number, from_address are alike in several rows (1 of them): "
            "{block_number: 3, from_address: 0x" + "0" * 40 + ", rows: 2}",
        ),
        ({"relation": {"columns": ["transaction_hash"], "dataset": "transactions"}}, "refused"),
        (
            {
                "relation": {
                    "columns": ["block_number", "transaction_hash"],
                    "dataset": "transactions",
                    "to": ["block_number", "hash"],
                }
            },
            None,
        ),
        ({"relation": {"columns": ["to_address"], "dataset": "shops", "to": ["shop"]}}, "bob"),
        ({"sql": "SELECT * FROM moves WHERE amount IS NULL"}, None),
        ({"sql": "SELECT array(to_address) AS held, NULL AS none FROM moves LIMIT 1"}, "held"),
    ],
)
def test_each_kind_of_check_finds_what_it_asks_for(
    moves: Any, check: dict[str, Any], told: str | None
) -> None:
    blocks = chain(ONE_OF_EACH)
    job = moves(check)
    if told == "refused":
        with pytest.raises(errors.ConfigInvalid, match="`transactions` has no column"):
            job("moves", blocks)
    elif told is None:
        found = job("moves", blocks)
        assert len(found) == 5 and found.warnings == ()
    else:
        with pytest.raises(Failed) as caught:
            job("moves", blocks)
        bob = blocks.address("bob")
        wanted = {"bob": f"{{to_address: {bob}}}", "held": f"{{held: [{bob}], none: NULL}}"}
        told = wanted.get(told, told)
        assert told in str(caught.value)
        assert caught.value.rows == []


def test_a_relation_waits_for_the_other_dataset_and_sees_its_blocks_of_before(moves: Any) -> None:
    blocks = chain(
        """
        1: send alice -> SHOP 7
        2: transfer alice -> SHOP 5 DAI
        1':
        2': transfer alice -> SHOP 5 DAI
        """
    )
    shops = {"relation": {"columns": ["to_address"], "dataset": "shops", "to": ["shop"]}}
    before, after = moves(shops).states("moves", blocks, block_by_block=True)
    assert [row["amount"] for row in before] == [5] and before.failure is None
    assert after == [] and "check `to_address_in_shops` failed for blocks 2..2" in after.failure


def test_freshness_goes_by_the_time_of_the_chain_and_looks_at_what_is_stored(moves: Any) -> None:
    text = """
        1 @ 2024-05-01 00:00: transfer alice -> bob 5 DAI
        2 @ 2024-05-01 00:59: send alice -> bob 1
        3 @ 2024-05-01 01:01: send alice -> bob 1
        3' @ 2024-05-01 01:00: send alice -> bob 1
        4' @ 2024-05-01 02:00: transfer alice -> bob 6 DAI
    """
    before, after = moves({"freshness": {"max_age": "1h"}}).states(
        "moves", chain(text), block_by_block=True
    )
    assert len(before) == 1
    assert before.failure == (
        "moves: `moves` is not published: check `freshness` failed for blocks 3..3: the newest row "
        "is 1:01:00 older than the block it is computed up to; at most 1:00:00"
    )
    assert [row["amount"] for row in after] == [5, 6] and after.failure is None


async def test_a_large_run_is_judged_before_it_is_staged_and_released_by_a_mended_check(
    spark: SparkSession, chain: Sparked, tmp_path: Path
) -> None:
    checks: list[dict[str, Any]] = [
        {"sql": "SELECT * FROM moves WHERE log_index >= 0", "name": "none"},
        {"unique": ["block_number", "log_index"]},
    ]
    settings = {"live_blocks_max": 5, "range_size": 1000}

    def jobs(*given: dict[str, Any]) -> dict[str, Any]:
        (chain.file.parent / "moves.sql").write_text(SQL["moves.sql"])
        moves = {**MOVES, "checks": list(given)}
        return {"planning": settings, "jobs": [{"name": "token_transfers"}, moves]}

    knobs = Knobs(density=3, finality_lag=2)
    async with devnet(chain, knobs, config=jobs(*checks), finality_depth_min=2) as made:
        await made.grow(40)
        await made.settle()
        failed = [one for one in made.happened if one.outcome == "failed"]
        assert {one.job for one in failed} == {"moves"}
        assert {one.kind.value for one in failed} == {"backfill"}
        assert "check `none` failed" in failed[0].detail and "of them): {" in failed[0].detail
        assert await made.rows("moves", "block_number") == []
        assert await made.rows("token_transfers", "block_number") != []
        staged = await chain.place.app_rows(
            "SELECT relname FROM pg_class WHERE relname LIKE 'staging_%' AND relkind = 'r'"
            " AND relnamespace = '{app}'::regnamespace"
        )
        assert staged == []
        recorded = await chain.place.app_rows("SELECT * FROM {app}.indexing_errors")
        assert [row["worker_name"] for row in recorded] == ["moves"]
        for _ in range(4):
            await chain.place.app_rows("UPDATE {app}.worker_leases SET not_before = now()")
            await made.settle()
        await chain.place.app_rows("UPDATE {app}.worker_leases SET not_before = now()")
        runs = len(made.happened)
        await made.settle()
        assert len(made.happened) == runs, "what failed five times is left alone"
        await made.restart(jobs(checks[1]))
        await made.settle()
        written = await made.rows("moves", "block_number, log_index")
        transfers = await made.rows("token_transfers", "block_number, log_index")
        assert [row["log_index"] for row in written] == [row["log_index"] for row in transfers]
        assert written
        open_ = "SELECT * FROM {app}.indexing_errors WHERE NOT resolved"
        assert await chain.place.app_rows(open_) == []
