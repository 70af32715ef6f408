"""Owns the environment's say in the configuration: which variable sets which key.

Every key has a variable, `UNFORK_` and its path joined by two underscores
(`UNFORK_DATABASE__RAW_URL`); a chain is addressed by its name (`UNFORK_CHAINS__ETHEREUM__START`).
The short names below are older than unfork and work as well; those of a chain's key apply to every
chain. The environment wins over the file, the more exact of two variables over the other one, and
an empty variable counts as not set.

A variable that begins with `UNFORK_` but sets nothing is refused where it was surely meant for us
(it has two underscores, or is close to a real name) and left alone otherwise: platforms inject
variables such as `UNFORK_PORT_5432_TCP` for a service that happens to be called unfork.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from unfork.config import tree
from unfork.config.draft import Draft, Origin, Path, Problem

PREFIX = "UNFORK_"

#: Short names by the key they set; `*` stands for every chain.
SHORT_NAMES: dict[str, Path] = {
    "DB_RAW_URL": ("database", "raw_url"),
    "DB_APP_URL": ("database", "app_url"),
    "SYNC_CONFIRMATIONS": ("sync", "confirmations"),
    "DENORMALIZE_EVENTS": ("sync", "denormalize_events"),
    "PAYLOAD_INLINE_MAX_BYTES": ("payloads", "inline_max_bytes"),
    "SWEEP_GRACE": ("payloads", "sweep_grace_s"),
    "RANGE_SIZE": ("planning", "range_size"),
    "SNAPSHOT_MAX_S": ("spark", "snapshot_max_s"),
    "MAX_REORG_DEPTH": ("chains", "*", "reorg_depth_max"),
    "ORPHAN_KEEP": ("chains", "*", "orphan_keep_blocks"),
}

#: Variables that begin like ours and are no keys: they choose the file, and serve tests.
OTHERS = ("UNFORK_CONFIG", "UNFORK_TEST_")


def read(environment: Mapping[str, str], draft: Draft) -> None:
    """Writes what the environment sets into the draft, over the file's values."""
    given = {name: value for name, value in environment.items() if value}
    if f"{PREFIX}CHAINS" in given:
        _put(draft, ("chains",), f"{PREFIX}CHAINS", given, tree.Config.model_fields["chains"])
    for name, path in SHORT_NAMES.items():
        if name in given:
            for concrete in _each_chain(path, draft):
                draft.put(concrete, given[name], _origin(name))
    known = dict(variables(draft.chain_names()))
    for name in sorted(given):
        if name in known and name != f"{PREFIX}CHAINS":
            path, info = known[name]
            _put(draft, path, name, given, info)
        elif name.startswith(PREFIX) and name not in known and not name.startswith(OTHERS):
            _refuse(name, known, draft)


def variables(chains: list[str]) -> Iterator[tuple[str, tuple[Path, FieldInfo]]]:
    """Every variable with the key it sets, for the given chains (by position)."""
    for path, info in _fields(tree.Config, ()):
        yield _name(path), (path, info)
    for index, chain in enumerate(chains):
        for path, info in _fields(tree.Chain, ()):
            if path == ("name",):
                continue  # A chain is addressed by its name, which therefore cannot change.
            yield _name(("chains", chain, *path)), (("chains", index, *path), info)
        for table in tree.TABLES:
            path = ("chains", index, "partition_sizes", table)
            info = tree.Chain.model_fields["start"]
            yield _name(("chains", chain, "partition_sizes", table)), (path, info)


def _fields(model: type[BaseModel], path: Path) -> Iterator[tuple[Path, FieldInfo]]:
    for name, info in model.model_fields.items():
        annotation = info.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from _fields(annotation, (*path, name))
        else:
            yield (*path, name), info


def _name(path: Path) -> str:
    return PREFIX + "__".join(str(key).upper() for key in path)


def _origin(name: str) -> Origin:
    return Origin(f"environment variable {name}", hidden=True)


def _each_chain(path: Path, draft: Draft) -> list[Path]:
    if "*" not in path:
        return [path]
    chains = draft.data.get("chains")
    count = len(chains) if isinstance(chains, list) else 0
    return [tuple(i if key == "*" else key for key in path) for i in range(count)]


def _put(draft: Draft, path: Path, name: str, given: Mapping[str, str], info: FieldInfo) -> None:
    text = given[name]
    value: Any = text
    if str(info.annotation).startswith(("tuple", "dict")):
        if text.lstrip().startswith(("[", "{")):
            try:
                value = json.loads(text)
            except json.JSONDecodeError as error:
                problem = Problem(_origin(name).text, f"not JSON at column {error.colno}")
                draft.problems.append(problem)
                return
        else:
            value = [part.strip() for part in text.split(",") if part.strip()]
    draft.put(path, value, _origin(name))


def _refuse(name: str, known: Mapping[str, Any], draft: Draft) -> None:
    # The first word of a longer name was meant too (UNFORK_DATA), one letter says nothing.
    begun = [one for one in known if one.startswith(f"{name}_")]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.85) or begun
    if near or "__" in name:
        hint = f"; did you mean {near[0]}?" if near else ""
        draft.problems.append(Problem(_origin(name).text, f"sets no known key{hint}"))
