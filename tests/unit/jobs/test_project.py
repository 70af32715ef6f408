"""Goal: of a project exactly the modules that its jobs lead to are sent, or it is said why not.

Method: small projects in folders, looked at without Spark and without importing anything; the
packed file is imported by a Python that has nothing else of the project.
"""

from __future__ import annotations

import importlib.machinery
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.unit.jobs.projects import read
from unfork import errors
from unfork.jobs import modules, package, project

JOBS = """
jobs:
  - name: token_transfers
  - name: a
    input_datasets: [logs]
    transform: first:f
  - name: b
    input_datasets: [logs]
    transform: shop.jobs.sums:f
  - name: c
    input_datasets: [logs]
    sql: c.sql
"""

FILES = {
    "first.py": "import json, pyarrow\nimport second.inner as inner\ndef f(logs): return logs\n",
    "second/inner.py": "def g():\n    from third import word\n    return word\n",
    "third.py": "word = 'yes'\nimport first\n",
    "shop/__init__.py": "from . import jobs\n",
    "shop/jobs/__init__.py": "",
    "shop/jobs/sums.py": "def f(logs): return logs\n",
    "shop/jobs/abi.json": "{}",
    "shop/.hidden/secret.py": "",
    "shop/__pycache__/sums.pyc": "",
    "beside.py": "",
    "c.sql": "select block_number from logs",
}


class Session:
    """What is sent to a session of Spark: what no unit test wants a Spark for."""

    def __init__(self) -> None:
        self.sent: list[Path] = []
        self.known: dict[str, str] = {}

    @property
    def conf(self) -> Session:
        return self

    def get(self, name: str, default: str | None) -> str | None:
        return self.known.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.known[name] = value

    def addArtifacts(self, file: str, *, pyfile: bool) -> None:
        assert pyfile
        self.sent.append(Path(file))
        sys.path.insert(1, f"/some/where/{Path(file).name}")


def sent(session: Any, folder: Path, files: dict[str, str] | None = None) -> Path | None:
    folder.mkdir(exist_ok=True)
    return project.send(session, read(folder, JOBS, files or FILES), folder / "sent")


def test_what_transforms_lead_to_is_sent_and_nothing_else(tmp_path: Path) -> None:
    session = Session()
    file = sent(session, tmp_path / "one")
    assert file is not None and session.sent == [file]
    names = zipfile.ZipFile(file).namelist()
    assert [name for name in names if not name.endswith("/")] == [
        "first.py",
        "second/inner.py",
        "shop/__init__.py",
        "shop/jobs/__init__.py",
        "shop/jobs/abi.json",
        "shop/jobs/sums.py",
        "third.py",
    ]
    assert not any(file.name in place for place in sys.path), "ours stay where they were written"
    code = f"import sys; sys.path[:0] = [{str(file)!r}]\nimport first; print(first.inner.g())"
    said = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert said.stdout == "yes\n", said.stderr


def test_equal_code_is_one_file_that_is_sent_once_and_changed_code_is_another(
    tmp_path: Path,
) -> None:
    session = Session()
    file = sent(session, tmp_path / "one")
    assert sent(session, tmp_path / "one") is None and session.sent == [file]
    again = sent(Session(), tmp_path / "two")
    assert again is not None and file is not None
    assert (again.name, again.read_bytes()) == (file.name, file.read_bytes())
    changed = {**FILES, "third.py": "word = 'no'\n"}
    other = sent(Session(), tmp_path / "one", changed)
    assert other is not None and other.name != file.name
    with pytest.raises(errors.CodeNotSent, match="`third` has changed"):
        sent(session, tmp_path / "one", changed)


def test_a_project_without_code_of_its_own_sends_nothing(tmp_path: Path) -> None:
    session: Any = Session()
    found = read(tmp_path, "jobs: [{name: token_transfers}]")
    assert project.send(session, found, tmp_path / "sent") is None
    assert not (tmp_path / "sent").exists()


def test_what_is_compiled_for_this_machine_has_to_be_installed(tmp_path: Path) -> None:
    name = f"shop/fast{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    with pytest.raises(errors.CodeNotSent, match="install `shop` where Spark runs its tasks"):
        sent(Session(), tmp_path / "one", {**FILES, name: ""})


def test_data_that_is_too_large_to_travel_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project, "SIZE_MAX", 1000)
    with pytest.raises(errors.CodeNotSent, match=r"the largest file is .*shop/jobs/abi\.json"):
        sent(Session(), tmp_path / "one", {**FILES, "shop/jobs/abi.json": "x" * 900})


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "sent").write_text("a file is in the way")
    with pytest.raises(errors.CodeNotSent, match=r"the modules of .*one cannot be sent"):
        sent(Session(), tmp_path / "one")


@pytest.mark.parametrize(
    ("name", "is_installed"),
    [("json", True), ("pyarrow", True), ("unfork", True), ("sys", True), ("tests", False)],
)
def test_what_is_installed_is_told_from_what_is_worked_on(name: str, is_installed: bool) -> None:
    found = modules.top(name)
    assert found is not None and found.is_installed is is_installed


def test_a_packed_file_is_named_for_what_is_in_it_and_under_which_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("bc")
    (tmp_path / "ab").write_text("c")
    one = package.write({"a": tmp_path / "a"}, tmp_path / "out", name="x")
    two = package.write({"ab": tmp_path / "ab"}, tmp_path / "out", name="x")
    assert one != two and zipfile.ZipFile(two).read("ab") == b"c"
