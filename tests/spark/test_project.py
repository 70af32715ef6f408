"""Goal: a user's own modules run in Spark's tasks, wherever those are, and always as they are now.

Method: a project in a folder that is on no path: a transform that hands functions of a helper
beside it to Spark, which read a file that the helper's package keeps. The real engine computes it,
live and staged by tasks, on whatever Spark the tests run on; plain Python says what must come out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests import sparks
from tests.engines import engine
from tests.sparks import Chain
from unfork import errors, wiring_jobs
from unfork.config import load
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.jobs import catalog
from unfork.wiring_jobs import Computing

MARKS = """
from pyspark.sql import functions as F

from helping import marking

TYPES = "block_number bigint, block_hash binary, transaction_index bigint, mark bigint"


def marks(transactions):
    sized = transactions.select(
        "block_number", "block_hash", "transaction_index", "from_address",
        F.arrow_udf(marking.doubled, "bigint")("nonce").alias("doubled"),
    )
    return sized.mapInArrow(marking.marked, TYPES)
"""

MARKING = """
from importlib import resources

import pyarrow as pa
import pyarrow.compute as pc


def doubled(nonces: pa.Array) -> pa.Array:
    return pc.multiply(nonces, 2)


def marked(batches):
    salt = int(resources.files("helping").joinpath("salt.txt").read_text())
    for batch in batches:
        firsts = [address[0] for address in batch["from_address"].to_pylist()]
        marks = pc.add(pc.add(batch["doubled"], pa.array(firsts, pa.int64())), salt)
        names = ["block_number", "block_hash", "transaction_index", "mark"]
        yield pa.RecordBatch.from_arrays([*(batch[name] for name in names[:3]), marks], names)
"""

LOSING = """
import importlib

def f(blocks):
    rows = blocks.selectExpr("number AS block_number", "hash AS block_hash")
    return rows.mapInArrow(same, "block_number bigint, block_hash binary")

def same(batches):
    importlib.import_module("_".join(["not", "there"]))
    yield from batches
"""

FILES = {
    "marks_of_senders.py": MARKS,
    "helping/__init__.py": "",
    "helping/marking.py": MARKING,
    "helping/salt.txt": "1000",
}
JOB = {
    "name": "marks",
    "input_datasets": ["transactions"],
    "transform": "marks_of_senders:marks",
}


def marks(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """What the job must hold, in plain Python."""
    return [
        {
            "block_number": block.number,
            "block_hash": block.hash,
            "transaction_index": index,
            "mark": 2 * executed.transaction.nonce + executed.sender[0] + 1000,
        }
        for block in blocks
        for index, executed in enumerate(block.transactions)
    ]


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def stays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what is sent, which lasts as long as the session."""
    return tmp_path_factory.getbasetemp() / "sent"


@pytest.fixture
def forgetting() -> Iterator[None]:
    """Lets this process forget the modules of a project, as another one would not know them."""
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("marks_of_senders", "helping", "losing", "telling", "told"):
            del sys.modules[name]


@pytest.mark.everywhere
async def test_a_projects_own_modules_run_where_tasks_run(
    chain: Chain, stays: Path, forgetting: None
) -> None:
    folder = chain.file.parent
    written(folder, FILES)
    planning = {"range_size": 12, "live_blocks_max": 4}
    config = {"jobs": [JOB], "planning": planning, "data_dir": str(stays)}
    knobs = Knobs(density=2, finality_lag=4)
    async with engine(chain, knobs, config=config, finality_depth_min=4) as made:
        sent = [place for place in sys.path if Path(place).name.startswith(("project-", "unfork-"))]
        assert not sent, "what is here is used here as it is"
        await made.grow(12)
        await made.settle()
        await made.fork(depth=2, length=3)
        await made.settle()
        assert {one.kind.value for one in made.happened} == {"live", "backfill"}
        held = await made.rows("marks", "block_number, transaction_index")
        assert len(held) > 10 and held == marks(made.blocks)


async def test_a_module_that_tasks_do_not_find_is_named_and_what_can_be_done(
    chain: Chain, stays: Path, forgetting: None
) -> None:
    written(chain.file.parent, {"losing.py": LOSING})
    job = {"name": "losing", "input_datasets": ["blocks"], "transform": "losing:f"}
    async with engine(chain, config={"jobs": [job], "data_dir": str(stays)}) as made:
        await made.settle()
        (failed,) = made.happened
        assert failed.outcome == "failed"
        assert "Spark's tasks find no module `not_there`; install it where they" in failed.detail


def telling(folder: Path, stays: Path, said: int) -> Path:
    """A project whose rows are what its helper says."""
    transform = (
        "import told\n"
        "def f(blocks):\n"
        "    rows = blocks.selectExpr('number AS block_number', 'hash AS block_hash')\n"
        "    return rows.mapInArrow(told.said, 'block_number bigint, block_hash binary')\n"
    )
    helper = (
        "import pyarrow as pa\n"
        "def said(batches):\n"
        "    for batch in batches:\n"
        f"        numbers = pa.array([{said}] * batch.num_rows, pa.int64())\n"
        "        yield pa.RecordBatch.from_arrays([numbers, batch[1]], batch.schema.names)\n"
    )
    written(folder, {"telling.py": transform, "told.py": helper})
    job = {"name": "telling", "input_datasets": ["blocks"], "transform": "telling:f"}
    document = {"chains": [{"name": "one"}], "jobs": [job], "data_dir": str(stays)}
    (folder / "unfork.yaml").write_text(yaml.safe_dump(document))
    return folder / "unfork.yaml"


def prepared(file: Path, spark: SparkSession) -> Computing:
    loaded = load.load(file, env={})
    return wiring_jobs.prepared(loaded, catalog.read(loaded), spark)


def said(made: Computing, spark: SparkSession) -> set[int]:
    """What the helper says in tasks."""
    rows = spark.range(2, numPartitions=2).selectExpr("id AS number", "X'00' AS hash")
    transform = made.declarations.transforms["telling"]
    return {row["block_number"] for row in transform.apply(spark, [rows]).collect()}


@pytest.mark.everywhere
def test_a_module_that_changed_is_refused_by_the_session_that_has_it_and_sent_to_the_next(
    spark: SparkSession, tmp_path: Path, stays: Path, forgetting: None
) -> None:
    file = telling(tmp_path, stays, 1)
    assert said(prepared(file, spark), spark) == {1}
    assert said(prepared(file, spark), spark) == {1}, "equal code is sent once"
    telling(tmp_path, stays, 2)
    with pytest.raises(errors.CodeNotSent, match="`told` has changed since it was sent"):
        prepared(file, spark)
    if sparks.WHERE.startswith("sc://"):
        # The server is the same, and so are its processes.
        for name in ("telling", "told"):
            del sys.modules[name]
        another = SparkSession.builder.remote(sparks.WHERE).create()
        assert said(prepared(file, another), another) == {2}
        another.stop()
