"""Goal: a job's fingerprint changes when its rows might, and never otherwise.

Method: one project is fingerprinted, changed in one place and fingerprinted again; a table says
whether that is a change. Other processes, folders and hash seeds must agree.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.jobs.projects import project, read
from unfork.jobs import fingerprint
from unfork.jobs.code import CodeMissing, used_by

JOBS = """
jobs:
  - name: a
    input_datasets: [logs]
    transform: shop.jobs.transfers:f
    config: {limit_to: [x, y], depth: 3}
  - name: s
    input_datasets: [hot_logs]
    sql: s.sql
"""

FILES = {
    "shop/__init__.py": "",
    "shop/jobs/__init__.py": "",
    "shop/jobs/transfers.py": '''"""Transfers."""
from __future__ import annotations

import json
from shop import words
from shop.jobs.helpers import double, unused_too
from .more import third
import shop.deep.module
import beside
from beside_too import word

LIMIT = 5
UNUSED = 1
TABLE = {}
TABLE["x"] = 2
if LIMIT:
    SWITCH = 1
else:
    SWITCH = 2


def f(logs):
    """Says what it does."""
    aside = beside.far(), word
    return own(logs), double(LIMIT), words.NAME, TABLE, SWITCH, third, shop.deep.module.far(), json


def own(rows):
    from shop.jobs import late
    return rows, late.value


def unused(rows):
    return rows
''',
    "shop/words.py": "NAME = 'a'\nOTHER = 'b'\n",
    "shop/jobs/helpers.py": "from shop.jobs.base import *\n"
    "def double(n):\n    return n * FACTOR\ndef unused_too(): return 1\n",
    "shop/jobs/base.py": "FACTOR = 2\nSPARE = 3\n",
    "shop/jobs/more.py": "third = 3\n",
    "shop/jobs/late.py": "value = 1\n",
    "shop/deep/module.py": "def far():\n    return 1\n",
    "beside.py": "def far():\n    return 1\ndef unused():\n    return 2\n",
    "beside_too.py": "word = 1\nother = 2\n",
    "s.sql": "select block_number, address from hot_logs where data = 'x'",
}


def hashes(folder: Path, jobs: str = JOBS, files: dict[str, str] | None = None) -> dict[str, str]:
    """The fingerprints of a project's jobs."""
    found = read(folder, jobs, files or FILES)
    return {spec.name: fingerprint.config_hash(spec, found.folder) for spec in found.specs}


