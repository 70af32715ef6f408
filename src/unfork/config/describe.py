"""Owns what is said about the configuration: every key with its type, default and sentence.

The starter file of `unfork init` and docs/configuration.md are both written from here, so neither
can differ from the tree.
"""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from unfork.config import environment, tree
from unfork.config.branch import below, listed
from unfork.config.draft import Path

#: Stands for the name of a chain in the name of a variable.
CHAIN = "<CHAIN>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of the tree, a branch or a value."""

    #: Names from the root; the key of a list of chains is followed by the keys of one chain.
    path: tuple[str, ...]
    #: What it says of itself.
    sentence: str
    #: Whether keys follow below it.
    is_branch: bool
    #: What may be written, in words; empty for a branch.
    kind: str
    #: The default as YAML writes it; empty for a branch and for what must be given.
    default: str
    #: Variables that set it, the exact one first.
    variables: tuple[str, ...]

    @property
    def dotted(self) -> str:
        """As the documentation names it: `chains[].source.urls`."""
        first, *rest = self.path
        return ".".join([f"{first}[]" if self.is_listed else first, *rest])

    @property
    def is_listed(self) -> bool:
        """Whether it is a list of branches, or belongs to one of them."""
        return listed(tree.Config.model_fields[self.path[0]].annotation) is not None


def keys() -> Iterator[Key]:
    """Every key, branches before what is in them, in the order of the tree."""
    yield from _keys(tree.Config, (), ())


def _keys(
    model: type[BaseModel], path: tuple[str, ...], above: tuple[type[BaseModel], ...]
) -> Iterator[Key]:
    for name, info in model.model_fields.items():
        branch = below(info.annotation)
        if branch in above:
            branch = None  # It holds itself; what may stand there was told above.
        here = (*path, name)
        yield Key(
            path=here,
            sentence=" ".join((info.description or "").split()),
            is_branch=branch is not None,
            kind="" if branch else _kind(info),
            default="" if branch else _default(info),
            variables=() if branch else _variables(here),
        )
        if branch is not None:
            yield from _keys(branch, here, (*above, branch))


def _variables(path: tuple[str, ...]) -> tuple[str, ...]:
    if path == ("chains", "name") or path[0] in ("jobs", "decode", "schedules"):
        return ()  # A chain has its variables by its name; jobs are set as a whole, as JSON.
    parts = ["CHAINS", CHAIN, *path[1:]] if path[0] == "chains" else list(path)
    exact = environment.PREFIX + "__".join(part.upper() for part in parts)
    pattern: Path = ("chains", "*", *path[1:]) if path[0] == "chains" else path
    short = [name for name, key in environment.SHORT_NAMES.items() if key == pattern]
    return (exact, *short)


def _default(info: FieldInfo) -> str:
    if info.default_factory is not None:
        return "64"
    if info.is_required():
        return ""
    value = info.default
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def _kind(info: FieldInfo) -> str:
    text = _type(info.annotation)
    for bound in info.metadata:
        match bound:
            case Ge(ge=low):
                text += f", at least {low}"
            case Gt(gt=low):
                text += f", more than {low}"
            case Le(le=high):
                text += f", at most {high}"
    return text


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(str(argument) for argument in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type(a) for a in arguments)
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return f"{_type(arguments[1])} by {_type(arguments[0])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return " or ".join(["text", *annotation.model_fields])
    names = {
        int: "whole number",
        float: "number",
        str: "text",
        bool: "true or false",
        Any: "anything",
    }
    return names.get(annotation, "null")
