"""Owns the fingerprints of a job: what its rows were made with, as two hashes.

`config_hash` covers everything that decides what rows come out: the specification, the settings
and the code. It leaves out what does not: names and comments, layout, when a job runs, what it does
after a change. So a reformatted file is no change, and a changed constant is one. It is the same in
every process, on every machine and in every version of Python. `schema_hash` covers the columns.
Checks decide whether rows are published, not what they are: they have a hash of their own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unfork.jobs import code, sql
from unfork.jobs.spec import JobSpec

#: Raised when the same specification is to be told from what an earlier release made of it.
VERSION = 1


def config_hash(spec: JobSpec, folder: Path | None) -> str:
    """The hash of what decides a job's rows; `folder` is where its modules are looked for.

    Raises code.CodeMissing, or OSError where the SQL file cannot be read.
    """
    return _hash({"version": VERSION, "spec": _decisive(spec), "code": _code(spec, folder)})


def checks_hash(spec: JobSpec) -> str:
    """The hash of what a job's rows must fulfil, empty where that is nothing."""
    return _hash([check.decisive for check in spec.checks]) if spec.checks else ""


def schema_hash(columns: Mapping[str, str]) -> str:
    """The hash of a dataset's columns (name to type), whatever their order."""
    return _hash(sorted(columns.items()))


def _decisive(spec: JobSpec) -> dict[str, Any]:
    # Left out where there is none, so that other jobs are what they were before there were any.
    lookups = {name: [each.column, each.by] for name, each in spec.lookups.items()}
    reads = [read.document() for read in spec.reads]
    return {
        **({"lookups": lookups} if lookups else {}),
        **({"reads": reads} if reads else {}),
        "inputs": list(spec.inputs),
        "output": spec.output,
        "mode": spec.mode.value,
        "strategy": spec.strategy.value,
        "unique_key": list(spec.unique_key),
        "partition": None if spec.partitioning is None else str(spec.partitioning),
        "rules": {column: rule.value for column, rule in spec.rules.items()},
        "config": spec.config,
    }


def _code(spec: JobSpec, folder: Path | None) -> Any:
    if spec.sql is not None:
        # The names are part of the text: an input that is called otherwise is read otherwise.
        text = spec.sql.read_text(encoding="utf-8")
        return {"sql": sql.normalized(text), "names": list(spec.input_names)}
    assert spec.transform is not None
    pieces = list(code.used_by(spec.transform, folder))
    for function in dict.fromkeys(read.asking.function for read in spec.reads if read.asking):
        pieces += code.used_by(function, folder)
    return {
        "transform": spec.transform,
        "pieces": [[piece.module, piece.text] for piece in pieces],
    }


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()
