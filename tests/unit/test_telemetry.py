"""Goal: log lines are read by people and by machines alike, and hold no secret.

Method: real log records through the real formatters, to captured standard error.
"""

from __future__ import annotations

import json
import logging

import pytest

from unfork import telemetry

URL = "postgresql://user:hunter2@host:1/db"


def test_a_line_of_text_shows_characters_as_they_are(
    own_log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.configure(as_json=False)
    telemetry.event(own_log, "waiting", reason=f"{telemetry.redact(URL)} is away", hash=b"\x01")
    said = capsys.readouterr().err
    assert said.endswith(' waiting reason="postgresql://host:1/… is away" hash=0x01\n')


def test_a_line_of_json_shows_characters_as_they_are(
    own_log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.configure(as_json=True)
    telemetry.event(own_log, "waiting", url=telemetry.redact(URL))
    said = capsys.readouterr().err
    assert '"postgresql://host:1/…"' in said
    assert json.loads(said)["url"] == "postgresql://host:1/…"
