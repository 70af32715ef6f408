"""Goal: people ask in SQL and take rows away, over hot and cold as one, and values mean themselves.

Method: a devnet in real Postgres with a part of it in the lake alone; answers and exported files
are compared with the oracle's rows; the commands are run as people run them.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.acceptance.process import environment, unfork
from tests.integration.lake.test_joined import lake_up_to
from tests.spark.test_source import filled
from tests.sparks import Chain, Near
from unfork import errors
from unfork.cli.querying import Asking
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.jobs import export, views
from unfork.jobs.spark import place as places
from unfork.testing import oracle


async def ready(chain: Chain) -> tuple[Tree, Asking]:
    """A chain whose first 20 blocks are in the lake alone."""
    tree = Tree(Knobs(density=3, hostile=True, finality_lag=5))
    tree.extend(39)
    await filled(chain.place, tree, finality_depth_min=5)
    await lake_up_to(Near(chain.place, chain.file), tree, 19)
    place = places.find(str(chain.file), chain.place.name)
    return tree, Asking(spark=chain.spark, place=place, config=str(chain.file))


async def test_questions_are_answered_over_both_stores_at_one_block(chain: Chain) -> None:
    tree, asking = await ready(chain)
    rows = oracle.canonical_rows(tree, 0, 39)
    document, _ = asking.ask(
        "SELECT hash, value, block_number, block_timestamp FROM Transactions"
        " WHERE block_number < 30 ORDER BY block_number, transaction_index",
        1000,
    )
    wanted = [row for row in rows["transactions"] if row["block_number"] < 30]
    assert document["rows"] == [
        [
            "0x" + row["hash"].hex(),
            int(row["value"]),
            row["block_number"],
            row["block_timestamp"].isoformat(),
        ]
        for row in wanted
    ]
    assert document["at"].hash == tree.head.hash
    joined, _ = asking.ask(
        "SELECT count(*) AS n FROM logs JOIN blocks ON block_number = number AND block_hash = hash",
        10,
    )
    assert (joined["columns"], joined["rows"]) == (["n"], [[len(rows["logs"])]])
    assert len(asking.ask("SELECT number FROM blocks", 7)[0]["rows"]) == 7
    for wrong in ("SELECT no_such FROM logs", "SELEC 1", "SELECT * FROM nowhere"):
        with pytest.raises(errors.ConfigInvalid, match="Spark refuses it"):
            asking.ask(wrong, 1)


async def test_exported_files_hold_the_rows_of_a_span(chain: Chain, tmp_path: Path) -> None:
    tree, asking = await ready(chain)
    expected = oracle.canonical_rows(tree, 15, 24)["transactions"]
    given = {"config": asking.config, "first": 15, "last": 24}
    frame = views.frame(asking.spark, asking.place, "transactions", **given)
    export.write(frame, str(tmp_path / "parquet"), format="parquet")
    found = parquet.read_table(tmp_path / "parquet").to_pylist()
    key = ("block_number", "transaction_index")
    assert sorted((row[key[0]], row[key[1]], row["hash"]) for row in found) == [
        (row[key[0]], row[key[1]], row["hash"]) for row in expected
    ]
    export.write(frame, str(tmp_path / "csv"), format="csv")
    texts: list[dict[str, Any]] = []
    for file in sorted((tmp_path / "csv").glob("*.csv")):
        with file.open(newline="") as opened:
            texts += csv.DictReader(opened)
    assert sorted((int(row["block_number"]), row["hash"], row["value"]) for row in texts) == sorted(
        (row["block_number"], "0x" + row["hash"].hex(), str(Decimal(row["value"])))
        for row in expected
    )


async def test_the_commands_answer_and_verify_as_people_run_them(
    chain: Chain, tmp_path: Path
) -> None:
    tree, _ = await ready(chain)
    asked = "SELECT count(*) AS n\nFROM logs;\nSELECT no_such FROM logs;\nexit\nSELECT 1;\n"
    shell = subprocess.run(
        [sys.executable, "-m", "unfork", "--config", str(chain.file), "shell", "--json"],
        input=asked,
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert shell.returncode == 0, shell.stderr
    first, second = json.loads(shell.stdout)["answers"]
    assert first["rows"] == [[len(oracle.canonical_rows(tree, 0, 39)["logs"])]]
    assert second["error"]["code"] == "E101"
    # What Arrow wrote for this test has no content hash on record: that is damage, and is told.
    verified = unfork(
        tmp_path, "--config", str(chain.file), "verify", "--lake", "--to", "9", "--json"
    )
    assert verified.returncode == 1, verified.stderr
    report = json.loads(verified.stdout)["chains"][0]
    assert {one["check"] for one in report["damaged"]} >= {"rows"}
    assert report["versions"] == 5
