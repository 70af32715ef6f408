"""Goal: the test that `unfork init --abi` writes passes as it is written.

Method: the command writes a project in a folder, and the project's own test is called with the
fixture that it asks for: its events are decoded, counted and undone on the real engine.
"""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_starter import DAI, TOKEN, event, init
from unfork.testing.engine import Engine, SparkJob


def test_the_own_test_of_a_new_project_passes(unfork_engine: Engine, tmp_path: Path) -> None:
    abi = [event("Many", "address", "string", "uint256[2][]", "bytes4"), *TOKEN[:2]]
    for name, given, arguments in (
        ("token", TOKEN, ["--address", DAI]),
        ("more", abi, ["--name", "more"]),
    ):
        (tmp_path / name).mkdir()
        assert init(tmp_path / name, given, *arguments).exit_code == 0
        project = tmp_path / name / "project"
        file = project / "tests/test_jobs.py"
        scope = {"__file__": str(file)}
        exec(file.read_text(), scope)
        own = scope["test_events_are_counted_by_block_and_follow_a_fork"]
        assert callable(own)
        own(SparkJob(unfork_engine, project / "unfork.yaml"))
