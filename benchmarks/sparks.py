"""Owns what benchmarks of Spark share: a session on two cores, and a chain that it can read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from pyspark.sql import DataFrame, SparkSession

from unfork.config import tree
from unfork.database.embedded import Embedded
from unfork.jobs import session

#: The chain's name.
CHAIN = "bench"
#: Cores that Spark has, and connections that its peers have.
CORES = 2


@contextmanager
def opened(folder: Path) -> Iterator[SparkSession]:
    """A lean Spark of our own."""
    spark = tree.Spark(master=f"local[{CORES}]", driver_memory="1g")
    with session.opened(tree.Config(data_dir=str(folder), spark=spark)) as opened:
        yield opened


@contextmanager
def folders() -> Iterator[Path]:
    """A folder that goes with the benchmark."""
    with tempfile.TemporaryDirectory(prefix="unfork-bench-") as folder:
        yield Path(folder)


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """The embedded server with its default settings; its DSN."""
    server = Embedded(folder / "postgres")
    try:
        yield server.start()
    finally:
        server.stop()


def written(folder: Path, dsn: str) -> Path:
    """The configuration by which tasks find the database."""
    document = {
        "data_dir": str(folder),
        "payloads": {"store": f"file:{folder}/payloads"},
        "database": {"raw_url": dsn},
        "chains": [{"name": CHAIN}],
    }
    file = folder / "unfork.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def drain(frame: DataFrame) -> None:
    """Computes every row and drops it."""
    frame.write.format("noop").mode("overwrite").save()
