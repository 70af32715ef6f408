"""Finds the recorded chains that lie beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def folder() -> Path:
    """The folder of recorded chains, or a skip that says where it was looked for."""
    beside = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    found = Path(os.environ.get("UNFORK_TEST_DATA", beside))
    if not found.is_dir():
        pytest.skip(
            f"no recorded chains at {found}; set UNFORK_TEST_DATA to the folder that has them"
        )
    return found
