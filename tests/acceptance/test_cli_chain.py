"""Goal: the stable surface does what docs/cli.md and docs/errors.md promise, exit codes included.

Method: the real command against real devnets and a real Postgres. The devnets stand still at a
known length, so that what must be stored is known too; a second one with another seed plays a node
that serves another chain.
"""

from __future__ import annotations

import itertools
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.acceptance.process import PATIENCE_S, answer, background, devnet, eventually, unfork
from tests.places import Server

BLOCKS = 200
NAMES = itertools.count()

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node whose chain has BLOCKS blocks or a few more, and a floor."""
    with _standing(tmp_path_factory.mktemp("node"), seed=1) as url:
        yield url


@pytest.fixture(scope="module")
def other_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of another chain with the same id."""
    with _standing(tmp_path_factory.mktemp("other"), seed=2) as url:
        yield url


def _standing(folder: Path, *, seed: int) -> Any:
    return _Standing(folder, seed)


class _Standing:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chain = ("--seed", str(seed), "--blocks", str(BLOCKS), "--block-time-ms", "0")
        self.devnet = devnet(folder, *self.chain)

    def __enter__(self) -> str:
        return str(self.devnet.__enter__()["http"])

    def __exit__(self, *error: Any) -> None:
        self.devnet.__exit__(*error)


@contextmanager
def foreign(chain_id: int) -> Iterator[str]:
    """A node of another chain, as far as it can be asked for its number."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said = {"jsonrpc": "2.0", "id": asked["id"], "result": hex(chain_id)}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class Store:
    """One chain in one database, as commands reach it."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.name = f"accepted_{next(NAMES)}"
        self.flags = ("--chain", self.name, "--db", dsn)

    def ingest(self, source: str, *more: str, code: int = 0, **env: str) -> dict[str, Any]:
        flags = ("--source", source, *self.flags, *more)
        return answer(self.folder, "ingest", *flags, code=code, env=env)

    def ask(self, command: str, *more: str, code: int = 0) -> dict[str, Any]:
        return answer(self.folder, command, *self.flags, *more, code=code)

    def status(self) -> dict[str, Any]:
        (only,) = self.ask("status")["chains"]
        assert isinstance(only, dict)
        del only["bytes"]  # Vacuum moves it.
        return only


@pytest.fixture
def store(tmp_path: Path, postgres: Server) -> Store:
    return Store(tmp_path, postgres.dsn)


def test_ingest_ends_at_its_block_and_every_command_agrees_on_what_is_stored(
    store: Store, node: str
) -> None:
    ended = store.ingest(node, "--until-block", str(BLOCKS))
    assert ended["reason"] == "until_block"
    assert ended["position"]["number"] == BLOCKS
    assert ended["blocks"] == ended["position"]["number"] + 1

    status = store.status()
    assert status["status"] == "at rest" and status["writer"] is None
    assert status["position"] == ended["position"]
    assert status["floor"]["number"] == status["head"]["number"] - 80
    assert status["confirmed"] == status["position"]["number"] - 12
    assert (status["first"], status["epoch"], status["errors"]["open"]) == (0, 1, 0)

    report = store.ask("verify")
    (chain,) = report["chains"]
    assert report["ok"] is True and chain["blocks"] == ended["blocks"]
    assert chain["checks"]["header_hash"]["proven"] == ended["blocks"]
    part = store.ask("verify", "--from", "10", "--to", "19")["chains"][0]
    assert (part["blocks"], part["span"]) == (10, [10, 19])

    sizes = store.ask("partitions")["partitions"]
    assert {size["table"] for size in sizes} >= {"blocks", "transactions", "logs"}
    held = next(size for size in sizes if size["table"] == "logs")
    assert held["span"] == {"first": 0, "last": 499_999}
    assert held["bytes_when_full"] > held["bytes"] > 50_000
    assert store.ask("migrate")["chains"] == {store.name: []}


def test_ingest_goes_on_where_it_stopped_also_without_saying_from(store: Store, node: str) -> None:
    first = store.ingest(node, "--from", "50", "--until-block", "60")
    assert first["position"]["number"] == 60
    again = store.ingest(node, "--until-idle", "0.3")
    assert again["reason"] == "until_idle"
    assert first["blocks"] + again["blocks"] == again["position"]["number"] - 49
    refused = store.ingest(node, "--from", "40", code=2)
    assert refused["error"]["code"] == "E103"
    assert store.status()["first"] == 50


