"""Goal: an embedded server whose making was interrupted is made properly the next time.

Method: the folder is left as an interrupted first start leaves it, then started for real.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import psycopg
import pytest

from unfork.database.embedded import Embedded

pytestmark = pytest.mark.postgres


def test_half_a_cluster_never_counts_as_made() -> None:
    with tempfile.TemporaryDirectory(prefix="unfork-") as folder:
        half = Path(folder) / "data.new"
        half.mkdir()
        (half / "PG_VERSION").write_text("18\n")
        (Path(folder) / "data").mkdir()
        embedded = Embedded(Path(folder))
        dsn = embedded.start()
        try:
            with psycopg.connect(dsn) as connection:
                row = connection.execute("SHOW listen_addresses").fetchone()
        finally:
            embedded.stop()
        assert row == ("",), "our own settings hold, and nothing listens on the network"
        assert not half.exists()
