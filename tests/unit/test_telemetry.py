"""Goal: log lines are read by people and by machines alike, and hold no secret.

Method: real log records through the real formatters, to captured standard error.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from unfork import telemetry


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger below unfork's own, which is put back as it was."""
    root = logging.getLogger("unfork")
    handlers, level, propagates = list(root.handlers), root.level, root.propagate
    yield telemetry.logger("tests")
    root.handlers[:] = handlers
    root.setLevel(level)
    root.propagate = propagates


URL = "postgresql://user:hunter2@host:1/db"


def test_a_line_of_text_shows_characters_as_they_are(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.configure(as_json=False)
    telemetry.event(log, "waiting", reason=f"{telemetry.redact(URL)} is away", hash=b"\x01")
    said = capsys.readouterr().err
    assert said.endswith(' waiting reason="postgresql://host:1/… is away" hash=0x01\n')


def test_a_line_of_json_shows_characters_as_they_are(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.configure(as_json=True)
    telemetry.event(log, "waiting", url=telemetry.redact(URL))
    said = capsys.readouterr().err
    assert '"postgresql://host:1/…"' in said
    assert json.loads(said)["url"] == "postgresql://host:1/…"
