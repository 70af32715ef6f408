"""Goal: people get text, scripts get exactly one JSON document, and neither gets a riddle.

Method: outputs are written to captured streams and read back.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.cli import output
from unfork.errors import ForkTooDeep, Interrupted, WrongChain


def test_a_json_result_is_one_document_of_plain_values(capsys: pytest.CaptureFixture[str]) -> None:
    made = output.make(True)
    made.note("on the way")
    made.result(
        {
            "ref": BlockRef(5, b"\x01\x02"),
            "span": Span(1, 9),
            "hash": b"\xff",
            "at": datetime(2026, 1, 2, tzinfo=UTC),
            "none": None,
        },
        "text for people",
    )
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "ref": {"number": 5, "hash": "0x0102"},
        "span": {"first": 1, "last": 9},
        "hash": "0xff",
        "at": "2026-01-02T00:00:00+00:00",
        "none": None,
    }
    assert said.err == "on the way\n"


def test_what_fails_after_the_answer_is_told_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    made = output.make(True)
    made.result({"http": "http://127.0.0.1:1"})
    made.error(Interrupted())
    said = capsys.readouterr()
    assert json.loads(said.out) == {"http": "http://127.0.0.1:1"}
    assert json.loads(said.err)["error"]["code"] == "E001"


def test_an_error_has_its_code_its_hint_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    error = ForkTooDeep("it is 9 deep", depth=9, raw=object())
    output.make(True).error(error)
    document = json.loads(capsys.readouterr().out)["error"]
    assert document == {
        "code": "E302",
        "exit_code": 4,
        "message": "it is 9 deep",
        "hint": "The fork is deeper than MAX_REORG_DEPTH; an operator must unwind by hand.",
        "fields": {"depth": 9},
    }
    output.make(False).error(error)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "error E302: it is 9 deep",
        f"hint: {document['hint']}",
        "more: docs/errors.md#e302",
    ]


def test_a_hint_does_not_repeat_the_message() -> None:
    assert output.hint_of(WrongChain()) == ""
    assert output.hint_of(WrongChain("chain 5, not 1")) != ""


def test_nobody_to_ask_means_no(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.make(True).confirm("Remove them?") is False
    assert output.make(False).confirm("Remove them?") is False
    assert "--yes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 30, "5.0 GiB"), (3 << 40, "3.0 TiB")],
)
def test_sizes_are_told_as_people_read_them(count: int, text: str) -> None:
    assert output.size(count) == text


def test_text_from_outside_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("[bold]not markup[/bold]", 1234567, None, True)]
    output.make(False).result({}, output.table(("a", "b", "c", "d"), rows))
    line = capsys.readouterr().out.splitlines()[1]
    assert line.split() == ["[bold]not", "markup[/bold]", "1,234,567", "-", "yes"]
