"""Owns the one way to a configuration: file, then environment, then flags, checked once, at start.

The file is `unfork.yaml` of the working folder or the nearest folder above it, or the one named by
`--config` or UNFORK_CONFIG; a `.env` file beside it adds to the environment without overriding it.
Relative paths in the file are relative to the file. Everything that is wrong is reported at once,
with the place it was written in; values that may be secrets are never part of a message.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

import dotenv
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from unfork.config import document, environment, tree
from unfork.config.branch import below, keyed
from unfork.config.decode import Addresses
from unfork.config.draft import Draft, Origin, Path, Problem, closest, dotted
from unfork.config.jobs import Job
from unfork.errors import ConfigInvalid

FILE_NAME = "unfork.yaml"

#: What is expected, in the words of the file instead of Python's, by the type of the error.
SHAPES = {
    "tuple_type": "input should be a list",
    "dict_type": "input should be a mapping of keys to values",
    "model_type": "input should be a mapping of keys to values",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One key set on the command line."""

    #: The key, from the root; a chain is addressed by its name.
    path: Path
    value: Any
    #: The flag as the person typed it.
    flag: str
    #: Whether it may add a chain to those that are listed already.
    adds_chain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A checked configuration and the file it came from."""

    config: tree.Config
    #: None where no file was found and the defaults hold.
    file: File | None
    #: Where each key was written, for those who check relations that the tree does not know.
    origins: Mapping[Path, Origin] = field(default_factory=dict, compare=False, repr=False)

    def where(self, path: Path) -> str:
        """Where a key, or the closest one around it that was written, was written."""
        found = closest(self.origins, path)
        return "configuration" if found is None else found.text


def load(
    file: File | None = None,
    *,
    env: Mapping[str, str] | None = None,
    folder: File | None = None,
    flags: Sequence[Flag] = (),
    fallback: Mapping[str, Any] | None = None,
) -> Loaded:
    """The configuration as it holds for this run, or ConfigInvalid with every problem found.

    `env` and `folder` stand for the process's own environment and working folder. A flag that
    addresses a chain adds it where no chain is listed. `fallback` is the chain that there is where
    nobody names one.
    """
    env = dict(os.environ if env is None else env)
    folder = folder or File.cwd()
    file = _chosen(file, env, folder)
    draft = Draft()
    if file is not None:
        env = {**_beside(file), **env}
        document.read(file, env, draft)
    _name_chains(draft, env, flags, fallback)
    environment.read(env, draft)
    for flag in flags:
        path = _position(draft, flag.path)
        if path is not None:
            draft.put(path, flag.value, Origin(flag.flag))
    config = _checked(draft, (file.parent if file else folder).resolve())
    return Loaded(config=config, file=file, origins=draft.origins)


def find(folder: File) -> File | None:
    """The nearest unfork.yaml, in this folder or one above it."""
    for candidate in (folder, *folder.resolve().parents):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    return None


def _chosen(file: File | None, env: Mapping[str, str], folder: File) -> File | None:
    if file is None and env.get("UNFORK_CONFIG"):
        file = File(env["UNFORK_CONFIG"])
    return find(folder) if file is None else file


def _beside(file: File) -> dict[str, str]:
    """The variables of the .env file in the same folder; the environment itself wins over them."""
    beside = file.parent / ".env"
    if not beside.is_file():
        return {}
    values = dotenv.dotenv_values(beside, interpolate=False)
    return {name: value for name, value in values.items() if value}


def _name_chains(
    draft: Draft, env: Mapping[str, str], flags: Sequence[Flag], fallback: Mapping[str, Any] | None
) -> None:
    """Lists the chains that flags address, or the one there is by default, beside the file's."""
    listed = draft.chain_names()
    is_open = "chains" not in draft.data and not env.get(f"{environment.PREFIX}CHAINS")
    for flag in (flag for flag in flags if flag.path[0] == "chains"):
        name = str(flag.path[1])
        if name in draft.chain_names():
            continue
        if is_open or flag.adds_chain:
            _list_chain(draft, {"name": name}, Origin(flag.flag))
        elif listed:
            near = difflib.get_close_matches(name, listed, n=1)
            hint = f"did you mean `{near[0]}`?" if near else "list it under `chains:` first"
            what = f"no chain is called `{name}`; {hint}"
            draft.problems.append(Problem(flag.flag, what))
    if is_open and fallback is not None and not draft.chain_names():
        _list_chain(draft, dict(fallback), Origin("the chain that is there by default"))


def _list_chain(draft: Draft, chain: dict[str, Any], origin: Origin) -> None:
    chains = draft.data.setdefault("chains", [])
    if isinstance(chains, list):
        chains.append(chain)
        draft.origins[("chains", len(chains) - 1)] = origin


def _position(draft: Draft, path: Path) -> Path | None:
    """The same path with the chain's name replaced by its place in the list, if it has one."""
    if path[0] != "chains":
        return path
    names = draft.chain_names()
    return ("chains", names.index(str(path[1])), *path[2:]) if path[1] in names else None


