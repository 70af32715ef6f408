"""Spark servers for tests, started from the pip package alone: a Connect server, and a cluster.

Each is a process group of its own that ends with its context. They import nothing of unfork by
themselves: what a test needs of it has to be sent, unless a server is told where it is installed.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from unfork.jobs import java

#: Seconds a server may take to say that it is there.
START_S = 120

HOME = Path(pyspark.__file__).parent


@contextmanager
def connect_server(folder: Path, *, installed: Path | None = None) -> Iterator[str]:
    """A Spark Connect server on this machine; its URL."""
    settings = {
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
    }
    command = ["bin/spark-submit", "--master", "local[2]", "--name", "tests"]
    command += [part for item in settings.items() for part in ("--conf", "=".join(item))]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += ["spark-internal"]
    sign = r"server started at.*:(\d+)"
    with _started(command, folder, sign, memory="768m", installed=installed) as port:
        yield f"sc://127.0.0.1:{port()}"


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone master and two workers on this machine; the master's URL."""
    deploy = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    master = ["bin/spark-class", f"{deploy}.master.Master", *here, "--port", "0"]
    worker = ["bin/spark-class", f"{deploy}.worker.Worker", *here, "--cores", "1"]
    with ExitStack() as stack:
        started = stack.enter_context(_started(master, folder, r"Spark master at (spark://\S+)"))
        url = started()
        workers = [
            stack.enter_context(
                _started(
                    [*worker, "--memory", "700m", "--work-dir", str(folder / f"work{number}"), url],
                    folder,
                    r"Successfully (registered) with master",
                )
            )
            for number in range(2)
        ]
        for registered in workers:
            registered()
        yield url


@contextmanager
def _started(
    command: Sequence[str],
    folder: Path,
    sign: str,
    *,
    memory: str = "256m",
    installed: Path | None = None,
) -> Iterator[Callable[[], str]]:
    """A server; what is called waits until it has printed a line with the sign, and returns what
    the sign's group matched."""
    home = java.home(java.find(), folder / "java")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "JAVA_HOME": str(home),
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
        "SPARK_DAEMON_MEMORY": memory,
        "PYSPARK_PYTHON": sys.executable,
    }
    if installed is not None:
        environment["PYTHONPATH"] = str(installed)
    process = subprocess.Popen(
        [str(HOME / command[0]), *command[1:]],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said: list[str] = []
    found: list[str] = []
    there = threading.Event()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            match = re.search(sign, line)
            if match and not found:
                found.append(match.group(1))
                there.set()
        there.set()

    def wait() -> str:
        there.wait(START_S)
        assert found, "".join(said[-50:])
        return found[0]

    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    try:
        yield wait
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        thread.join()
        assert process.stdout is not None
        process.stdout.close()
