"""Goal: every example does what its own test says, and is told of in the index.

Method: the tests that stand in the examples are called with the fixture that we ship, on the one
Spark of this test run; their projects are read as every command reads them.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from unfork.config import load
from unfork.jobs import catalog
from unfork.testing.engine import Engine, SparkJob

EXAMPLES = Path(__file__).parents[2] / "examples"
#: What needs a node to ask, and is run with one (tests/spark/test_reads.py).
WITH_NODE = {"06_contract_read"}
PROJECTS = sorted(file.parent for file in EXAMPLES.glob("*/unfork.yaml"))


def own_tests() -> list[tuple[Path, str]]:
    """The tests of the examples: their files, and the names of their functions."""
    found = []
    for file in sorted(EXAMPLES.glob("*/tests/test_*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found.append((file, node.name))
    return found


@pytest.mark.parametrize(
    ("file", "name"), own_tests(), ids=[f"{f.parts[-3]}-{n}" for f, n in own_tests()]
)
def test_an_example_does_what_its_own_test_says(
    unfork_engine: Engine, file: Path, name: str
) -> None:
    module = f"unfork_examples_{file.parts[-3]}_{file.stem}"
    spec = importlib.util.spec_from_file_location(module, file)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    project = load.find(file.parent)
    assert project is not None and project.parent == file.parents[1]
    getattr(made, name)(SparkJob(unfork_engine, project))


@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_an_example_is_a_whole_project_that_the_index_names(project: Path) -> None:
    found = load.load(project / "unfork.yaml", env={}, fallback={"name": "devnet"})
    assert catalog.read(found, imports=True).specs
    tested = {file.parts[-3] for file, _ in own_tests()}
    assert project.name in tested | WITH_NODE and re.match(r"\d\d_[a-z_]+\Z", project.name)
    assert f"]({project.name}/README.md)" in (EXAMPLES / "README.md").read_text()
    assert (project / "README.md").read_text().startswith("# ")
