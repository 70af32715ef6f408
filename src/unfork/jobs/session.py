"""Owns the Spark session: the one place that opens Spark, from the configuration alone.

Everything else receives the session and stays inside the DataFrame and SQL API, which works in the
same way on a Spark of our own, on a cluster and over Spark Connect. The settings are lean: chains
are followed with many small queries, where Spark's defaults for large ones cost most of the time.

Invariants: arithmetic that overflows is an error, never a wrong number (ANSI); moments are UTC
everywhere; no task is ever run twice at once (no speculation), because tasks write.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from unfork import errors, telemetry
from unfork.config import tree
from unfork.jobs import java, package
from unfork.jobs.spark.source import UnforkSource

log = telemetry.logger(__name__)

#: What answers depend on, wherever Spark runs.
ALWAYS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # What Spark writes by itself, no other engine reads as a moment.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

#: What only the one who starts Spark can say. Each was measured: most of the latency of a small
#: query goes with the partitions of a shuffle, most of the memory with the collector.
STARTING = {
    "spark.scheduler.mode": "FAIR",
    "spark.speculation": "false",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    # Whoever reads a column has asked for its length and for what is NULL in it; asking again for
    # every value is an eighth of the time in which Java takes rows from Python.
    "spark.driver.extraJavaOptions": (
        "-XX:+UseSerialGC"
        " -Darrow.enable_unsafe_memory_access=true"
        " -Darrow.enable_null_check_for_get=false"
    ),
}

#: The property of a thread that names the pool of its jobs.
POOL = "spark.scheduler.pool"

#: Where a Connect server listens when its URL does not say, and how long it may take to open up.
CONNECT_PORT, CONNECT_TIMEOUT_S = 15002, 10.0

#: What a Spark that lives in this machine alone needs beside.
LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Rows from Python need not go through the network.
    "spark.python.unix.domain.socket.enabled": "true",
}


@contextmanager
def opened(config: tree.Config, *, name: str = "unfork") -> Iterator[SparkSession]:
    """A session that reads with `format("unfork")`; it ends, with all it started, at the exit.

    Raises ToolMissing without a Java, or without what Spark Connect needs; SparkUnavailable where
    Spark, its cluster or its server does not start or answer.
    """
    spark = _connected(config.spark) if config.spark.remote else _started(config, name)
    try:
        if config.spark.ship_code and not is_local(config.spark):
            package.send(spark, package.build(folder(config)))
        spark.dataSource.register(UnforkSource)
        yield spark
    finally:
        _end(spark, is_ours=not config.spark.remote)


@contextmanager
def running(spark: SparkSession, *, pool: str, tag: str) -> Iterator[None]:
    """Everything that this thread asks Spark for meanwhile is one run, which `tag` can end.

    Runs of one pool wait for each other, those of two share Spark. A Connect server has its own
    pools, by session.
    """
    context = SparkContext._active_spark_context if _is_classic(spark) else None
    if context is not None:
        context.setLocalProperty(POOL, pool)
    spark.addTag(tag)
    try:
        yield
    finally:
        spark.removeTag(tag)


def settings(config: tree.Spark) -> dict[str, str]:
    """Every setting of Spark that unfork makes, by name; what the configuration says wins."""
    made = {**ALWAYS}
    if not config.remote:
        made |= STARTING | {"spark.driver.memory": config.driver_memory}
    if is_local(config):
        made |= LOCAL
    return made | config.conf


def is_local(config: tree.Spark) -> bool:
    """Whether everything runs on this machine, in a Spark of our own."""
    return not config.remote and config.master.split("[")[0] == "local"


def folder(config: tree.Config) -> Path:
    """Where the files of Spark are that we make for it."""
    return Path(config.data_dir) / "spark"


def _is_classic(spark: SparkSession) -> bool:
    """Whether the driver's Java process is ours."""
    return type(spark).__module__ == "pyspark.sql.session"


def _started(config: tree.Config, name: str) -> SparkSession:
    """A Spark of our own, whose driver is a Java process that ends with us."""
    place = folder(config)
    place.mkdir(parents=True, exist_ok=True)
    # Java's own words and Spark's warnings belong into a file: the screen is the command's.
    home = java.home(java.find(), place / "java", log=place / "spark.log")
    # A program that Spark starts imports unfork from where we did.
    path = os.pathsep.join(filter(None, (str(package.root()), os.environ.get("PYTHONPATH"))))
    given = {"JAVA_HOME": str(home), "PYTHONPATH": path}
    if is_local(config.spark):
        given["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _quiet()
    builder = SparkSession.builder.master(config.spark.master).appName(name)
    for key, value in settings(config.spark).items():
        builder = builder.config(key, value)
    with _environment(given):
        try:
            return builder.getOrCreate()
        except Exception as error:
            raise errors.SparkUnavailable(
                f"Spark did not start on {config.spark.master}: {_first_line(error)}; "
                f"see {place / 'spark.log'}"
            ) from error


def _connected(config: tree.Spark) -> SparkSession:
    """A session of a Spark Connect server, which somebody else runs."""
    assert config.remote is not None
    _quiet()
    shown = telemetry.redact(config.remote)
    try:
        _knock(config.remote)
        spark = SparkSession.builder.remote(config.remote).getOrCreate()
        for key, value in settings(config).items():
            spark.conf.set(key, value)
    except ImportError as error:
        raise errors.ToolMissing(
            f"spark.remote needs packages that are not installed ({_first_line(error)}); "
            "pip install 'unfork[connect]'"
        ) from error
    except Exception as error:
        raise errors.SparkUnavailable(f"{shown} does not answer: {_first_line(error)}") from error
    return spark


def _knock(remote: str) -> None:
    """Raises OSError where nobody listens: the client itself would try for ten minutes."""
    parts = urlsplit(remote)
    address = (parts.hostname or "localhost", parts.port or CONNECT_PORT)
    with socket.create_connection(address, timeout=CONNECT_TIMEOUT_S):
        pass


def _end(spark: SparkSession, *, is_ours: bool) -> None:
    """Ends the session, and the Java process where it is ours."""
    try:
        spark.stop()
    except (PySparkException, OSError) as error:
        # What cannot be reached any more has ended already.
        telemetry.event(log, "spark_gone", error=_first_line(error))
    if is_ours:
        _end_java()


def _end_java() -> None:
    """Ends the Java process, which would otherwise live as long as we do; safe to repeat.

    This is the one thing that Spark has no public word for.
    """
    with SparkContext._lock:
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        # It ends by itself when its input does.
        process.stdin.close()
        process.wait()


@contextmanager
def _environment(given: dict[str, str]) -> Iterator[None]:
    """Sets variables for what is started meanwhile."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _quiet() -> None:
    """Errors reach the caller as exceptions; Spark need not print them as well."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