def test_unwind_shows_asks_and_then_removes_and_ingest_brings_it_back(
    store: Store, node: str
) -> None:
    before = store.ingest(node, "--until-idle", "0.3")
    shown = unfork(store.folder, "unwind", *store.flags, "--to", "100")
    assert shown.returncode == 1
    assert f"{before['position']['number'] - 100:,} blocks go" in shown.stdout
    assert "final blocks are among them" in shown.stdout
    assert store.status()["position"] == before["position"]

    done = store.ask("unwind", "--to", "100", "--yes")
    assert done["done"] is True and done["after"]["number"] == 100 and done["epoch"] == 2
    assert done["rows"]["blocks"] == before["position"]["number"] - 100
    assert store.status()["position"]["number"] == 100
    assert store.ask("unwind", "--to", "100", "--yes")["done"] is False

    store.ingest(node, "--until-idle", "0.3")
    assert store.status()["position"] == before["position"]
    assert store.ask("verify")["ok"] is True


def test_endpoints_of_two_chains_are_refused_with_2_and_nothing_is_changed(
    store: Store, node: str
) -> None:
    store.ingest(node, "--until-block", "20")
    before = store.status()
    with foreign(5) as other:
        both = store.ingest(node, "--source", other, code=2)
        alone = store.ingest(other, code=2)
    for refused in (both, alone):
        assert refused["error"]["code"] == "E102"
        assert "5" in refused["error"]["message"] and "1337" in refused["error"]["message"]
    assert store.status() == before


def test_ingestion_does_not_wait_for_the_database_of_derived_data(
    store: Store, node: str, postgres: Server
) -> None:
    urls = {"DB_RAW_URL": postgres.dsn, "DB_APP_URL": "postgresql://127.0.0.1:1/away"}
    flags = ("--chain", store.name, "--source", node, "--until-block", "20")
    ended = answer(store.folder, "ingest", *flags, env=urls)
    assert ended["position"]["number"] == 20


def test_payloads_are_not_called_damaged_from_another_folder(
    store: Store, node: str, tmp_path: Path
) -> None:
    store.ingest(node, "--until-block", "60", PAYLOAD_INLINE_MAX_BYTES="100")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for command in ("verify", "repair"):
        refused = answer(elsewhere, command, *store.flags, code=2)
        assert refused["error"]["code"] == "E108"
    assert store.ask("verify")["ok"] is True


def test_a_source_that_contradicts_the_floor_halts_with_3_and_nothing_is_changed(
    store: Store, node: str, other_node: str
) -> None:
    store.ingest(node, "--until-idle", "0.3")
    before = store.status()
    halted = store.ingest(other_node, code=3)
    assert halted["error"]["code"] == "E301"
    assert "unfork unwind --to" in halted["error"]["message"]
    assert store.status() == before


def test_a_fork_deeper_than_the_limit_halts_with_4_and_nothing_is_changed(
    store: Store, tmp_path: Path
) -> None:
    still = ("--blocks", "20", "--block-time-ms", "0")
    with devnet(tmp_path, "--seed", "1", *still) as ours:
        store.ingest(ours["http"], "--until-block", "20")
    before = store.status()
    assert before["floor"] is None
    with devnet(tmp_path, "--seed", "2", *still) as theirs:
        halted = store.ingest(theirs["http"], code=4, MAX_REORG_DEPTH="7")
    assert halted["error"]["code"] == "E302"
    assert store.status() == before


def test_a_second_writer_is_refused_with_5_and_the_first_ends_cleanly(
    store: Store, node: str
) -> None:
    with background(store.folder, "ingest", *store.flags, "--source", node) as first:
        eventually(lambda: store.status()["status"] == "written")
        assert store.ingest(node, code=5)["error"]["code"] == "E303"
        assert store.ask("reset", "--yes", code=5)["error"]["code"] == "E303"
        first.send_signal(signal.SIGTERM)
        assert first.wait(PATIENCE_S) == 0
    assert store.status()["status"] == "at rest"
    assert store.ask("verify")["ok"] is True


def test_a_source_that_is_away_is_waited_for_until_told_to_stop(store: Store) -> None:
    flags = (*store.flags, "--source", "http://127.0.0.1:1", "--until-idle", "0.1")
    with background(store.folder, "ingest", *flags) as waiting:
        eventually(lambda: store.status()["status"] == "written")
        assert waiting.poll() is None
        waiting.send_signal(signal.SIGINT)
        assert waiting.wait(PATIENCE_S) == 0


def test_a_database_that_is_away_is_reported_with_7_and_without_its_password(
    tmp_path: Path,
) -> None:
    url = "postgresql://user:hunter2@127.0.0.1:1/db"
    said = unfork(tmp_path, "status", "--chain", "a", "--db", url)
    assert said.returncode == 7
    assert "error E401" in said.stderr
    assert "hunter2" not in said.stdout + said.stderr


