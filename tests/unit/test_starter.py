"""Goal: `unfork init --abi` writes a project that is whole, or says what is wrong.

Method: the command in this process over ABIs of every kind; what it writes is read back by the code
that people's projects are read by.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from unfork.cli import output
from unfork.cli.context import Context
from unfork.cli.main import cli
from unfork.config import load
from unfork.errors import UnforkError
from unfork.jobs import catalog, sql

DAI = "0x6B175474E89094C44Da98b954EedeAC495271d0F"


def event(name: str, *types: str, **more: Any) -> dict[str, Any]:
    inputs = [{"name": f"a{n}", "type": kind, "indexed": n == 0} for n, kind in enumerate(types)]
    return {"type": "event", "name": name, "inputs": inputs, **more}


TOKEN = [
    {"type": "function", "name": "transfer", "inputs": []},
    event("Approval", "address", "address", "uint256"),
    event("Transfer", "address", "address", "uint256"),
]


def init(folder: Path, abi: Any, *arguments: str) -> Result:
    """Runs the command over an ABI."""
    file = folder / "Token.json"
    file.write_text(abi if isinstance(abi, str) else json.dumps(abi))
    return invoke(str(folder / "project"), "--abi", str(file), *arguments)


def invoke(*arguments: str) -> Result:
    context = Context(
        config_file=None, log_level="warning", is_debug=False, output=output.make(True)
    )
    return CliRunner().invoke(cli, ["init", *arguments], obj=context)


def test_the_project_decodes_the_contract_and_computes_a_job_over_an_event(tmp_path: Path) -> None:
    assert init(tmp_path, TOKEN, "--address", DAI).exit_code == 0
    project = tmp_path / "project"
    written = {str(file.relative_to(project)) for file in project.rglob("*") if file.is_file()}
    assert written == {
        "unfork.yaml",
        "abi/token.json",
        "jobs/events_by_block.sql",
        "conftest.py",
        "tests/test_jobs.py",
        "README.md",
        ".env.example",
        ".gitignore",
    }
    document = yaml.safe_load((project / "unfork.yaml").read_text())
    assert document["decode"] == [
        {"name": "token", "abi": "abi/token.json", "addresses": [DAI.lower()]}
    ]
    (job,) = document["jobs"]
    assert job["input_datasets"] == ["token_transfer"]
    text = (project / "jobs/events_by_block.sql").read_text()
    assert sql.check(text, job["input_datasets"]) == []
    assert json.loads((project / "abi/token.json").read_text()) == TOKEN
    assert "\nETHEREUM_HTTP=\n" in (project / ".env.example").read_text()
    # Everything else is there to be uncommented, as in the project without an ABI.
    assert "#spark:" in (project / "unfork.yaml").read_text()
    loaded = load.load(project / "unfork.yaml", env={})
    names = [spec.name for spec in catalog.read(loaded).lineage.order]
    assert sorted(names) == ["events_by_block", "token_approval", "token_transfer"]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "project/jobs").mkdir(parents=True)
    mine = tmp_path / "project/jobs/events_by_block.sql"
    mine.write_text("mine")
    refused = init(tmp_path, TOKEN)
    assert isinstance(refused.exception, UnforkError)
    assert "events_by_block.sql already exists" in refused.exception.message
    assert [file for file in (tmp_path / "project").rglob("*") if file.is_file()] == [mine]


@pytest.mark.parametrize(
    ("abi", "arguments", "told"),
    [
        ("{", [], "is not JSON: Expecting property name"),
        ({"contracts": []}, [], "neither a list, nor a mapping"),
        ([{"type": "function", "name": "f"}], [], "has no event"),
        ([event("A", "uint256x")], [], "event `A`: "),
        ([{"type": "event", "name": "A", "inputs": {}}], [], "an event without name or inputs"),
        ([event("A"), event("A", "bool")], [], "shares its name with another one"),
        ([event("A", anonymous=True)], [], "is anonymous"),
        (TOKEN, ["--address", "0x12"], "is no address: 0x and 40 hexadecimal digits"),
        (TOKEN, ["--address", DAI.replace("6B", "6b")], "a checksum that does not fit (EIP-55)"),
        (TOKEN, ["--name", "Token"], "cannot begin the names of datasets"),
    ],
)
def test_what_is_no_contract_is_refused_and_nothing_is_written(
    tmp_path: Path, abi: Any, arguments: list[str], told: str
) -> None:
    refused = init(tmp_path, abi, *arguments)
    assert isinstance(refused.exception, UnforkError), refused
    assert told in refused.exception.message
    assert not (tmp_path / "project").exists()


@pytest.mark.parametrize(
    "types",
    [
        ("address", "bool", "string", "bytes", "bytes32", "int8", "uint256[2][]"),
        (),
    ],
)
def test_the_test_of_the_project_calls_events_of_any_types(
    tmp_path: Path, types: tuple[str, ...]
) -> None:
    pair = {
        "name": "pair",
        "type": "tuple[]",
        "components": [{"name": "a", "type": "address"}, {"name": "b", "type": "uint8"}],
    }
    made = event("Many", *types)
    made["inputs"].append(pair)
    assert init(tmp_path, {"abi": [made]}).exit_code == 0
    scope: dict[str, Any] = {"__file__": str(tmp_path / "project/tests/test_jobs.py")}
    exec((tmp_path / "project/tests/test_jobs.py").read_text(), scope)
    seen = []

    class Job:
        def states(self, job: str, blocks: Any) -> Any:
            seen.append((job, blocks))
            raise InterruptedError

    with pytest.raises(InterruptedError):
        scope["test_events_are_counted_by_block_and_follow_a_fork"](Job())
    ((job, blocks),) = seen
    assert job == "events_by_block"
    assert [len(block.transactions) for block in blocks.moves[0].blocks] == [2, 1]
    assert blocks.address("CONTRACT") == "0x" + "c0de" * 10


def test_an_anonymous_event_of_any_contract_is_left_out(tmp_path: Path) -> None:
    abi = [event("Hidden", "uint8", anonymous=True), *TOKEN]
    assert init(tmp_path, abi).exit_code == 0
    document = yaml.safe_load((tmp_path / "project/unfork.yaml").read_text())
    assert document["decode"][0]["events"] == ["Approval", "Transfer"]
    assert document["decode"][0]["addresses"] == "any"
    assert catalog.read(load.load(tmp_path / "project/unfork.yaml", env={})).specs


def test_without_an_abi_the_starter_project_is_what_it_was(tmp_path: Path) -> None:
    assert invoke(str(tmp_path / "new")).exit_code == 0
    names = {file.name for file in (tmp_path / "new").iterdir()}
    assert names == {"unfork.yaml", ".env.example", ".gitignore"}
    alone = invoke(str(tmp_path / "more"), "--address", DAI)
    assert alone.exit_code == 2 and not (tmp_path / "more").exists()