def _checked(draft: Draft, base: File) -> tree.Config:
    problems = list(draft.problems)
    try:
        config = tree.Config(**draft.data)
    except ValidationError as error:
        # A reference that could not be replaced is one problem, not also a missing value.
        blamed = {problem.where for problem in problems}
        found = (
            _explained(details, draft)
            for details in error.errors()
            # A default that is computed from a value that was refused is no second problem.
            if details["type"] != "default_factory_not_called"
        )
        problems.extend(problem for problem in found if problem.where not in blamed)
    if problems:
        raise refusal(problems)
    return _anchored(config, base)


def refusal(problems: Sequence[Problem]) -> ConfigInvalid:
    """The error that names every problem, in the order of the lines."""
    texts = [str(problem) for problem in _ordered(problems)]
    return ConfigInvalid("\n".join(texts), problems=texts)


def _anchored(config: tree.Config, base: File) -> tree.Config:
    """The configuration with its folders and files made absolute."""
    update: dict[str, Any] = {"data_dir": str(base / File(config.data_dir).expanduser())}
    store = config.payloads.store
    if store is not None and ":" not in store:
        payloads = {"store": str(base / File(store).expanduser())}
        update["payloads"] = config.payloads.model_copy(update=payloads)
    update["jobs"] = tuple(_anchored_job(job, base) for job in config.jobs)
    update["decode"] = tuple(
        each.model_copy(
            update={"abi": str(base / each.abi), "addresses": _anchored_abi(each.addresses, base)}
        )
        for each in config.decode
    )
    return config.model_copy(update=update)


def _anchored_job(job: Job, base: File) -> Job:
    """A job with its SQL files, and those of its checks, made absolute."""
    checks = tuple(
        check.model_copy(update={"sql": str(base / str(check.sql))}) if check.is_file else check
        for check in job.checks
    )
    sql = None if job.sql is None else str(base / job.sql)
    return job.model_copy(update={"sql": sql, "checks": checks})


def _anchored_abi(addresses: Addresses, base: File) -> Addresses:
    """Addresses with the ABI files of their factories made absolute."""
    factory = addresses.factory
    if factory is None:
        return addresses
    update = {"abi": str(base / factory.abi), "address": _anchored_abi(factory.address, base)}
    return addresses.model_copy(update={"factory": factory.model_copy(update=update)})


def _ordered(problems: Sequence[Problem]) -> list[Problem]:
    """The file's by line (9 before 10), then the others; each once."""

    def place(problem: Problem) -> tuple[bool, str, int]:
        where, _, line = problem.where.rpartition(":")
        return (False, where, int(line)) if line.isdigit() else (True, problem.where, 0)

    return sorted(dict.fromkeys(problems), key=place)


def _explained(details: ErrorDetails, draft: Draft) -> Problem:
    path = tuple(details["loc"])
    origin = draft.origin(path)
    where = origin.text if origin is not None else "configuration"
    if details["type"] == "extra_forbidden":
        return Problem(where, _unknown(path))
    if details["type"] == "missing":
        return Problem(where, f"{dotted(path)} is missing")
    reason = SHAPES.get(details["type"], details["msg"]).removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:] if reason.startswith("Input") else reason
    shown = "" if _is_secret(path, origin, details["input"]) else f" (got {details['input']!r})"
    return Problem(where, f"{dotted(path)}: {reason}{shown}" if path else f"{reason}{shown}")


def _unknown(path: Path) -> str:
    valid = list(_branch(path[:-1]))
    near = difflib.get_close_matches(str(path[-1]), valid, n=1, cutoff=0.5)
    hint = f"did you mean `{near[0]}`?" if near else f"valid here: {', '.join(sorted(valid))}"
    return f"unknown key `{dotted(path)}`; {hint}"


def _branch(path: Path) -> dict[str, FieldInfo]:
    """The fields of the branch that a path leads to, none where it leads to a value."""
    model: Any = tree.Config
    is_name = False
    for key in path:
        if isinstance(key, int) or is_name:
            is_name = False
            continue
        fields: dict[str, FieldInfo] = model.model_fields
        if key not in fields:
            return {}
        model = below(fields[key].annotation)
        is_name = keyed(fields[key].annotation) is not None
        if model is None:
            return {}
    return dict(model.model_fields)


def _is_secret(path: Path, origin: Origin | None, value: Any) -> bool:
    """Whether a value must not be shown; whole branches are not, they may hold anything."""
    if not isinstance(value, str | int | float | bool) or _branch(path):
        return True
    if origin is not None and origin.hidden:
        return True
    steps = ((path[:depth], key) for depth, key in enumerate(path))
    infos = (_branch(above).get(key) for above, key in steps if isinstance(key, str))
    return any(info is not None and info.repr is False for info in infos)