@pytest.mark.parametrize(
    ("file", "old", "new", "is_change"),
    [
        ("shop/jobs/transfers.py", "LIMIT = 5", "LIMIT = 6", True),
        ("shop/jobs/transfers.py", "UNUSED = 1", "UNUSED = 2", False),
        ("shop/jobs/transfers.py", 'TABLE["x"] = 2', 'TABLE["x"] = 3', True),
        ("shop/jobs/transfers.py", "    SWITCH = 2", "    SWITCH = 3", True),
        ("shop/jobs/transfers.py", "return rows, late", "return [rows], late", True),
        ("shop/jobs/transfers.py", "    return rows\n", "    return None\n", False),
        ("shop/jobs/transfers.py", "Says what it does.", "Says it better.", False),
        ("shop/jobs/transfers.py", "LIMIT = 5", "LIMIT = (  # why\n    5\n)", False),
        ("shop/jobs/transfers.py", "import json", "import json\nimport math", False),
        ("shop/jobs/transfers.py", "import json", "import math as json", True),
        ("shop/jobs/transfers.py", "double, unused_too", "double", False),
        ("shop/words.py", "NAME = 'a'", "NAME = 'c'", True),
        ("shop/words.py", "OTHER = 'b'", "OTHER = 'c'", False),
        ("shop/jobs/helpers.py", "n * FACTOR", "n + FACTOR", True),
        ("shop/jobs/helpers.py", "return 1", "return 2", False),
        ("shop/jobs/base.py", "FACTOR = 2", "FACTOR = 3", True),
        ("shop/jobs/base.py", "SPARE = 3", "SPARE = 4", False),
        ("shop/jobs/more.py", "third = 3", "third = 4", True),
        ("shop/jobs/late.py", "value = 1", "value = 2", True),
        ("shop/deep/module.py", "return 1", "return 2", True),
        ("beside.py", "return 1", "return 3", True),
        ("beside.py", "return 2", "return 3", False),
        ("beside_too.py", "word = 1", "word = 2", True),
        ("beside_too.py", "other = 2", "other = 3", False),
    ],
)
def test_the_code_counts_as_far_as_the_transform_uses_it(
    tmp_path: Path, file: str, old: str, new: str, is_change: bool
) -> None:
    before = hashes(tmp_path)["a"]
    assert old in FILES[file]
    after = hashes(tmp_path, files={**FILES, file: FILES[file].replace(old, new)})["a"]
    assert (before != after) is is_change


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("depth: 3", "depth: 4", {"a"}),
        ("{limit_to: [x, y], depth: 3}", "{depth: 3, limit_to: [x, y]}", set()),
        ("[x, y]", "[y, x]", {"a"}),
        ("name: a\n", "name: renamed\n    output_dataset: a\n", set()),
        ("name: a\n", "name: a\n    output_dataset: b\n", {"a"}),
        ("name: a\n", "name: a\n    on_change: continue\n", set()),
        ("name: a\n", "name: a\n    incremental: {mode: partition}\n", {"a"}),
        ("name: a\n", "name: a\n    incremental: {mode: cursor}\n", set()),
        ("name: a\n", "name: a\n    update_strategy: append\n    unique_key: [x]\n", {"a"}),
        ("[hot_logs]", "[hot_logs, blocks]", {"s"}),
        ("jobs:", "# a comment\n\njobs:", set()),
    ],
)
def test_the_specification_counts_where_it_decides_what_rows_come_out(
    tmp_path: Path, old: str, new: str, changed: set[str]
) -> None:
    before = list(hashes(tmp_path).values())
    after = list(hashes(tmp_path, JOBS.replace(old, new)).values())
    found = {name for name, a, b in zip("as", before, after, strict=True) if a != b}
    assert found == changed


@pytest.mark.parametrize(
    ("query", "is_change"),
    [
        ("SELECT block_number,\n  address -- who\nFROM hot_logs WHERE data='x';", False),
        ("select block_number, address from hot_logs where data = 'X'", True),
        ("select block_number, data from hot_logs where data = 'x'", True),
    ],
)
def test_a_query_counts_without_its_layout(tmp_path: Path, query: str, is_change: bool) -> None:
    before = hashes(tmp_path)["s"]
    assert (hashes(tmp_path, files={**FILES, "s.sql": query})["s"] != before) is is_change


def test_other_processes_and_folders_agree(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    here = hashes(tmp_path / "one")
    project(tmp_path / "two", JOBS, FILES)
    script = (
        "from pathlib import Path; from unfork.config.load import load;"
        "from unfork.jobs import catalog, fingerprint;"
        "import math;"  # Anything may be imported already.
        "found = catalog.read(load(env={}, folder=Path('.')));"
        "print({s.name: fingerprint.config_hash(s, found.folder) for s in found.specs})"
    )
    for seed in ("1", "2"):
        said = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path / "two",
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert eval(said.stdout) == here


def test_a_transform_is_found_without_being_run(tmp_path: Path) -> None:
    project(tmp_path, "", {"loud.py": "raise SystemExit\ndef f(logs): return logs\n"})
    assert [piece.line for piece in used_by("loud:f", tmp_path)] == [2]
    assert str(tmp_path) not in sys.path
    with pytest.raises(CodeMissing, match=r"loud\.py defines no `g`"):
        used_by("loud:g", tmp_path)
    with pytest.raises(CodeMissing, match=r"there is no module `loud\.inner`"):
        used_by("loud.inner:g", tmp_path)


def test_the_schema_hash_covers_names_and_types_in_any_order() -> None:
    columns = {"a": "bigint", "b": "binary"}
    assert fingerprint.schema_hash(columns) == fingerprint.schema_hash(
        dict(reversed(columns.items()))
    )
    assert fingerprint.schema_hash(columns) != fingerprint.schema_hash({**columns, "b": "string"})
    assert fingerprint.schema_hash(columns) != fingerprint.schema_hash({"a": "bigint"})
