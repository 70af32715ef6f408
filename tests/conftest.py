"""Real Postgres for tests: an embedded 18, and the machine's own 15 or newer where there is one.

Each xdist worker has servers of its own, in a temporary folder, without fsync: they end with the
tests. `postgres` is the embedded server; `any_postgres` runs a test once per server. A `Place` is
a chain with migrated schemas; places are used again after a wipe, because making schemas is slow.

`spark` is one Spark for the whole run: every test that uses it goes to the same xdist worker. Every
Java of the run compiles quickly rather than well: none lives for as long as the other would pay.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.places import OLDEST, SETTINGS, Place, Server, machine_binaries, version_of
from unfork.database.embedded import Embedded

pytest_plugins = ("unfork.testing.plugin",)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.sparks import Chain, Near

os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps the tests that need Spark together, so that it is started once.

    First of all hooks, for xdist looks at the groups in the same one.
    """
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture
def own_log() -> Iterator[logging.Logger]:
    """The logger above all of ours, for tests that configure it: put back as it was.

    A command sends what unfork says to its own standard error; the tests that come after one in
    the same process would have their words sent there too.
    """
    log = logging.getLogger("unfork")
    handlers, level, propagates = list(log.handlers), log.level, log.propagate
    yield log
    log.handlers[:] = handlers
    log.setLevel(level)
    log.propagate = propagates


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Server]]:
    """Starts each server once, when the first test asks for it."""
    root = Path(tempfile.mkdtemp(prefix="unfork-tests-"))
    running: dict[str, tuple[Embedded, Server]] = {}

    def get(which: str) -> Server:
        if which not in running:
            binaries = machine_binaries() if which == "machine" else None
            if which == "machine" and binaries is None:
                pytest.skip(f"no Postgres {OLDEST} or newer on this machine (postgres, pg_ctl)")
            embedded = Embedded(root / which, binaries=binaries, settings=SETTINGS)
            version = version_of(embedded.binaries / "postgres")
            server = Server(embedded.start(), version, root / f"{which}-files")
            running[which] = (embedded, server)
        return running[which][1]

    yield get
    for embedded, _ in running.values():
        embedded.stop()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres(servers: Callable[[str], Server]) -> Server:
    """The embedded server."""
    return servers("embedded")


@pytest.fixture(scope="session")
def other_postgres(servers: Callable[[str], Server]) -> Server:
    """Another server than the embedded one: the machine's own, else a second embedded one."""
    return servers("second" if machine_binaries() is None else "machine")


@pytest.fixture(scope="session", params=["embedded", "machine"])
def any_postgres(request: pytest.FixtureRequest, servers: Callable[[str], Server]) -> Server:
    """Each server in turn: the embedded one, then the machine's."""
    return servers(request.param)


@pytest.fixture
async def place(postgres: Server) -> AsyncIterator[Place]:
    """A chain with empty schemas in the embedded server."""
    place = await postgres.place()
    yield place
    await place.wipe()
    postgres.free.append(place)


@pytest.fixture
async def any_place(any_postgres: Server) -> AsyncIterator[Place]:
    """A chain with empty schemas, in each server in turn."""
    place = await any_postgres.place()
    yield place
    await place.wipe()
    any_postgres.free.append(place)


@pytest.fixture
async def fresh_place(any_postgres: Server) -> AsyncIterator[Place]:
    """A chain whose schemas a test may change as it likes, in each server in turn."""
    place = await any_postgres.fresh()
    yield place
    await place.close()
    await place.rows("DROP SCHEMA IF EXISTS {raw} CASCADE; DROP SCHEMA IF EXISTS {app} CASCADE")


@pytest.fixture
async def split_place(postgres: Server, other_postgres: Server) -> AsyncIterator[Place]:
    """A chain with empty schemas, raw in the embedded server and app in another."""
    name = f"split{next(postgres.numbers)}"
    place = Place(postgres.dsn, name, postgres.folder / name, app_dsn=other_postgres.dsn)
    await place.migrate()
    yield place
    await place.close()


@pytest.fixture
def own_server() -> Iterator[Embedded]:
    """A server for one test alone, which may stop, freeze or kill it; not started yet."""
    root = Path(tempfile.mkdtemp(prefix="unfork-tests-"))
    embedded = Embedded(root / "own", settings=SETTINGS)
    yield embedded
    embedded.stop()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark of the run; made only where a test asks for it."""
    from tests import sparks
    from unfork.jobs import session

    with session.opened(sparks.config(tmp_path_factory.mktemp("spark"))) as spark:
        yield spark


@pytest.fixture
def chain(spark: SparkSession, place: Place) -> Chain:
    """An empty chain in the embedded server, for reading with Spark."""
    from tests import sparks

    return sparks.chain(spark, place)


@pytest.fixture
def near(place: Place) -> Near:
    """An empty chain in the embedded server, for reading as a task of Spark does, without Spark."""
    from tests import sparks

    return sparks.near(place)


@pytest.fixture(scope="session")
def unfork_spark(spark: SparkSession) -> SparkSession:
    """The fixtures that we ship use the Spark that there is."""
    return spark


@pytest.fixture(scope="session")
def unfork_postgres(postgres: Server) -> str:
    """The same of Postgres."""
    return postgres.dsn
