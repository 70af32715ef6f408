"""Goal: a job is known by its columns before anything runs, and what does not fit is said by line.

Method: projects in a folder, with functions and queries as people write them; a real Spark is asked
for their schemas, and nothing is read or computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from unfork import errors
from unfork.app.derived import DerivedDataset
from unfork.config import load
from unfork.datasets import evm
from unfork.datasets.dataset import Column, Kind
from unfork.jobs import catalog
from unfork.jobs.declaration import Declarations

MODULE = """
from pyspark.sql import functions as F

def values(transactions):
    return transactions.select("block_number", "block_hash", "value", F.col("value").alias("again"))

def told(transactions, config):
    return transactions.select("block_number", "block_hash", F.lit(config["word"]).alias("word"))

def broken(transactions):
    raise ValueError("not today")

def nothing(transactions):
    return 7

def two(transactions, logs):
    return transactions

def halves(transactions):
    return transactions.select("block_number", "block_hash", (F.col("gas") / 2).alias("half"))
"""


def asked(
    spark: SparkSession, folder: Path, *jobs: Mapping[str, Any]
) -> Mapping[str, DerivedDataset]:
    """What the jobs of a project write."""
    (folder / "mine.py").write_text(MODULE)
    document = {"chains": [{"name": "one"}], "jobs": list(jobs)}
    (folder / "unfork.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    loaded = load.load(folder / "unfork.yaml", env={})
    return Declarations(catalog.read(loaded), evm.DATASETS).ask(spark)


def job(function: str, **more: Any) -> dict[str, Any]:
    given = {"name": function, "input_datasets": ["transactions"], "transform": f"mine:{function}"}
    return {**given, **more}


def test_columns_keep_their_kind_through_a_select_and_into_the_next_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "next.sql").write_text(
        "SELECT block_number, block_hash, again AS wei, '{}' AS text FROM values -- the end\n;"
    )
    after = {"name": "after", "input_datasets": ["values"], "sql": "next.sql"}
    found = asked(spark, tmp_path, job("values"), after)
    assert found["values"].columns == (
        Column("block_number", Kind.INT),
        Column("block_hash", Kind.BYTES),
        Column("value", Kind.U256),
        Column("again", Kind.U256),
    )
    assert found["after"].columns[2:] == (Column("wei", Kind.U256), Column("text", Kind.TEXT))


def test_a_function_that_asks_for_its_settings_is_told_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = asked(spark, tmp_path, job("told", config={"word": "yes"}))
    assert found["told"].columns[-1] == Column("word", Kind.TEXT)


def test_the_built_in_jobs_declare_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    names = ("token_transfers", "token_balances", "daily_summary")
    found = asked(spark, tmp_path, *({"name": name} for name in names))
    assert found["token_transfers"].kind("amount") is Kind.U256
    assert found["token_balances"].kind("balance") is Kind.SIGNED
    assert found["token_balances"].key == ("token_address", "address")
    assert found["daily_summary"].kind("day") is Kind.DATE


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (job("broken"), "unfork.yaml:7: job `broken` raised ValueError: not today"),
        (job("nothing"), "it returned int, not a DataFrame"),
        (job("two"), "cannot be called with transactions as its arguments"),
        (job("halves"), "returns `half` as double, which cannot be kept exactly"),
        (
            job("values", update_strategy="append", unique_key=["hash"]),
            "unfork.yaml:9: job `values` does not return the column `hash`, which is in its unique",
        ),
        (
            job("values", incremental={"mode": "partition", "partition": "day"}),
            "does not return the column `day`, which says to which day a row belongs",
        ),
    ],
)
def test_what_does_not_fit_is_named_with_its_line(
    spark: SparkSession, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.ConfigInvalid) as refused:
        asked(spark, tmp_path, given)
    assert said in refused.value.message


def test_every_problem_of_a_file_is_said_at_once(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "wrong.sql").write_text("SELECT block_number, block_hash, nope FROM transactions")
    wrong = {"name": "wrong", "input_datasets": ["transactions"], "sql": "wrong.sql"}
    with pytest.raises(errors.ConfigInvalid) as refused:
        asked(spark, tmp_path, job("broken"), wrong, job("halves"))
    problems = refused.value.fields["problems"]
    assert len(problems) == 3
    assert "`nope`" in problems[1] and "job `wrong` does not fit its inputs" in problems[1]
