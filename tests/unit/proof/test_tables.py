"""Goal: a batch of Arrow tables is checked as a source hands it on, block by block.

Method: proven devnet blocks as tables; then values changed, rows moved and tables left out.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.batches import batch
from unfork.datasets import evm
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.proof.finding import Check, Outcome
from unfork.proof.rows import check_tables


@pytest.fixture(scope="module", params=[False, True])
def chain(request: pytest.FixtureRequest) -> list[Block]:
    tree = Tree(Knobs(seed=15, density=6, proven=True, fork_rate=0, hostile=request.param))
    tree.extend(11)
    return [block for number in range(12) if (block := tree.at(number)) is not None]


def failures(tables: dict[str, Any], **settings: Any) -> dict[int, set[Check]]:
    """The checks that failed, by block."""
    found = {
        number: {f.check for f in findings if f.outcome is Outcome.FAILED}
        for number, _, findings in check_tables(tables, **settings)
    }
    return {number: checks for number, checks in found.items() if checks}


def changed(table: pa.Table, row: int, **values: Any) -> pa.Table:
    rows = table.to_pylist()
    rows[row].update(values)
    return pa.Table.from_pylist(rows, schema=table.schema)


def row_of(table: pa.Table, number: int) -> int:
    """The first row that belongs to a block."""
    return table.column("block_number").to_pylist().index(number)


def test_every_block_of_a_batch_is_named_and_proven(chain: list[Block]) -> None:
    found = list(check_tables(batch(*chain).tables))
    assert [(number, name) for number, name, _ in found] == [(b.number, b.hash) for b in chain]
    for _, _, findings in found:
        wrong = [f for f in findings if f.outcome is not Outcome.PROVEN]
        # A hostile chain counts its logs with gaps, which nothing can prove.
        assert {f.check for f in wrong} <= {Check.LOG_INDEXES, Check.SENDERS, Check.TRACE_VALUES}
        assert all(f.outcome is Outcome.UNPROVEN for f in wrong)


def test_a_changed_value_fails_at_its_block_alone(chain: list[Block]) -> None:
    tables = dict(batch(*chain).tables)
    logs = tables["logs"]
    number = logs.column("block_number").to_pylist()[-1]
    tables["logs"] = changed(logs, row_of(logs, number), address=bytes(20))
    assert failures(tables) == {number: {Check.RECEIPTS_ROOT, Check.LOGS_BLOOM}}


@pytest.mark.parametrize(
    ("column", "check"),
    [
        ("effective_gas_price", Check.GAS_PRICES),
        ("contract_address", Check.CREATED_CONTRACTS),
    ],
)
def test_a_value_that_a_node_worked_out_wrongly_fails(
    chain: list[Block], column: str, check: Check
) -> None:
    tables = dict(batch(*chain).tables)
    table = tables["transactions"]
    values = table.column(column).to_pylist()
    at = next(at for at, value in enumerate(values) if value is not None)
    other = values[at] + 1 if isinstance(values[at], int) else bytes(len(values[at]))
    tables["transactions"] = changed(table, at, **{column: other})
    number = table.column("block_number").to_pylist()[at]
    assert check in failures(tables)[number]


def test_a_trace_that_a_node_left_out_fails(chain: list[Block]) -> None:
    tables = dict(batch(*chain).tables)
    traces = tables["traces"]
    number = traces.column("block_number").to_pylist()[-1]
    tables["traces"] = traces.slice(0, traces.num_rows - 1)
    assert failures(tables) == {number: {Check.TRACE_TREES}}


def test_receipts_of_another_block_fail(chain: list[Block]) -> None:
    tables = dict(batch(*chain).tables)
    table = tables["transactions"]
    number = table.column("block_number").to_pylist()[-1]
    at = row_of(table, number)
    gas = table.column("cumulative_gas_used").to_pylist()[at]
    tables["transactions"] = changed(table, at, cumulative_gas_used=gas + 1)
    assert failures(tables) == {number: {Check.RECEIPTS_ROOT, Check.GAS_USED}}


@pytest.mark.parametrize("number", [-1, 99])
def test_rows_that_belong_to_no_block_of_the_batch_fail(chain: list[Block], number: int) -> None:
    tables = dict(batch(*chain).tables)
    extra = changed(tables["logs"].slice(0, 1), 0, block_number=number)
    parts = [extra, tables["logs"]] if number < 0 else [tables["logs"], extra]
    tables["logs"] = pa.concat_tables(parts)
    assert any(Check.PLACEMENT in checks for checks in failures(tables).values())


def test_a_batch_of_filtered_logs_fails_nowhere_and_leaves_the_rest_unproven(
    chain: list[Block],
) -> None:
    tables = dict(batch(*chain, scope=Scope(kind="logs")).tables)
    tables["logs"] = tables["logs"].slice(0, 3)
    assert failures(tables, logs_filtered=True) == {}
    for _, _, findings in check_tables(tables, logs_filtered=True):
        by_check = {finding.check: finding.outcome for finding in findings}
        assert by_check[Check.HEADER_HASH] is Outcome.PROVEN
        assert by_check[Check.LOGS_BLOOM] is Outcome.UNPROVEN
        assert by_check[Check.TRANSACTIONS_ROOT] is Outcome.UNPROVEN
    assert failures(tables) != {}, "the same logs without a filter are too few"


def test_a_batch_without_rows_has_no_findings() -> None:
    empty = {dataset.name: dataset.schema.empty_table() for dataset in evm.DATASETS}
    assert list(check_tables(empty)) == []
