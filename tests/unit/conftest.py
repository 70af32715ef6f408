"""Gives the tests the real chains that lie beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import recorded


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of recorded chains."""
    return recorded.folder()
