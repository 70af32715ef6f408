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

#: The tests that run with all others, one for each thing that is done in another way elsewhere:
#: where our code and a project's comes from, runs of the real engine, reading one state of a
#: database, staging, a task that is run again.
SOME = (
    "test_everywhere.py::test_our_code_runs_from_the_file_that_was_sent",
    "test_project.py::test_a_projects_own_modules_run_where_tasks_run",
    "test_project.py::test_a_module_that_changed_is_refused_by_the_session_that_has_it_and_sent_to_"
    "the_next",
    "test_source.py::test_all_reads_of_a_run_see_the_chain_of_its_snapshot_through_a_fork",
    "test_sink.py::test_what_tasks_stage_is_committed_as_what_the_driver_has[moves]",
    "test_sink.py::test_a_task_that_dies_after_its_copy_is_run_again_and_counted_once",
)
IS_ALL = os.environ.get("UNFORK_TEST_EVERYWHERE") == "all"

here = pytest.mark.skipif(bool(sparks.WHERE), reason="this is the other place already")


@here
@pytest.mark.parametrize("server", [servers.connect_server, servers.cluster])
def test_the_same_tests_pass(
    server: Callable[[Path], AbstractContextManager[str]], tmp_path: Path
) -> None:
    with server(tmp_path) as url:
        if IS_ALL:
            assert run_again(url, "tests/spark") > 20
        else:
            passed = run_again(url, *(f"tests/spark/{name}" for name in SOME))
            # Only a cluster runs a task again.
            assert passed == len(SOME) - (0 if url.startswith("spark:") else 1)


@here
@pytest.mark.skipif(not IS_ALL, reason="make everywhere runs it")
def test_a_stream_over_connect_needs_a_server_that_has_our_code(tmp_path: Path) -> None:
    with servers.connect_server(tmp_path, installed=package.root()) as url:
        passed = run_again(url, "tests/spark/test_stream.py", UNFORK_TEST_INSTALLED="1")
    assert passed == 1


def run_again(url: str, *tests: str, **environment: str) -> int:
    """Runs the tests that are meant for everywhere in another place; returns how many passed."""
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-m", "everywhere", *tests],
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
