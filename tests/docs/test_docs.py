"""Goal: the documentation says what the code does, and everything it can do.

Method: pages made from code are made again and compared; lists in pages are compared with the code;
links are followed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

from unfork import errors
from unfork.cli import main, reference
from unfork.config import describe

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

#: An absolute path of two parts or more, where a word could stand.
ABSOLUTE = re.compile(r"""(?:^|(?<=[\s"'`(=:,\[]))/\w[\w.-]*/[\w./-]*""", re.MULTILINE)
#: Where an absolute path may lead: what every machine of a kind has, and what none has.
EVERYWHERE = ("/proc/", "/usr/lib/postgresql", "/nowhere/", "/some/")


def tracked() -> list[Path]:
    """Every file that belongs to the project."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout, so nobody knows which files belong to it")
    said = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in said.stdout.splitlines() if (ROOT / name).is_file()]


def error_classes(above: type[errors.UnforkError] = errors.UnforkError) -> list[type]:
    """The whole tree of errors."""
    return [above, *(found for below in above.__subclasses__() for found in error_classes(below))]


@pytest.mark.parametrize("page", reference.pages())
def test_pages_made_from_code_are_up_to_date(page: str) -> None:
    written = (ROOT / "docs" / page).read_text()
    assert written == reference.pages()[page], "run `make docs`"


@pytest.mark.parametrize("name", main.COMMANDS)
def test_every_command_and_option_has_help_and_json(name: str) -> None:
    command = main.cli.get_command(click.Context(main.cli), name)
    assert command is not None
    assert command.help
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert all(option.help for option in options)
    assert any("--json" in option.opts for option in options)
    assert f"## unfork {name}\n" in (ROOT / "docs/cli.md").read_text()


def test_every_verb_of_a_command_has_help_and_json() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    commands = {name: main.cli.get_command(click.Context(main.cli), name) for name in main.COMMANDS}
    verbs = [
        (name, verb)
        for name, command in commands.items()
        if isinstance(command, click.Group)
        for verb in command.commands.values()
    ]
    assert ("jobs", "pause") in [(name, verb.name) for name, verb in verbs]
    for name, verb in verbs:
        options = [option for option in verb.params if isinstance(option, click.Option)]
        assert verb.help and all(option.help for option in options)
        assert any("--json" in option.opts for option in options)
        assert f"## unfork {name} {verb.name}\n" in page


def test_every_command_has_a_module_of_its_own() -> None:
    with_command = {
        file.stem
        for file in (ROOT / "src/unfork/cli").glob("*.py")
        if re.search(r"^def command\(", file.read_text(), flags=re.MULTILINE)
    }
    assert with_command == set(main.COMMANDS)


def test_every_configuration_key_and_variable_is_documented() -> None:
    page = (ROOT / "docs/configuration.md").read_text()
    for key in describe.keys():
        assert f"## {key.dotted}\n" in page if key.is_branch else f"| `{key.path[-1]}` |" in page
        assert all(f"`{name}`" in page for name in key.variables)


def test_every_error_and_exit_code_is_documented_once() -> None:
    page = (ROOT / "docs/errors.md").read_text()
    sections = dict(re.findall(r"^### (E\d+)\n(.*?)(?=^##|\Z)", page, flags=re.M | re.S))
    codes = {found.code: found for found in error_classes()}
    assert len(codes) == len(error_classes()), "every class has a code of its own"
    assert set(sections) == set(codes)
    for code, found in codes.items():
        assert re.search(rf"Exit\s+code\s+{found.exit_code}\b", sections[code]), code
    exits = set(re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE))
    assert {str(found.exit_code) for found in error_classes()} <= exits


def test_the_tree_in_the_errors_docstring_names_every_class_and_code() -> None:
    drawn = errors.__doc__ or ""
    for found in error_classes():
        assert found.__name__ in drawn
        if not found.__subclasses__():
            assert re.search(rf"{found.__name__} +{found.code} ", drawn), found.__name__


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        if re.match(r"https?://", target):
            continue
        file, _, anchor = target.partition("#")
        aimed = (page.parent / file).resolve() if file else page
        assert aimed.exists(), f"{target} in {page.name}"
        if anchor:
            assert anchor in anchors(aimed), f"{target} in {page.name}"


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_decisions_are_numbered_without_a_gap_and_have_their_three_parts() -> None:
    files = sorted((ROOT / "docs/decisions").iterdir())
    for number, file in enumerate(files, start=1):
        assert re.fullmatch(rf"{number:04}-[a-z0-9-]+\.md", file.name)
        text = file.read_text()
        assert re.match(rf"# {number:04}:? [A-Z`]", text), file.name
        headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], file.name


def test_every_dependency_has_a_line_in_the_decision_and_is_pinned() -> None:
    decision = (ROOT / "docs/decisions/0001-stack-and-dependencies.md").read_text().lower()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [re.split(r"[\[>=]", line)[0] for line in project["dependencies"]]
    base = (ROOT / "requirements/base.txt").read_text()
    assert len(declared) > 10
    for name in declared:
        assert name.lower() in decision, name
        assert re.search(rf"^{name}(\[\w+\])?==", base, flags=re.MULTILINE | re.IGNORECASE), name
    for file in (ROOT / "requirements").iterdir():
        for line in file.read_text().splitlines():
            assert re.fullmatch(r"#.*|-r base\.txt|[\w.-]+(\[\w+\])?==[\w.]+", line), line


def test_every_test_named_by_an_invariant_exists() -> None:
    page = (ROOT / "docs/invariants.md").read_text()
    numbers = re.findall(r"^\| (I\d+) \|", page, flags=re.MULTILINE)
    assert numbers == [f"I{number}" for number in range(1, 12)]
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)
    assert named
    for file, function in named:
        assert (ROOT / file).is_file(), file
        if function:
            found = {
                node.name
                for node in ast.walk(ast.parse((ROOT / file).read_text()))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            }
            assert function in found, f"{file}::{function}"


def test_the_readme_names_every_make_target_it_uses() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for page in PAGES:
        used = re.findall(r"(?:^|`|\$ )make ([a-z]+)", page.read_text(), flags=re.MULTILINE)
        assert set(used) <= targets, page.name


def test_the_repository_speaks_of_the_project_alone() -> None:
    # Put together here, so that this file does not hold what it looks for.
    hosts = re.compile("|".join(("py" + r"pi\.org", "python" + "hosted", "npm" + r"js\.org")))
    for file in tracked():
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        foreign = [path for path in ABSOLUTE.findall(text) if not path.startswith(EVERYWHERE)]
        assert not foreign, f"{file.relative_to(ROOT)} names a place on one machine: {foreign}"
        found = hosts.search(text)
        assert found is None, f"{file.relative_to(ROOT)} holds {found and found.group(0)}"


def test_no_source_file_outgrows_its_noun_and_each_says_what_it_owns() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text()
        assert text.count("\n") <= 500, file
        assert ast.get_docstring(ast.parse(text)), file
