"""Goal: queries are found by name, and names from outside cannot become SQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from unfork import app, database, hot
from unfork.database.queries import Queries, fill


def test_a_query_is_found_by_name_with_its_schema_filled_in(tmp_path: Path) -> None:
    text = (
        "-- name: one\n-- Says one.\nSELECT 1 FROM {raw}.x;\n\n-- name: two\n-- Two.\nSELECT 2;\n"
    )
    (tmp_path / "some.sql").write_text(text)
    queries = Queries(tmp_path, {"raw": "dev_raw"})
    assert queries.names() == ["one", "two"]
    assert queries["one"].text.endswith('SELECT 1 FROM "dev_raw".x;')
    assert queries["one"].name == "one"


def test_an_identifier_stays_an_identifier_whatever_is_in_it() -> None:
    assert fill("{a}", {"a": 'x"; DROP TABLE y; --'}) == '"x""; DROP TABLE y; --"'
    assert fill("({a})", {"a": ("x", 'y"z')}) == '("x", "y""z")'
    assert fill("{a}", {"a": 12}) == "12"
    with pytest.raises(KeyError):
        fill("{unknown}", {})


def test_a_query_for_a_table_is_named_after_it(tmp_path: Path) -> None:
    (tmp_path / "some.sql").write_text("-- name: count\n-- Counts.\nSELECT count(*) FROM {table};")
    query = Queries(tmp_path, {}).of("count", "logs", table="logs")
    assert (query.name, query.text) == ("count_logs", '-- Counts.\nSELECT count(*) FROM "logs";')


@pytest.mark.parametrize("package", [hot, app, database])
def test_no_python_file_holds_sql(package: object) -> None:
    folder = Path(str(package.__file__)).parent  # type: ignore[attr-defined]
    words = ("SELECT ", "INSERT INTO", "UPDATE ", "DELETE FROM", "CREATE TABLE", "ALTER TABLE")
    for path in folder.glob("*.py"):
        code = path.read_text()
        for word in words:
            assert f'"{word}' not in code and f'f"{word}' not in code, f"{path.name}: {word}"
