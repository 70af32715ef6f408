"""Goal: `unfork up` needs nothing, survives its devnet's forks, proves what it stored, and goes on.

Method: the real command in an empty folder, with the embedded Postgres, run again and again; then
with two chains of which one has a source that is away. Whether a follower is there when its chain
forks is up to the machine; that a chain leaves the head that a run ended with is up to its seed.
"""

from __future__ import annotations

import json
import re
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.acceptance.process import PATIENCE_S, answer, background, devnet, eventually, unfork
from tests.places import Server
from unfork.config import tree
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.jobs.builtin import BUILTINS

pytestmark = pytest.mark.postgres


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may pass through: as root, the server runs as one of them.

    Those of pytest are closed to others again whenever another run of it begins.
    """
    with tempfile.TemporaryDirectory(prefix="unfork-") as made:
        yield Path(made)


PROJECT = """
devnet: {block_time_ms: 40, fork_rate: 0.3, seed: 3}
jobs: []
"""


def forked_away(project: str, *runs: int) -> list[bool]:
    """Of each head that `up --blocks` ends a run with: whether the next run ends on another fork.

    The follower held it, so it had to follow that fork, however late it came to look.
    """
    chain = Tree(Knobs.of(tree.Devnet(**yaml.safe_load(project)["devnet"])))
    found: list[bool] = []
    head = chain.head
    for blocks in runs:
        until = head.number + blocks
        while chain.head.number < until:
            chain.advance()
        found.append(not chain.is_canonical(head.hash))
        head = chain.head
    return found[1:]


def shapes(text: str) -> set[str]:
    """The lines of an output without what differs from run to run: numbers, depths, gaps."""
    bare = (re.sub(r" *\(.*\)", "", line) for line in text.splitlines())
    return {re.sub(r"[ \d,.-]+", " ", line).strip() for line in bare} - {""}


def readme_lines() -> set[str]:
    """The shapes of the lines that the README shows for `make run`."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    block = re.search(r"\$ make run\n(.*?)```", readme, flags=re.DOTALL)
    assert block is not None
    return shapes(block.group(1).replace("...\n", ""))


def test_up_follows_verifies_and_a_second_up_continues_the_same_chain(folder: Path) -> None:
    assert forked_away(PROJECT, 60, 20) == [True]
    (folder / "unfork.yaml").write_text(PROJECT)
    first = answer(folder, "up", "--blocks", "60")
    assert first["ok"] is True
    (chain,) = first["chains"]
    assert chain["position"]["number"] >= 60
    assert sum(first["forks_made"].values()) > 0
    (report,) = first["verified"]
    assert report["ok"] is True and report["blocks"] == chain["position"]["number"] + 1
    assert report["checks"]["receipts_root"]["proven"] == report["blocks"]

    second = answer(folder, "up", "--blocks", "20")
    assert second["ok"] is True
    (went_on,) = second["chains"]
    assert sum(went_on["forks"].values()) > 0, "forks were followed"
    status = answer(folder, "status")["chains"][0]
    assert status["position"] == went_on["position"]
    assert status["position"]["number"] >= chain["position"]["number"] + 20
    assert status["orphaned"]["forks"] > 0
    assert status["epoch"] == 1 and status["errors"]["open"] == 0

    other = (folder / "unfork.yaml").read_text().replace("seed: 3", "seed: 4")
    (folder / "unfork.yaml").write_text(other)
    refused = answer(folder, "up", "--blocks", "5", code=2)
    assert "unfork reset --chain devnet" in refused["error"]["message"]
    answer(folder, "reset", "--chain", "devnet", "--yes")
    assert answer(folder, "up", "--blocks", "5")["ok"] is True


def test_up_without_an_end_stops_cleanly_when_told_and_leaves_no_server(folder: Path) -> None:
    (folder / "unfork.yaml").write_text(PROJECT)
    with background(folder, "up") as up:
        assert up.stdout is not None
        eventually(lambda: "forks" in up.stdout.readline() if up.stdout else False)
        up.send_signal(signal.SIGTERM)
        rest, _ = up.communicate(timeout=PATIENCE_S)
        assert up.returncode == 0
    assert "forks survived" in rest
    assert not (folder / ".unfork/postgres/data/postmaster.pid").exists()


def test_one_stalled_chain_never_stops_another(folder: Path, postgres: Server) -> None:
    with devnet(folder, "--seed", "5", "--block-time-ms", "20") as node:
        chains = [
            {"name": "up_alive", "source": {"urls": [node["http"]]}},
            {"name": "up_stalled", "source": {"urls": ["http://127.0.0.1:1"]}},
            {"name": "up_nameless"},
        ]
        document = {"chains": chains, "database": {"raw_url": postgres.dsn}, "jobs": []}
        (folder / "unfork.yaml").write_text(json.dumps(document))
        with background(folder, "up") as up:

            def has_grown() -> bool:
                found = answer(folder, "status")["chains"]
                alive, stalled = found[0], found[1]
                is_waiting = stalled["status"] == "written" and stalled["position"] is None
                return bool(is_waiting and alive["position"] and alive["position"]["number"] > 30)

            eventually(has_grown)
            assert up.poll() is None
            up.send_signal(signal.SIGTERM)
            rest, _ = up.communicate(timeout=PATIENCE_S)
        assert up.returncode == 2, "a chain without a source halted"
        assert "chain up_nameless has no source" in rest


def test_blocks_are_refused_where_nothing_is_simulated(folder: Path) -> None:
    (folder / "unfork.yaml").write_text('chains: [{name: a, source: {urls: ["http://h"]}}]')
    assert (
        "no chain here is simulated"
        in answer(folder, "up", "--blocks", "5", code=2)["error"]["message"]
    )


@pytest.mark.xdist_group("spark")
def test_up_computes_the_jobs_of_the_chain_it_follows_and_a_worker_goes_on(folder: Path) -> None:
    project = "devnet: {block_time_ms: 20, fork_rate: 0.3, seed: 3}"
    assert forked_away(project, 9, 35, 10) == [True, True]
    (folder / "unfork.yaml").write_text(project)
    answer(folder, "up", "--blocks", "9", "--no-jobs")
    done = unfork(folder, "up", "--blocks", "35")
    assert done.returncode == 0, done.stderr
    assert readme_lines() <= shapes(done.stdout), "the README shows what is really printed"
    status = answer(folder, "status")["chains"][0]
    assert status["orphaned"]["forks"] > 0
    position = status["position"]["number"]
    marks = {job["job"]: job["watermark"]["number"] for job in status["jobs"]}
    assert marks == dict.fromkeys(BUILTINS, position)
    # The chain leaves blocks that jobs were computed of, while nobody computes any.
    (chain,) = answer(folder, "up", "--blocks", "10", "--no-jobs")["chains"]
    assert sum(chain["forks"].values()) > 0
    worked = answer(folder, "work", "--until-idle", "0.5")["chains"]["devnet"]
    # Nobody runs the node of the simulated chain now, whose contracts `tokens` would ask.
    (waiting,) = (job for job in worked if job["job"] == "tokens")
    assert "no source.urls to ask" in waiting["state"]
    worked = [job for job in worked if job is not waiting]
    assert {job["behind"] for job in worked} == {0} and {job["failures"] for job in worked} == {0}
    assert min(job["watermark"] for job in worked) >= position + 10
