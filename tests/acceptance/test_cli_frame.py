"""Goal: the command line as people and scripts meet it: help, exit codes, one JSON document.

Method: the real command in a process of its own, in an empty folder with a bare environment.
"""

from __future__ import annotations

import json
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.acceptance.process import PATIENCE_S, answer, background, unfork
from unfork.cli import main


def test_help_lists_every_command(tmp_path: Path) -> None:
    said = unfork(tmp_path, "--help")
    assert said.returncode == 0
    for name in main.COMMANDS:
        assert f"\n  {name} " in said.stdout
    bare = unfork(tmp_path)
    assert bare.returncode == 0
    assert said.stdout in (bare.stdout, bare.stderr)


def test_a_command_line_that_cannot_be_understood_exits_2(tmp_path: Path) -> None:
    for arguments in (["nope"], ["doctor", "--nope"], ["--log-level", "loud", "doctor"]):
        said = unfork(tmp_path, *arguments)
        assert said.returncode == 2
        assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nope", "--json"],
        ["doctor", "--nope", "--json"],
        ["doctor", "--json", "--nope"],
        ["ingest", "--json"],
        ["ingest", "--chain", "a", "--until-block", "1", "--until-idle", "1", "--json"],
        ["--log-level", "loud", "doctor", "--json"],
    ],
    ids=" ".join,
)
def test_a_script_is_told_of_a_wrong_command_line_in_one_json_document(
    tmp_path: Path, arguments: list[str]
) -> None:
    said = unfork(tmp_path, *arguments)
    assert said.returncode == 2
    error = json.loads(said.stdout)["error"]
    assert (error["code"], error["exit_code"]) == ("E100", 2)
    assert error["message"] and error["hint"]


def test_a_script_is_told_of_an_interrupt_in_one_json_document(tmp_path: Path) -> None:
    # A server that takes the connection and never says a word holds the command where it is.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://127.0.0.1:{silent.getsockname()[1]}/db"
        with background(tmp_path, "migrate", "--db", url, "--json") as process:
            taken, _ = silent.accept()
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=PATIENCE_S)
            taken.close()
    assert process.returncode == 130
    error = json.loads(said)["error"]
    assert (error["code"], error["exit_code"]) == ("E001", 130)


@pytest.mark.parametrize("command", ["ingest", "devnet", "migrate"])
def test_every_command_refuses_a_job_that_nobody_knows(tmp_path: Path, command: str) -> None:
    (tmp_path / "unfork.yaml").write_text("jobs:\n- name: token_transfer\n")
    arguments = ["--chain", "devnet"] if command == "ingest" else []
    error = answer(tmp_path, command, *arguments, code=2)["error"]
    assert error["message"] == (
        "unfork.yaml:2: job `token_transfer` has neither transform nor sql; "
        "did you mean the built-in job `token_transfers`?"
    )


def test_a_first_block_that_no_table_can_hold_is_refused_by_its_flag(tmp_path: Path) -> None:
    flags = ("--chain", "a", "--source", "http://127.0.0.1:1", "--from", str(2**63))
    error = answer(tmp_path, "ingest", *flags, code=2)["error"]
    assert error["code"] == "E101"
    assert error["message"].startswith("--from: chains[0].start: input should be less than")


def test_init_writes_a_project_that_works_and_never_writes_over_one(tmp_path: Path) -> None:
    said = unfork(tmp_path, "init", "project", "--json")
    assert said.returncode == 0
    assert json.loads(said.stdout)["files"] == ["unfork.yaml", ".env.example", ".gitignore"]
    project = tmp_path / "project"
    before = {file.name: file.read_text() for file in project.iterdir()}
    assert set(before) == {"unfork.yaml", ".env.example", ".gitignore"}
    assert ".env" in before[".gitignore"].splitlines()
    assert unfork(project, "doctor").returncode == 0

    again = unfork(tmp_path, "init", "project")
    assert again.returncode == 2
    assert "already exists" in again.stderr
    assert before == {file.name: file.read_text() for file in project.iterdir()}


def test_doctor_answers_as_text_and_as_json(tmp_path: Path) -> None:
    said = unfork(tmp_path, "doctor", "--json")
    document = json.loads(said.stdout)
    names = [check["name"] for check in document["checks"]]
    assert names[:3] == ["configuration", "python", "java"]
    assert {"postgres", "disk", "ports"} <= set(names)
    assert document["ok"] is True and said.returncode == 0
    text = unfork(tmp_path, "doctor")
    assert text.returncode == 0
    assert all(name in text.stdout for name in names)


def test_doctor_fails_with_a_way_out_and_without_showing_a_secret(tmp_path: Path) -> None:
    (tmp_path / "unfork.yaml").write_text("databse: {}\n")
    said = unfork(tmp_path, "doctor")
    assert said.returncode == 1
    assert "did you mean `database`?" in said.stdout

    (tmp_path / "unfork.yaml").write_text("devnet: {port: 1}\n")
    url = "postgresql://user:hunter2@127.0.0.1:1/db"
    said = unfork(tmp_path, "doctor", "--json", env={"DB_RAW_URL": url})
    assert said.returncode == 1
    assert "hunter2" not in said.stdout + said.stderr
    failed = [check for check in json.loads(said.stdout)["checks"] if check["status"] == "fail"]
    assert "postgres raw" in {check["name"] for check in failed}
    assert all(check["fix"] for check in failed)


def test_a_wrong_configuration_is_one_json_document_with_its_code(tmp_path: Path) -> None:
    (tmp_path / "unfork.yaml").write_text("\n\nsink: {}\n")
    said = unfork(tmp_path, "devnet", "--json")
    assert said.returncode == 2
    error = json.loads(said.stdout)["error"]
    assert error["code"] == "E101"
    assert error["message"].startswith("unfork.yaml:3: unknown key `sink`; did you mean `sync`?")
    text = unfork(tmp_path, "devnet")
    assert text.returncode == 2
    assert "error E101: unfork.yaml:3: unknown key" in text.stderr
    assert "docs/errors.md#e101" in text.stderr
    assert "Traceback" not in text.stderr
    assert "Traceback" in unfork(tmp_path, "--debug", "devnet").stderr


def test_the_devnet_fails_in_the_way_it_is_told(tmp_path: Path) -> None:
    chain = ("--density", "0", "--unproven", "--tame", "--finality-lag", "5", "--blocks", "3")
    faults = ("--fault", "bad_gateway", "--fault-seed", "7", "--fork-styles", "kept")
    with background(tmp_path, "devnet", "--json", *chain, *faults) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        assert document["faults"] == {"named": ["bad_gateway"], "seed": 7}
        request = urllib.request.Request(document["http"], data=b"{}")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=20)
        caught.value.close()
        assert caught.value.code == 502


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_devnet_serves_a_chain_and_ends_cleanly_when_told(
    tmp_path: Path, number: signal.Signals
) -> None:
    chain = ("--seed", "7", "--blocks", "3")
    with background(tmp_path, "devnet", "--json", *chain) as process:
        assert process.stdout is not None
        document = json.loads(process.stdout.readline())
        request = urllib.request.Request(
            document["http"],
            data=b'{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}',
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert json.load(answer)["result"] == hex(document["chain_id"])
        process.send_signal(number)
        assert process.wait(PATIENCE_S) == 0
