"""Goal: what works on a Spark of our own works over Spark Connect and on a cluster, unchanged.

Method: the tests marked `everywhere` run again, in a process of their own, against a Connect server
and against a standalone master with two workers. Neither has unfork: our code is sent to them. With
all other tests only some of them run, one of each kind; `make everywhere` runs them all.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests import sparks
from tests.spark import servers
from unfork.jobs import package

ROOT = Path(__file__).parents[2]

#: The tests that run with all others: reading, staging, transforms, and where our code comes from.
SOME = "through_a_fork or filters_and_columns or committed_as or dies or our_code or hostile"
IS_ALL = os.environ.get("UNFORK_TEST_EVERYWHERE") == "all"

here = pytest.mark.skipif(bool(sparks.WHERE), reason="this is the other place already")


@here
@pytest.mark.parametrize("server", [servers.connect_server, servers.cluster])
def test_the_same_tests_pass(
    server: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with server(tmp_path) as url:
        passed = run_again("tests/spark", url)
    assert passed > (20 if IS_ALL else 7)


@here
@pytest.mark.skipif(not IS_ALL, reason="make everywhere runs it")
def test_a_stream_over_connect_needs_a_server_that_has_our_code(tmp_path: Path) -> None:
    with servers.connect_server(tmp_path, installed=package.root()) as url:
        passed = run_again("tests/spark/test_stream.py", url, UNFORK_TEST_INSTALLED="1")
    assert passed == 1


def run_again(tests: str, url: str, **environment: str) -> int:
    """Runs the tests that are meant for everywhere in another place; returns how many passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "everywhere", tests]
    said = subprocess.run(
        command if IS_ALL else [*command, "-k", SOME],
        cwd=ROOT,
        env={**os.environ, "UNFORK_TEST_SPARK": url, **environment},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stdout[-5000:] + said.stderr[-5000:]
    found = re.match(r"(\d+) passed", said.stdout.splitlines()[-1])
    assert found is not None, said.stdout
    return int(found.group(1))


@pytest.mark.everywhere
@pytest.mark.skipif(not sparks.WHERE, reason="here the code is where it was written")
def test_our_code_runs_from_the_file_that_was_sent(spark: SparkSession) -> None:
    def where(batches: Iterator[object]) -> Iterator[object]:
        import pyarrow

        import unfork

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"file": [unfork.__file__]})

    found = spark.range(4, numPartitions=2).mapInArrow(where, "file string").distinct().collect()
    assert found and all(".zip/unfork/__init__.py" in row["file"] for row in found)
