"""Owns what a file may say of `parquet_compact`: which datasets, and how deep below the head.

It is declared like a job and is none: it computes nothing, so it has no dataset of its own, no
build and no plan. Its work is leased by the versions of the lake themselves (compact.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from unfork.config import jobs as declared
from unfork.config.draft import Problem
from unfork.datasets import evm
from unfork.jobs.spec import JobSpec

#: Blocks below the head that are not compacted, where the file does not say.
THRESHOLD = 100

_PREFIXES = ("hot_", "cold_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is compacted."""

    #: Raw datasets; those of the chain's scope where none is named.
    datasets: tuple[str, ...]
    #: Blocks below the head that are not compacted, whatever is final.
    finality_threshold: int


def of(specs: Iterable[JobSpec]) -> Settings | None:
    """The settings of a configuration's compaction; None where it declares none."""
    return next((settings(spec) for spec in specs if spec.is_compaction), None)


def settings(spec: JobSpec) -> Settings:
    """The settings of a job that was checked."""
    assert spec.is_compaction
    return Settings(
        datasets=spec.inputs,
        finality_threshold=spec.config.get("finality_threshold", THRESHOLD),
    )


def problems(job: declared.Job, where: Callable[..., str]) -> Iterator[Problem]:
    """What is wrong with the entry of the file."""
    for name in job.input_datasets:
        if _bare(name) not in evm.BY_NAME:
            known = ", ".join(evm.BY_NAME)
            what = f"`{job.name}` compacts raw datasets ({known}), not `{name}`"
            yield Problem(where("input_datasets"), what)
    for key in sorted(set(job.config) - {"finality_threshold"}):
        what = f"`{job.name}` knows no `{key}`; there is finality_threshold"
        yield Problem(where("config", key), what)
    threshold = job.config.get("finality_threshold", THRESHOLD)
    if isinstance(threshold, bool) or not isinstance(threshold, int) or threshold < 0:
        what = "finality_threshold must be a number of blocks, at least 0"
        yield Problem(where("config", "finality_threshold"), what)


def _bare(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name
