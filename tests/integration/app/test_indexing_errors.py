"""Goal: an error is one row however often it comes, cannot run away, and closes by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.places import Place
from unfork import errors, wiring
from unfork.app.indexing_errors import IndexingErrors
from unfork.chain.span import Span
from unfork.config import tree
from unfork.hot.repair import Repair


def book(place: Place) -> IndexingErrors:
    return IndexingErrors(place.name, place.database(), place.payloads())


async def record(place: Place, **changes: Any) -> None:
    given: dict[str, Any] = {
        "worker_name": "raw_ingester",
        "block_number": 7,
        "transaction_id": None,
        "severity": "WARN",
        "message": "receipts of another block",
        "raw_data": b"{}",
    }
    await book(place).record(**{**given, **changes})


async def rows(place: Place) -> list[dict[str, Any]]:
    return await place.rows("SELECT * FROM {app}.indexing_errors ORDER BY id")


async def test_the_same_error_of_the_same_place_is_counted_not_repeated(any_place: Place) -> None:
    for _ in range(3):
        await record(any_place)
    await record(any_place, block_number=None)
    await record(any_place, block_number=None)
    await record(any_place, transaction_id=b"\x01")
    await record(any_place, message="another one")
    await record(any_place, worker_name="other")
    assert [row["occurrences"] for row in await rows(any_place)] == [3, 2, 1, 1, 1]


async def test_an_error_closes_when_its_span_succeeds_and_opens_when_it_returns(
    any_place: Place,
) -> None:
    await record(any_place)
    await record(any_place, block_number=99)
    await record(any_place, block_number=None)
    assert await book(any_place).resolve(worker_name="raw_ingester", span=Span(5, 10)) == 2
    assert await book(any_place).resolve(worker_name="raw_ingester", span=Span(5, 10)) == 0
    assert [row["resolved"] for row in await rows(any_place)] == [True, False, True]
    assert [row["resolved_at"] is None for row in await rows(any_place)] == [False, True, False]
    await record(any_place, severity="FATAL")
    first = (await rows(any_place))[0]
    assert (first["resolved"], first["resolved_at"], first["occurrences"]) == (False, None, 2)
    assert first["severity"] == "FATAL"
    opened = await book(any_place).unresolved()
    assert {row["block_number"] for row in opened} == {7, 99}


async def test_refused_data_is_cut_in_the_row_and_whole_in_the_store(any_place: Place) -> None:
    large = bytes(range(256)) * 17
    await record(any_place, raw_data=large)
    await record(any_place, raw_data=large[:4096], message="as large as a row may hold")
    await record(any_place, raw_data=None, message="nothing came")
    found = await rows(any_place)
    assert [row["raw_data"] for row in found] == [large[:4096], large[:4096], None]
    assert [row["raw_ref"] is None for row in found] == [False, True, True]
    whole = any_place.folder / "payloads" / found[0]["raw_ref"]
    assert whole.read_bytes() == large


async def test_refused_data_is_not_swept_with_the_payloads_of_rows(
    place: Place, tmp_path: Path
) -> None:
    config = tree.Config(data_dir=str(tmp_path))
    store = wiring.error_payloads(config, place.chain())
    errors_of = IndexingErrors(place.name, place.database(), store)
    await errors_of.record(
        worker_name="raw_ingester",
        block_number=1,
        transaction_id=None,
        severity="WARN",
        message="large",
        raw_data=b"x" * 5000,
    )
    raw = wiring.payloads(config, place.chain())
    repair = Repair(place.name, "evm", place.database(), raw, sweep_grace_s=0)
    assert [finding async for finding in repair.run(mend=True)] == []
    (row,) = await rows(place)
    assert (tmp_path / "payloads" / place.name / "errors" / row["raw_ref"]).exists()


async def test_an_error_about_a_nul_byte_can_still_be_told(any_place: Place) -> None:
    await record(any_place, message="bad name: a\x00b" + "x" * 5000)
    (row,) = await rows(any_place)
    assert row["message"].startswith("bad name: a\\0b")
    assert len(row["message"]) == 2000


async def test_no_other_severity_and_no_larger_data_fit_the_table(any_place: Place) -> None:
    await record(any_place)
    for change in ("severity = 'INFO'", "raw_data = repeat('x', 4097)::bytea"):
        with pytest.raises(errors.RowRefused):
            await any_place.rows(f"UPDATE {{app}}.indexing_errors SET {change}")


async def test_the_table_has_the_indexes_that_triage_needs(any_place: Place) -> None:
    found = await any_place.rows(
        "SELECT indexdef FROM pg_indexes WHERE schemaname = %(schema)s AND "
        "tablename = 'indexing_errors'",
        schema=any_place.app,
    )
    text = " ".join(row["indexdef"] for row in found)
    assert "(resolved, worker_name, created_at DESC)" in text
    assert "(block_number)" in text
    key = "(worker_name, block_number, transaction_id, error_hash, generation_id)"
    assert f"{key} NULLS NOT DISTINCT" in text
