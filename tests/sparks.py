"""Spark for tests: one session a test run, on whatever Spark the environment names.

`UNFORK_TEST_SPARK` is empty for a Spark of our own on this machine, a cluster's URL (spark://…) or
that of a Connect server (sc://…): the same tests run on each. `UNFORK_TEST_INSTALLED` says that it
has our code by itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pyspark.sql import DataFrame, SparkSession

from tests.places import Place
from unfork.config import tree
from unfork.jobs.spark import reading
from unfork.jobs.spark.options import parse
from unfork.jobs.spark.reading import Reading

#: Which Spark the tests run on.
WHERE = os.environ.get("UNFORK_TEST_SPARK", "")
#: Whether that Spark has our code already.
IS_INSTALLED = bool(os.environ.get("UNFORK_TEST_INSTALLED"))


def config(folder: Path) -> tree.Config:
    """A configuration for a lean Spark of the kind that the environment names."""
    settings: dict[str, Any] = {"driver_memory": "768m", "read_tasks": 2}
    settings["ship_code"] = not IS_INSTALLED
    if WHERE.startswith("sc://"):
        settings["remote"] = WHERE
    else:
        settings["master"] = WHERE or "local[2]"
    if WHERE.startswith("spark://"):
        settings["conf"] = {"spark.executor.memory": "512m", "spark.executor.cores": "1"}
    return tree.Config(data_dir=str(folder), spark=tree.Spark(**settings))


@dataclass
class Chain:
    """The chain of a place, for reading with Spark: known to executors by a configuration file."""

    spark: SparkSession
    place: Place
    file: Path

    def read(self, dataset: str, **options: object) -> DataFrame:
        """A dataset as a DataFrame."""
        return self._with(self.spark.read.format("unfork"), dataset, options).load()

    def stream(self, dataset: str, name: str, **options: object) -> DataFrame:
        """The changes of a dataset as a streaming DataFrame."""
        given = {"stream": name, **options}
        return self._with(self.spark.readStream.format("unfork"), dataset, given).load()

    def _with(self, reader: Any, dataset: str, options: dict[str, object]) -> Any:
        named = {"dataset": dataset, "chain": self.place.name, "config": str(self.file), **options}
        return reader.options(**{key: str(value) for key, value in named.items()})


@dataclass
class Near:
    """The same chain, read in this process: what a task does, without the time that Spark takes."""

    place: Place
    file: Path

    def read(self, dataset: str, **options: object) -> Reading:
        """A reading of a dataset, as Spark would have it made."""
        named = {"dataset": dataset, "chain": self.place.name, "config": str(self.file), **options}
        return reading.resolve(parse({key: str(value) for key, value in named.items()}))


def near(place: Place) -> Near:
    """The chain of a place, for reading in this process."""
    return Near(place, written(place))


def chain(spark: SparkSession, place: Place) -> Chain:
    """The chain of a place, for reading with Spark."""
    return Chain(spark, place, written(place))


def written(place: Place) -> Path:
    """Writes the configuration of a place beside its files."""
    place.folder.mkdir(parents=True, exist_ok=True)
    document = {
        "data_dir": str(place.folder),
        "payloads": {"store": f"file:{place.folder}/spark-payloads"},
        "database": {"raw_url": place.dsn, "app_url": place.app_dsn or place.dsn},
        "chains": [{"name": place.name}],
    }
    file = place.folder / "unfork.yaml"
    file.write_text(yaml.safe_dump(document))
    # The payload store of a place is one folder; a configuration has one below its root a chain.
    payloads = place.folder / "spark-payloads" / place.name
    payloads.parent.mkdir(exist_ok=True)
    if not payloads.is_symlink():
        payloads.symlink_to(place.folder / "payloads")
    return file
