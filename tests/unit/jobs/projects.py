"""Writes small project folders: an unfork.yaml with the files it names, and reads their jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from unfork.config.load import load
from unfork.errors import ConfigInvalid
from unfork.jobs import catalog
from unfork.jobs.catalog import Catalog
from unfork.jobs.spec import JobSpec


def project(folder: Path, jobs: str, files: dict[str, str] | None = None) -> Path:
    """A folder with these jobs and files."""
    (folder / "unfork.yaml").write_text(jobs)
    for name, text in (files or {}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def read(
    folder: Path, jobs: str, files: dict[str, str] | None = None, *, imports: bool = False
) -> Catalog:
    """The jobs of such a folder."""
    loaded = load(env={}, folder=project(folder, jobs, files))
    return catalog.read(loaded, imports=imports)


def specs(folder: Path, jobs: str, files: dict[str, str] | None = None) -> dict[str, JobSpec]:
    """The same by name."""
    return {spec.name: spec for spec in read(folder, jobs, files).specs}


def problems(
    folder: Path, jobs: str, files: dict[str, str] | None = None, *, imports: bool = False
) -> list[str]:
    """What is wrong with them, without the folder's own name."""
    with pytest.raises(ConfigInvalid) as caught:
        read(folder, jobs, files, imports=imports)
    return [text.replace(f"{folder}/", "") for text in caught.value.fields["problems"]]
