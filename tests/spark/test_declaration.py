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
from unfork.jobs import builtin, catalog, meaning
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
    found = asked(spark, tmp_path, *({"name": name} for name in builtin.BUILTINS))
    assert found["token_transfers"].kind("amount") is Kind.U256
    assert found["token_balances"].kind("balance") is Kind.SIGNED
    assert found["token_balances"].key == ("token_address", "address", "standard", "token_id")
    assert found["daily_summary"].kind("day") is Kind.DATE
    assert found["enrich_transfers"].name == "enriched_transfers"
    for job, dataset in found.items():
        place = {"block_number", "block_hash", "block_timestamp"}
        assert place <= set(dataset.names), f"{job} places its rows on the chain"
        declared = builtin.BUILTINS[job]
        assert (dataset.indexes, dataset.table_blocks) == (declared.indexes, declared.table_blocks)
        meant = {name: kind for name, (kind, _) in meaning.MEANINGS[job].columns.items()}
        assert {column.name: column.kind for column in dataset.columns} == meant
        assert dataset.names == tuple(meant), "docs/datasets.md has them in their order"
        nullable = {column.name for column in dataset.columns if column.nullable}
        assert not nullable & set(dataset.key), f"{job} has a primary key"


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


LOOKED_UP = """
from pyspark.sql import functions as F

def payers(transactions):
    return transactions.select("block_number", "block_hash", "from_address", "value")

def paid(transactions, payers):
    payers = payers.select("from_address", F.col("block_number").alias("since"))
    transactions = transactions.withColumnRenamed("from_address", "by")
    is_known = F.col("to_address") == F.col("from_address")
    is_before = F.col("since") <= F.col("block_number")
    rows = transactions.join(payers, on=is_known & is_before, how="left_semi")
    why = F.lit("odd").alias("indexing_error")
    data = F.col("input").alias("indexing_error_data")
    return rows.select("block_number", "block_hash", "by", why, data)

def wrong(transactions):
    return transactions.select("block_number", "block_hash", F.lit(1).alias("indexing_error"))
"""


def looked(spark: SparkSession, folder: Path, column: str, by: str) -> Mapping[str, DerivedDataset]:
    (folder / "mine2.py").write_text(LOOKED_UP)
    lookups = {"payers": {"column": column, "by": by}}
    reading = {"input_datasets": ["transactions", "payers"], "lookups": lookups}
    first = job("payers", transform="mine2:payers")
    return asked(spark, folder, first, job("paid", transform="mine2:paid", **reading))


def test_a_lookup_is_indexed_by_its_column_and_told_to_the_database(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = looked(spark, tmp_path, "from_address", "to_address")
    assert found["payers"].indexes == (("from_address", "block_number"),)
    assert found["paid"].lookups == ("payers",)
    assert found["paid"].names == ("block_number", "block_hash", "by"), "errors are no columns"


@pytest.mark.parametrize(
    ("column", "by", "why"),
    [
        ("from_adress", "to_address", "`payers` has no column `from_adress`; did you mean"),
        ("from_address", "receiver", "`transactions` has no column `receiver`; it has"),
        ("value", "value", "must both be bytes, or both whole numbers"),
        ("block_number", "to_address", "must both be bytes, or both whole numbers"),
    ],
)
def test_a_lookup_by_what_cannot_be_searched_is_refused(
    spark: SparkSession, tmp_path: Path, column: str, by: str, why: str
) -> None:
    with pytest.raises(errors.ConfigInvalid, match=why):
        looked(spark, tmp_path, column, by)


def test_an_error_that_is_no_text_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mine2.py").write_text(LOOKED_UP)
    with pytest.raises(errors.ConfigInvalid, match="`indexing_error` as int; it must be string"):
        asked(spark, tmp_path, job("wrong", transform="mine2:wrong"))
    mode = {"incremental": {"mode": "full"}}
    with pytest.raises(errors.ConfigInvalid, match="which belongs to mode: cursor"):
        asked(spark, tmp_path, job("wrong", transform="mine2:wrong", **mode))
