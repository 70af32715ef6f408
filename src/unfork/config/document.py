"""Owns the reading of unfork.yaml: plain values, and the line on which each was written.

YAML's own surprises are removed here: a key written twice is refused instead of the last one
winning, `0x…` stays text instead of becoming a number, and `010` is ten. `${NAME}` and
`${NAME:-default}` in a value are replaced from the environment; `$${` writes a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path as File
from typing import Any

import yaml

from unfork.config.draft import Draft, Origin, Path, Problem

REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def read(file: File, environment: Mapping[str, str], draft: Draft) -> None:
    """Writes the values of a file into the draft; what cannot be read becomes a problem."""
    _Reader(file, environment, draft).read()


class _Reader:
    def __init__(self, file: File, environment: Mapping[str, str], draft: Draft) -> None:
        self.file = file
        self.name = _shown(file)
        self.environment = environment
        self.draft = draft
        #: Nodes being read, to notice an alias that contains itself.
        self.open: list[int] = []

    def read(self) -> None:
        try:
            node = yaml.compose(self.file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        except OSError as error:
            self.draft.problems.append(Problem(self.name, f"cannot be read: {error.strerror}"))
            return
        except UnicodeDecodeError:
            self.draft.problems.append(Problem(self.name, "is not UTF-8 text"))
            return
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            self._problem_at(mark.line + 1 if mark else 1, f"not YAML: {error.problem}")
            return
        except yaml.YAMLError:
            self._problem_at(1, "not YAML: a character that YAML does not allow")
            return
        if node is None or node.tag == "tag:yaml.org,2002:null":
            return
        if not isinstance(node, yaml.MappingNode):
            self._problem(node, "must be a mapping of keys to values")
            return
        self.draft.data = self._value(node, ())

    def _value(self, node: yaml.Node, path: Path) -> Any:
        if path not in self.draft.origins:
            self.draft.origins[path] = self._origin(node)
        if id(node) in self.open:
            self._problem(node, "an alias that contains itself")
            return None
        self.open.append(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode):
                return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self.open.pop()

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                many = isinstance(value_node, yaml.SequenceNode)
                merged.extend(value_node.value if many else [value_node])
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._problem(key_node, "a key must be a word")
                continue
            key = str(key_node.value)
            if key in lines:
                self._problem(key_node, f"key `{key}` is already set on line {lines[key]}")
                continue
            lines[key] = _line(key_node)
            self.draft.origins[(*path, key)] = self._origin(key_node)
            values[key] = self._value(value_node, (*path, key))
        for other in merged:
            if not isinstance(other, yaml.MappingNode):
                self._problem(other, "`<<` takes a mapping, or a list of mappings")
                continue
            for key, value in self._value(other, path).items():
                values.setdefault(key, value)
        return values

    def _scalar(self, node: yaml.Node, path: Path) -> Any:
        text = str(node.value)
        if "$" in text:
            return self._interpolate(node, text, path)
        kind = node.tag.removeprefix("tag:yaml.org,2002:")
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() in ("true", "yes", "on")
        if kind == "int" and re.fullmatch(r"[-+]?[0-9][0-9_]*", text):
            return int(text)
        if kind == "float" and re.fullmatch(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?", text):
            return float(text)
        return text

    def _interpolate(self, node: yaml.Node, text: str, path: Path) -> str | None:
        """The text with references replaced; None (a value left out) where one is missing."""
        missing = False

        def replace(match: re.Match[str]) -> str:
            nonlocal missing
            if match.group(0) == "$${":
                return "${"
            inner = NAME.fullmatch(match.group(1))
            if inner is None or not match.group(0).endswith("}"):
                self._problem(node, "a reference is written ${NAME} or ${NAME:-default}")
                missing = True
                return ""
            name, default = inner.groups()
            self.draft.origins[path] = self._origin(node, hidden=True)
            value = self.environment.get(name, "")
            if not value and default is None:
                self._problem(
                    node, f"the environment has no {name}; set it, or write ${{{name}:-default}}"
                )
                missing = True
            return value or default or ""

        replaced = REFERENCE.sub(replace, text)
        return None if missing else replaced

    def _origin(self, node: yaml.Node, *, hidden: bool = False) -> Origin:
        return Origin(f"{self.name}:{_line(node)}", hidden=hidden)

    def _problem(self, node: yaml.Node, what: str) -> None:
        self._problem_at(_line(node), what)

    def _problem_at(self, line: int, what: str) -> None:
        self.draft.problems.append(Problem(f"{self.name}:{line}", what))


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _shown(file: File) -> str:
    """The file as a person would type it here."""
    try:
        return str(file.resolve().relative_to(File.cwd()))
    except ValueError:
        return str(file)
