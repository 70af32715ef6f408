"""Goal: a value over the limit leaves the row, is kept once, and comes back as if it had not left;
rows of another block never come in (I3)."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.batches import batch, table
from tests.places import Place
from unfork import errors
from unfork.chain.span import Span
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot.store import HotStore
from unfork.testing import oracle

LIMIT = 100
LARGE = b"\x07" * 101


async def opened(place: Place) -> HotStore:
    store = place.store(inline_max_bytes=LIMIT)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    return store


def changed(original: Batch, name: str, **values: Any) -> Batch:
    """The batch with some columns of one table set in every row."""
    dataset = evm.BY_NAME[name]
    rows = original.tables[name].to_pylist()
    for row in rows:
        row.update(values)
    return replace(original, tables={**original.tables, name: _arrow(dataset.schema, rows)})


def _arrow(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def busy_block() -> Batch:
    tree = Tree(Knobs(density=8))
    block = tree.at(0)
    while not all(oracle.rows(block)[name] for name in ("transactions", "logs", "traces")):
        tree.extend(1)
        block = tree.head
    made = batch(block)
    rows = oracle.rows(block)
    return replace(made, tables={n: table(evm.BY_NAME[n], rows[n]) for n in made.tables})


async def test_large_values_leave_the_row_and_come_back_whole(any_place: Place) -> None:
    store = any_place.store(inline_max_bytes=LIMIT)
    block = busy_block()
    await store.open()
    await store.claim(chain_id=1337, start=block.span.first)
    sent = changed(block, "transactions", input=LARGE)
    sent = changed(sent, "logs", data=b"\x07" * LIMIT)
    sent = changed(sent, "traces", input=LARGE, output=None)
    await store.commit(sent)
    rows = await any_place.rows("SELECT input, payload_hash, payload_ref FROM {raw}.transactions")
    assert {row["input"] for row in rows} == {None}
    assert {row["payload_hash"] for row in rows} == {hashlib.sha256(LARGE).digest()}
    inline = await any_place.rows("SELECT data, payload_hash FROM {raw}.logs")
    assert {(row["data"], row["payload_hash"]) for row in inline} == {(b"\x07" * LIMIT, None)}
    found = await any_place.rows("SELECT hash, size FROM {raw}.payloads")
    assert [(row["hash"], row["size"]) for row in found] == [(rows[0]["payload_hash"], 101)]
    whole = await any_place.reader().rows(evm.TRACES, Span(0, 10**6))
    assert {(row["input"], row["output"]) for row in whole} == {(LARGE, None)}


async def test_a_commit_touches_the_payloads_it_uses_again(place: Place) -> None:
    tree = Tree(Knobs(density=8))
    tree.extend(6)
    store = await opened(place)
    first = changed(batch(*[tree.at(n) for n in range(4)]), "transactions", input=LARGE)
    second = changed(batch(*[tree.at(n) for n in range(4, 7)]), "transactions", input=LARGE)
    await store.commit(first)
    await place.rows("UPDATE {raw}.payloads SET touched_at = now() - interval '9 days'")
    await store.commit(second)
    rows = await place.rows(
        "SELECT touched_at > now() - interval '1 day' AS is_young FROM {raw}.payloads "
        "WHERE hash = %(hash)s",
        hash=hashlib.sha256(LARGE).digest(),
    )
    assert rows == [{"is_young": True}]


async def test_a_row_holds_its_value_or_its_address_and_never_both(any_place: Place) -> None:
    store = any_place.store()
    block = busy_block()
    await store.open()
    await store.claim(chain_id=1337, start=block.span.first)
    await store.commit(block)
    for change in (
        "UPDATE {raw}.transactions SET payload_hash = '\\x01', payload_ref = 'x'",
        "UPDATE {raw}.transactions SET input = NULL",
        "UPDATE {raw}.logs SET data = NULL, payload_hash = '\\x01'",
        "UPDATE {raw}.traces SET input = '', payload_hash = '\\x01', payload_ref = 'x'",
    ):
        with pytest.raises(errors.RowRefused):
            await any_place.rows(change)


async def test_rows_of_another_block_are_refused(place: Place) -> None:
    block = busy_block()
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=block.span.first)
    for wrong in (
        changed(block, "logs", block_hash=b"\x01" * 32),
        changed(block, "logs", block_number=block.span.first + 1),
        changed(block, "blocks", parent_hash=b"\x01" * 32),
        changed(block, "transactions", block_hash=b"\x01" * 31),
        replace(block, tables={**block.tables, "blocks": block.tables["blocks"].slice(1)}),
    ):
        with pytest.raises(errors.RowRefused):
            await store.commit(wrong)
    with pytest.raises(errors.RowRefused, match="0x00"):
        await store.commit(changed(block, "traces", trace_type="a\x00b"))
    with pytest.raises(errors.RowRefused, match="duplicate key"):
        await store.commit(changed(block, "logs", log_index=1))
    assert (await store.state()).position is None
    assert await place.rows("SELECT * FROM {raw}.blocks") == []
    await store.commit(block)
