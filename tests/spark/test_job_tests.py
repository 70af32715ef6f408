"""Goal: what `spark_job` returns is what people would read, through forks, of jobs of every mode.

Method: a small project of a user, its jobs run over drawn chains by the fixture that we ship, on a
real Spark and a real Postgres; what comes out is compared with values written out by hand.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from unfork import errors
from unfork.testing import chain
from unfork.testing.engine import Engine, Failed, SparkJob

PROJECT = """
chains:
  - name: ethereum
    source: {urls: ["${A_NODE_THAT_NOBODY_HAS}"]}
jobs:
  - name: token_transfers
  - name: token_balances
  - name: large
    input_datasets: [token_transfers]
    sql: large.sql
  - name: senders
    input_datasets: [transactions]
    incremental: {mode: partition, partition: 2}
    transform: senders_of_tests:senders
    config: {minimum: 2}
  - name: firsts
    input_datasets: [token_transfers]
    update_strategy: append
    unique_key: [to_address]
    sql: firsts.sql
  - name: highest
    input_datasets: [token_balances]
    incremental: {mode: full}
    sql: highest.sql
  - name: broken
    input_datasets: [large]
    transform: senders_of_tests:broken
"""

FILES = {
    "large.sql": f"SELECT * FROM token_transfers WHERE amount >= X'{5:064x}'",
    "firsts.sql": "SELECT block_number, block_hash, to_address, from_address FROM token_transfers",
    "highest.sql": "SELECT address, balance FROM token_balances ORDER BY address DESC LIMIT 1",
    "senders_of_tests.py": """
from pyspark.sql import functions as F

def senders(transactions, config):
    counted = transactions.groupBy("from_address").agg(
        F.count(F.lit(1)).alias("sent"), F.min("block_number").alias("block_number")
    )
    return counted.where(F.col("sent") >= config["minimum"])

def broken(large):
    def fail(batches):
        for batch in batches:
            if batch.num_rows:
                raise ValueError("this is broken")
            yield batch
    columns = "block_number bigint, block_hash binary"
    return large.select("block_number", "block_hash").mapInArrow(fail, columns)
""",
}

FORKED = """
1:  transfer nobody -> alice 100 DAI
2:  transfer alice -> bob 5 DAI; transfer alice -> carol 4 DAI
3:  transfer bob -> dave 2^256-1 DAI
3': transfer alice -> bob 7 DAI
4': transfer carol -> dave 1 DAI
"""


@pytest.fixture
def job(unfork_engine: Engine, tmp_path: Path) -> SparkJob:
    file = tmp_path / "unfork.yaml"
    file.write_text(PROJECT)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return SparkJob(unfork_engine, file)


def test_a_sql_job_is_computed_with_its_inputs_and_follows_the_fork(job: SparkJob) -> None:
    blocks = chain(FORKED)
    before, after = job.states("large", blocks)
    shown = ("block_hash", "from_address", "to_address", "amount")
    same = [("1", "nobody", "alice", 100), ("2", "alice", "bob", 5)]
    assert before.select(*shown) == [*same, ("3", "bob", "dave", 2**256 - 1)]
    assert after.select(*shown) == [*same, ("3'", "alice", "bob", 7)]
    assert after[1]["token_address"] == blocks.address("DAI")
    assert after[1]["block_hash"] == blocks.hash(2)
    assert job("large", blocks, block_by_block=True) == after


def test_every_mode_and_strategy_gives_what_people_read(job: SparkJob) -> None:
    blocks = chain(FORKED)
    balances = job("token_balances", blocks).select("address", "balance")
    assert sorted(balances) == [("alice", 84), ("bob", 12), ("carol", 3), ("dave", 1)]
    assert job("senders", blocks).select("from_address", "sent", "block_number") == [
        ("alice", 3, 2)
    ]
    assert job("firsts", blocks).select("to_address", "block_hash") == [
        ("alice", "1"),
        ("bob", "2"),
        ("carol", "2"),
        ("dave", "4'"),
    ]
    last = max(balances, key=lambda row: blocks.address(row[0]))
    assert job("highest", blocks).select("address", "balance") == [last]


def test_a_job_that_raises_fails_its_test_with_the_reason(job: SparkJob) -> None:
    with pytest.raises(
        Failed, match=r"ValueError: this is broken \(senders_of_tests.py:14\)"
    ) as caught:
        job("broken", chain("1: transfer alice -> bob 4 DAI\n2: transfer alice -> bob 5 DAI"))
    assert caught.value.rows == []
    with pytest.raises(KeyError, match="no job is called `larg`"):
        job("larg", chain(FORKED))


def test_a_project_with_mistakes_is_refused_as_every_command_does(job: SparkJob) -> None:
    (job.file.parent / "large.sql").write_text("SELECT nothing FROM token_transfers")
    with pytest.raises(errors.ConfigInvalid, match=r"unfork.yaml:\d+: .*nothing"):
        job("large", chain(FORKED))
