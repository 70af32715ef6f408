"""Goal: whoever runs the embedded server as root is told which folders were opened for its user.

Method: real folders; the log is read back.
"""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from unfork.database import embedded


def test_a_folder_that_others_may_now_pass_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed = tmp_path / "closed"
    (closed / "open").mkdir(parents=True)
    closed.chmod(0o700)
    (closed / "open").chmod(0o755)
    with caplog.at_level(logging.WARNING, logger="unfork"):
        embedded._let_through(closed / "open" / "data")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o701, "passed, and not read"
    told = [record.__dict__["fields"]["folder"] for record in caplog.records]
    assert closed in told and closed / "open" not in told
    caplog.clear()
    embedded._let_through(closed / "open" / "data")
    assert not caplog.records, "what is open already needs no word"