def test_commands_on_what_was_never_stored_say_so(store: Store, tmp_path: Path) -> None:
    assert store.status()["status"] == "not migrated"
    assert store.ask("verify", code=2)["error"]["code"] == "E104"
    assert store.ask("unwind", "--to", "5", "--yes", code=2)["error"]["code"] == "E104"
    assert len(store.ask("migrate")["chains"][store.name]) >= 2
    assert store.status()["status"] == "empty"
    nowhere = answer(tmp_path, "status", code=2)
    assert "nothing is stored" in nowhere["error"]["message"]
    assert not (tmp_path / ".unfork").exists(), "looking makes nothing"


def test_a_command_that_was_told_no_chain_names_those_that_are_there(
    store: Store, node: str
) -> None:
    (store.folder / "unfork.yaml").write_text("chains: [{name: never_stored}]")
    said = unfork(store.folder, "ingest", "--source", node, *store.flags, "--until-block", "20")
    assert said.returncode == 0
    assert f"chain {store.name} is not listed beside never_stored" in said.stdout
    for command in (["verify"], ["partitions"], ["repair"], ["unwind", "--to", "5"]):
        error = answer(store.folder, *command, *store.flags[2:], code=2)["error"]
        assert error["message"].startswith("nothing is stored of never_stored; say --chain")
        assert store.name in error["message"]
    error = store.ask("partitions", code=2)["error"]
    assert error["message"].endswith("list it under `chains:` first")


def test_repair_reports_asks_and_then_mends(store: Store, node: str, postgres: Server) -> None:
    store.ingest(node, "--until-block", "30")
    assert store.ask("repair")["findings"] == []
    with psycopg.connect(postgres.dsn) as connection:
        schema = sql.Identifier(f"{store.name}_raw")
        query = sql.SQL("DELETE FROM {}.tx_lookup WHERE block_number = 7").format(schema)
        assert connection.execute(query).rowcount > 0
    reported = store.ask("repair", code=1)
    assert [finding["kind"] for finding in reported["findings"]] == ["lookup_missing"]
    assert reported["findings"][0]["block_number"] == 7
    shown = unfork(store.folder, "repair", *store.flags, "--mend")
    assert shown.returncode == 1
    assert "lookup_missing" in shown.stdout and "nothing was changed" in shown.stdout
    assert store.ask("verify", code=1)["ok"] is False
    mended = store.ask("repair", "--mend", "--yes")
    assert mended["ok"] is True and mended["findings"][0]["is_mended"] is True
    assert store.ask("verify")["ok"] is True


def test_reset_shows_asks_and_then_forgets_one_chain(store: Store, node: str) -> None:
    store.ingest(node, "--until-block", "20")
    shown = unfork(store.folder, "reset", *store.flags)
    assert shown.returncode == 1
    assert f"schemas {store.name}_raw and {store.name}_app go" in shown.stdout
    assert store.status()["position"] is not None
    assert store.ask("reset", "--yes")["done"] is True
    assert store.status()["status"] == "empty"
    store.ingest(node, "--from", "5", "--until-block", "20")
    assert store.status()["first"] == 5


def test_flags_that_exclude_each_other_or_name_no_chain_are_refused(store: Store) -> None:
    both = ("--until-idle", "1", "--until-block", "1")
    assert unfork(store.folder, "ingest", *store.flags, *both).returncode == 2
    assert unfork(store.folder, "ingest").returncode == 2
    none = answer(store.folder, "ingest", *store.flags, "--until-idle", "1", code=2)
    assert "--source" in none["error"]["message"]
    (store.folder / "unfork.yaml").write_text("chains: [{name: ethereum}]")
    error = answer(store.folder, "status", "--chain", "etherum", code=2)["error"]
    assert error["message"] == "--chain: no chain is called `etherum`; did you mean `ethereum`?"


def test_repair_fetches_a_payload_that_is_gone_from_the_source(store: Store, node: str) -> None:
    store.ingest(node, "--until-block", "30", PAYLOAD_INLINE_MAX_BYTES="64")
    blobs = [path for path in (store.folder / ".unfork" / "payloads").rglob("*") if path.is_file()]
    payloads = [path for path in blobs if len(path.name) == 64]
    payloads[0].unlink()
    (found,) = store.ask("repair", code=1)["findings"]
    assert (found["kind"], found["is_mended"]) == ("payload_missing", False)
    (left,) = store.ask("repair", "--mend", "--yes", code=1)["findings"]
    assert left["is_mended"] is False, "no source is configured"
    urls = {f"UNFORK_CHAINS__{store.name.upper()}__SOURCE__URLS": node}
    mended = answer(store.folder, "repair", *store.flags, "--mend", "--yes", env=urls)
    assert mended["ok"] is True and mended["findings"][0]["is_mended"] is True
    assert payloads[0].is_file()
    assert store.ask("repair")["findings"] == []
