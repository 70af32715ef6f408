"""Owns what benchmarks of Spark share: a session on two cores, and a chain that it can read."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import yaml
from pyspark.sql import DataFrame, SparkSession

from unfork import wiring_jobs
from unfork.config import tree
from unfork.config.load import Loaded
from unfork.jobs import catalog, session
from unfork.wiring_jobs import Computing

#: The chain's name.
CHAIN = "bench"
#: Cores that Spark has, and connections that its peers have.
CORES = 2


#: The session that is shared, where one is.
_shared: list[SparkSession] = []


@contextmanager
def opened(folder: Path) -> Iterator[SparkSession]:
    """A lean Spark of our own, or the one that is shared."""
    if _shared:
        yield _shared[0]
        return
    spark = tree.Spark(master=f"local[{CORES}]", driver_memory="1g")
    with session.opened(tree.Config(data_dir=str(folder), spark=spark)) as opened:
        yield opened


@contextmanager
def shared() -> Iterator[None]:
    """Everything that asks for a Spark meanwhile gets the same: quick runs measure nothing."""
    with folders() as folder, opened(folder) as spark:
        _shared.append(spark)
        try:
            yield
        finally:
            _shared.clear()


@asynccontextmanager
async def computing(loaded: Loaded) -> AsyncIterator[Computing]:
    """What a worker computes with: as users get it, or on the Spark that is shared."""
    if _shared:
        yield wiring_jobs.prepared(loaded, catalog.read(loaded), _shared[0])
        return
    async with wiring_jobs.computing(loaded) as made:
        yield made


@contextmanager
def folders() -> Iterator[Path]:
    """A folder that goes with the benchmark."""
    with tempfile.TemporaryDirectory(prefix="unfork-bench-") as folder:
        yield Path(folder)


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
