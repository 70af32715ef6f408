"""Owns the fixtures of pytest with which people test their jobs.

    # conftest.py, beside unfork.yaml
    pytest_plugins = ("unfork.testing.plugin",)

Spark and Postgres are started once a test run, when the first test asks for them, and end with it.
A project that has a Spark or a Postgres of its own for tests overrides `unfork_spark` (a session of
`unfork.jobs.session.opened`) or `unfork_postgres` (a URL).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unfork.config import load, tree
from unfork.database.embedded import LEAN, Embedded
from unfork.jobs import session
from unfork.testing.engine import Engine, SparkJob

#: Nothing of a test's database is to outlive it.
SETTINGS = {**LEAN, "fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


@pytest.fixture(scope="session")
def unfork_folder() -> Iterator[Path]:
    """A folder for everything that the fixtures make; its path is short, as sockets need it."""
    folder = Path(tempfile.mkdtemp(prefix="unfork-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def unfork_spark(unfork_folder: Path) -> Iterator[SparkSession]:
    """The one Spark of the test run."""
    config = tree.Config(
        data_dir=str(unfork_folder), spark=tree.Spark(master="local[2]", driver_memory="768m")
    )
    with session.opened(config, name="tests") as spark:
        yield spark


@pytest.fixture(scope="session")
def unfork_postgres(unfork_folder: Path) -> Iterator[str]:
    """The URL of the one Postgres of the test run."""
    embedded = Embedded(unfork_folder / "postgres", settings=SETTINGS)
    url = embedded.start()
    yield url
    embedded.stop()


@pytest.fixture(scope="session")
def unfork_engine(unfork_spark: SparkSession, unfork_postgres: str, unfork_folder: Path) -> Engine:
    """What jobs are run on."""
    return Engine(spark=unfork_spark, url=unfork_postgres, folder=unfork_folder / "runs")


@pytest.fixture
def spark_job(request: pytest.FixtureRequest, unfork_engine: Engine) -> SparkJob:
    """Runs a job of the unfork.yaml beside the test, or above it, over a drawn chain."""
    file = load.find(request.path.parent)
    if file is None:
        pytest.fail(f"there is no unfork.yaml in {request.path.parent} or above it")
    return SparkJob(unfork_engine, file)
