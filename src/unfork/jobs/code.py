"""Owns the code of a transform: the function, and every definition of its package that it uses.

The code is read, not run: where a function lives is asked of Python's import system, what it uses
is found in the syntax tree. That makes it the same in every process, whatever was imported before,
and cheap enough for commands that never start Spark.

What belongs to a function: its definition, the module-level definitions and imports that its names
lead to, and so on through modules of the same top-level package and of the project's folder; other
packages are versions, not code. A module-level statement that defines nothing (`TABLE["x"] = 1`)
belongs to it where it mentions one of those names. What is only reached at run time (`getattr` with
a computed name, a file that is read) is not seen.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unfork.jobs import modules


class CodeMissing(Exception):
    """A transform that is not there; the message says which part of its name leads nowhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One module-level definition that a transform uses."""

    module: str
    file: Path
    line: int
    #: What it says, free of layout; of an import only the one name that is used.
    text: str
    #: The definition itself, None for an import.
    statement: ast.stmt | None


@dataclass(slots=True)
class _Module:
    name: str
    file: Path
    is_package: bool
    #: Statements by each name they bind.
    bound: dict[str, list[ast.stmt]] = field(default_factory=dict)
    #: Statements that bind no name, each with the names it mentions.
    loose: list[tuple[ast.stmt, frozenset[str]]] = field(default_factory=list)


def used_by(reference: str, folder: Path | None) -> tuple[Piece, ...]:
    """What the transform `package.module:function` consists of, in the order of module and line.

    Modules are looked for in `folder` first, then where Python looks. Raises CodeMissing.
    """
    module_name, _, function = reference.partition(":")
    with modules.importable(folder):
        known = _Modules(module_name.partition(".")[0], folder)
        module = known.get(module_name)
        if module is None:
            where = f"in {folder} or installed" if folder is not None else "installed"
            raise CodeMissing(f"there is no module `{module_name}` {where}")
        if function not in module.bound:
            raise CodeMissing(f"{module.file.name} defines no `{function}`")
        found = _Closure(known).of(module, function)
    return tuple(sorted(found, key=lambda piece: (piece.module, piece.line, piece.text)))


def load(reference: str, folder: Path | None) -> Callable[..., Any]:
    """The function itself, imported. Raises CodeMissing where that fails, with the cause."""
    module_name, _, function = reference.partition(":")
    with modules.importable(folder):
        try:
            found = getattr(importlib.import_module(module_name), function)
        except Exception as error:
            raise CodeMissing(f"`{reference}` cannot be imported: {error}") from error
    if not callable(found):
        raise CodeMissing(f"`{reference}` is not a function")
    return found  # type: ignore[no-any-return]


def canonical(node: ast.AST) -> str:
    """A syntax tree as text, the same for every layout, comment, docstring and Python version."""
    parts: list[str] = []
    _write(node, parts)
    return "".join(parts)


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, ast.AST):
        parts.append(f"({type(value).__name__}")
        for name in sorted(value._fields):
            held = getattr(value, name, None)
            # What is empty is left out: later Pythons add fields that are empty in older code.
            if held is None or held == [] or name in ("ctx", "type_comment", "kind"):
                continue
            if name == "body" and isinstance(held, list):
                held = _without_docstring(held)
            parts.append(f" {name}=")
            _write(held, parts)
        parts.append(")")
    elif isinstance(value, list):
        parts.append("[")
        for item in value:
            _write(item, parts)
            parts.append(",")
        parts.append("]")
    else:
        parts.append(repr(value))


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    match body:
        case [ast.Expr(value=ast.Constant(value=str())), *rest]:
            return rest
        case _:
            return body


class _Modules:
    """The modules of one project, read when they are asked for."""

    def __init__(self, package: str, folder: Path | None) -> None:
        self._folder = folder
        #: By top-level name, whether it is of the project.
        self._own = {package: True}
        self._read: dict[str, _Module | None] = {}

    def get(self, name: str) -> _Module | None:
        """A module of the project, None where it is not one or has no source."""
        if not self._is_own(name.partition(".")[0]):
            return None
        if name not in self._read:
            self._read[name] = self._module(name)
        return self._read[name]

    def _is_own(self, name: str) -> bool:
        if name not in self._own:
            found = modules.top(name)
            self._own[name] = found is not None and found.is_in(self._folder)
        return self._own[name]

    def _module(self, name: str) -> _Module | None:
        file = modules.source(name)
        if file is None:
            return None
        module = _Module(name, file, file.name == "__init__.py")
        for statement in _without_docstring(ast.parse(file.read_bytes(), file.name).body):
            names = set(_bound(statement))
            for bound in names:
                module.bound.setdefault(bound, []).append(statement)
            if not names:
                module.loose.append((statement, _mentioned(statement)))
        return module


class _Closure:
    """Collects what a definition leads to, each definition once."""

    def __init__(self, modules: _Modules) -> None:
        self._modules = modules
        self._pieces: dict[tuple[int, str], Piece] = {}
        self._reached: set[tuple[str, str]] = set()

    def of(self, module: _Module, name: str) -> list[Piece]:
        waiting = [(module, name)]
        while waiting:
            module, name = waiting.pop()
            if (module.name, name) in self._reached:
                continue
            self._reached.add((module.name, name))
            statements = list(module.bound.get(name, ()))
            if not statements:
                waiting.extend(self._starred(module, name))
            statements += [loose for loose, mentioned in module.loose if name in mentioned]
            for statement in statements:
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    self._add(
                        module, statement, f"import {name} = {_origin(module, statement, name)}"
                    )
                    waiting.extend(self._imported(module, statement, name))
                elif self._add(module, statement, ""):
                    waiting.extend(self._leads(module, statement))
        return list(self._pieces.values())

    def _add(self, module: _Module, statement: ast.stmt, text: str) -> bool:
        """Keeps a definition; whether it was not kept before."""
        is_new = (id(statement), text) not in self._pieces
        if is_new:
            self._pieces[id(statement), text] = Piece(
                module=module.name,
                file=module.file,
                line=statement.lineno,
                text=text or canonical(statement),
                statement=None if text else statement,
            )
        return is_new

    def _leads(self, module: _Module, statement: ast.stmt) -> Iterator[tuple[_Module, str]]:
        """The definitions that a statement refers to, by name or through a module."""
        for name, attributes in _uses(statement).items():
            yield module, name
            for bound in module.bound.get(name, ()):
                if isinstance(bound, ast.Import | ast.ImportFrom):
                    inner = self._modules.get(_origin(module, bound, name))
                    if inner is not None:
                        yield from ((inner, used) for used in attributes or inner.bound)
        for node in ast.walk(statement):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for alias in node.names:
                    name = alias.asname or alias.name
                    yield from self._imported(module, node, name)
                    inner = self._modules.get(_origin(module, node, name))
                    if inner is not None:
                        yield from ((inner, bound) for bound in inner.bound)

    def _imported(
        self, module: _Module, node: ast.Import | ast.ImportFrom, name: str
    ) -> Iterator[tuple[_Module, str]]:
        """The definitions behind an imported name that is not itself a module."""
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import package.module` binds `package` and is used as `package.module.name`.
                is_dotted = alias.asname is None and alias.name.startswith(f"{name}.")
                inner = self._modules.get(alias.name) if is_dotted else None
                if inner is not None:
                    yield from ((inner, bound) for bound in inner.bound)
            return
        origin = _origin(module, node, name)
        base, _, attribute = origin.rpartition(".")
        source = self._modules.get(base)
        if source is not None and self._modules.get(origin) is None:
            yield source, attribute

    def _starred(self, module: _Module, name: str) -> Iterator[tuple[_Module, str]]:
        """A name that a module does not define may have come through `from x import *`."""
        for statement in module.bound.get("*", ()):
            assert isinstance(statement, ast.ImportFrom)
            source = self._modules.get(_base(module, statement))
            if source is not None:
                yield source, name


def _origin(module: _Module, node: ast.Import | ast.ImportFrom, name: str) -> str:
    """What an imported name stands for: `package.module` or `package.module.attribute`."""
    for alias in node.names:
        if name == (alias.asname or alias.name):
            return (
                alias.name
                if isinstance(node, ast.Import)
                else f"{_base(module, node)}.{alias.name}"
            )
    # `import package.module` binds `package`.
    return name


def _base(module: _Module, node: ast.ImportFrom) -> str:
    """The module that `from … import` names, relative ones resolved."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    kept = parts[: len(parts) - node.level + (1 if module.is_package else 0)]
    return ".".join([*kept, *([node.module] if node.module else [])])


def _bound(statement: ast.stmt) -> Iterator[str]:
    """The module-level names that a statement binds, also inside `if`, `try`, `with` and `for`."""
    match statement:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            return
        case ast.Import(names=names):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in names)
            return
        case ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name for alias in names)
            return
    for node in ast.iter_child_nodes(statement):
        if isinstance(node, ast.stmt):
            yield from _bound(node)
        elif isinstance(node, ast.ExceptHandler):
            for inner in node.body:
                yield from _bound(inner)
        else:
            yield from (
                found.id
                for found in ast.walk(node)
                if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Store)
            )


def _mentioned(statement: ast.stmt) -> frozenset[str]:
    return frozenset(_uses(statement))


def _uses(statement: ast.stmt) -> dict[str, set[str]]:
    """The names a statement reads, each with the attributes it takes of it; none: all of it."""
    uses: dict[str, set[str]] = {}
    whole: set[str] = set()
    attributed: set[int] = set()
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(value=ast.Name(id=name) as base, attr=attribute):
                uses.setdefault(name, set()).add(attribute)
                attributed.add(id(base))
            case ast.Name(id=name, ctx=ast.Load()) if id(node) not in attributed:
                whole.add(name)
    return {**uses, **{name: set() for name in whole}}
