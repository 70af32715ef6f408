"""Shows that expected rows are complete and that a comparison finds every kind of difference.

Method: the columns of expected rows are held against the declarations of the datasets, a block made
by hand has rows written out by hand, and rows are damaged one at a time.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from unfork.datasets import evm
from unfork.datasets.dataset import Dataset, Kind
from unfork.devnet.block import Block, Call, Executed
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.proof.header import Header
from unfork.proof.receipt import Log, Withdrawal
from unfork.proof.transaction import Authorization, Transaction
from unfork.testing import compare, oracle

_PYTHON = {
    Kind.INT: int,
    Kind.U256: int,
    Kind.BYTES: bytes,
    Kind.TEXT: str,
    Kind.TIME: datetime,
    Kind.BYTES_LIST: list,
    Kind.JSON: list,
}


@pytest.fixture(scope="module")
def expected() -> oracle.Rows:
    tree = Tree(Knobs(seed=1, density=6, hostile=True))
    tree.extend(60)
    return oracle.canonical_rows(tree, 0, 60)


@pytest.mark.parametrize("dataset", evm.DATASETS, ids=lambda dataset: dataset.name)
def test_every_row_has_every_column_of_its_dataset_with_a_value_of_its_kind(
    dataset: Dataset, expected: oracle.Rows
) -> None:
    rows = expected[dataset.name]
    assert rows
    for row in rows:
        assert list(row) == [name for name in row if name in {c.name for c in dataset.columns}]
        assert len(row) == len(dataset.columns)
        for column in dataset.columns:
            value = row[column.name]
            if value is None:
                assert column.nullable, column.name
            else:
                assert isinstance(value, _PYTHON[column.kind]), column.name


@pytest.mark.parametrize("dataset", evm.DATASETS, ids=lambda dataset: dataset.name)
def test_the_keys_of_expected_rows_are_unique(dataset: Dataset, expected: oracle.Rows) -> None:
    keys = [tuple(row[name] for name in dataset.key) for row in expected[dataset.name]]
    assert len(set(keys)) == len(keys)


def test_rows_of_a_block_made_by_hand_are_those_written_by_hand() -> None:
    rows = oracle.rows(_block())
    at = datetime(2024, 1, 1, tzinfo=UTC)
    place = {"block_number": 7, "block_hash": b"H" * 32, "block_timestamp": at}
    assert rows["blocks"] == [
        {
            "number": 7,
            "hash": b"H" * 32,
            "parent_hash": b"P" * 32,
            "timestamp": at,
            "nonce": bytes(8),
            "mix_hash": b"M" * 32,
            "sha3_uncles": b"U" * 32,
            "logs_bloom": b"B" * 256,
            "transactions_root": b"T" * 32,
            "state_root": b"S" * 32,
            "receipts_root": b"R" * 32,
            "miner": b"m" * 20,
            "difficulty": 0,
            "total_difficulty": None,
            "size": 999,
            "extra_data": b"x",
            "gas_limit": 100,
            "gas_used": 60,
            "base_fee_per_gas": 5,
            "withdrawals_root": b"W" * 32,
            "blob_gas_used": 0,
            "excess_blob_gas": 0,
            "parent_beacon_block_root": b"C" * 32,
            "requests_hash": b"Q" * 32,
            "transaction_count": 2,
        }
    ]
    assert rows["withdrawals"] == [
        {
            **place,
            "withdrawal_index": 0,
            "index": 41,
            "validator_index": 42,
            "address": b"w" * 20,
            "amount": 43,
        }
    ]
    assert rows["logs"] == [
        {
            **place,
            "transaction_hash": b"1" * 32,
            "transaction_index": 0,
            "log_index": 2**31,
            "address": b"c" * 20,
            "topic0": b"t" * 32,
            "topic1": b"u" * 32,
            "topic2": None,
            "topic3": None,
            "data": b"\0d",
        }
    ]
    assert rows["transactions"] == [
        {
            **place,
            "transaction_index": 0,
            "hash": b"1" * 32,
            "transaction_type": 4,
            "nonce": 3,
            "from_address": b"s" * 20,
            "to_address": b"c" * 20,
            "value": 11,
            "gas": 50,
            "gas_price": 6,
            "max_fee_per_gas": 9,
            "max_priority_fee_per_gas": 1,
            "max_fee_per_blob_gas": None,
            "blob_versioned_hashes": None,
            "access_list": [{"address": "0x" + "61" * 20, "storageKeys": ["0x" + "6b" * 32]}],
            "authorization_list": [
                {
                    "chainId": "0x0",
                    "address": "0x" + "7a" * 20,
                    "nonce": "0x10",
                    "yParity": "0x1",
                    "r": "0xa",
                    "s": "0xb",
                }
            ],
            "chain_id": 1337,
            "v": 1,
            "r": 21,
            "s": 22,
            "input": b"in",
            "status": 1,
            "root": None,
            "gas_used": 40,
            "cumulative_gas_used": 40,
            "effective_gas_price": 6,
            "contract_address": None,
            "blob_gas_used": None,
            "blob_gas_price": None,
        },
        {
            **place,
            "transaction_index": 1,
            "hash": b"2" * 32,
            "transaction_type": 0,
            "nonce": 0,
            "from_address": b"s" * 20,
            "to_address": None,
            "value": 2**256 - 1,
            "gas": 20,
            "gas_price": 8,
            "max_fee_per_gas": None,
            "max_priority_fee_per_gas": None,
            "max_fee_per_blob_gas": None,
            "blob_versioned_hashes": None,
            "access_list": None,
            "authorization_list": None,
            "chain_id": None,
            "v": 27,
            "r": 31,
            "s": 32,
            "input": b"init",
            "status": 0,
            "root": None,
            "gas_used": 20,
            "cumulative_gas_used": 60,
            "effective_gas_price": 8,
            "contract_address": None,
            "blob_gas_used": None,
            "blob_gas_price": None,
        },
    ]


def test_traces_say_what_took_effect_and_leave_out_what_a_failed_call_has_not() -> None:
    traces = oracle.rows(_block())["traces"]
    shown = ("trace_index", "trace_address", "trace_type", "status", "gas", "gas_used", "output")
    assert [tuple(trace[name] for name in shown) for trace in traces] == [
        (0, "", "call", 1, 30, 20, b"out"),
        (1, "0", "call", 0, 9, None, None),
        (2, "0,0", "call", 0, 8, 1, b""),
        (3, "1", "suicide", 1, None, None, None),
        (4, "", "create", 0, 5, None, None),
    ]
    assert [trace["transaction_index"] for trace in traces] == [0, 0, 0, 0, 1]
    assert [trace["call_type"] for trace in traces] == [
        "call",
        "delegatecall",
        "staticcall",
        None,
        None,
    ]
    assert traces[3]["input"] is None and traces[3]["value"] == 77
    assert traces[4]["to_address"] is None and traces[4]["input"] == b"init"


def test_a_protected_legacy_transaction_names_its_chain_as_nodes_show_it() -> None:
    tree = Tree(Knobs(seed=1, density=8, chain_id=99))
    tree.extend(80)
    legacy = {
        (row["v"] >= 35, row["chain_id"])
        for row in oracle.canonical_rows(tree, 0, 80)["transactions"]
        if row["transaction_type"] == 0
    }
    assert legacy == {(True, 99), (False, None)}


def test_canonical_rows_follow_the_chain_through_a_fork() -> None:
    tree = Tree(Knobs(seed=2, density=4))
    tree.extend(12)
    before = oracle.canonical_rows(tree, 5, 12)
    tree.fork(depth=4, length=3, style=Style.REPLACED)
    after = oracle.canonical_rows(tree, 5, 12)
    assert [row["number"] for row in after["blocks"]] == [5, 6, 7, 8, 9, 10, 11]
    assert after["blocks"][:4] == before["blocks"][:4]
    assert after["blocks"][4:] != before["blocks"][4:7]


@pytest.mark.parametrize("dataset", evm.DATASETS, ids=lambda dataset: dataset.name)
def test_rows_compare_equal_in_any_order_and_through_arrow_or_a_database(
    dataset: Dataset, expected: oracle.Rows
) -> None:
    rows = expected[dataset.name]
    assert compare.difference(dataset, rows, reversed(rows)) == ""
    table = pa.Table.from_pylist([_for_arrow(dataset, row) for row in rows], dataset.schema)
    assert compare.difference(dataset, rows, compare.rows_from(dataset, table)) == ""
    stored = [{**_for_postgres(dataset, row), "payload_ref": None} for row in rows]
    assert compare.difference(dataset, rows, stored) == ""


def test_a_comparison_names_what_is_missing_extra_doubled_and_different() -> None:
    tree = Tree(Knobs(seed=3, density=2))
    tree.extend(6)
    rows = oracle.canonical_rows(tree, 0, 5)["blocks"]
    extra = oracle.canonical_rows(tree, 6, 6)["blocks"]
    changed = {**rows[2], "size": rows[2]["size"] + 1}
    told = compare.difference(evm.BLOCKS, rows, [rows[1], changed, *rows[3:], rows[4], *extra])
    assert told.splitlines() == [
        "blocks: 6 rows expected, 7 found",
        "  missing 1: (0,)",
        "  extra 1: (6,)",
        "  doubled 1: (4,)",
        "  differing 1: (2,)",
        f"  (2,) size: expected {rows[2]['size']}, found {rows[2]['size'] + 1}",
    ]


def test_a_column_that_is_not_there_is_a_difference_even_where_null_is_expected() -> None:
    tree = Tree(Knobs(seed=3))
    (row,) = oracle.rows(tree.head)["blocks"]
    without = {name: value for name, value in row.items() if name != "total_difficulty"}
    told = compare.difference(evm.BLOCKS, [row], [without])
    assert "total_difficulty: expected None, found (no such column)" in told


def test_differences_of_several_datasets_are_told_together(expected: oracle.Rows) -> None:
    actual = {**expected, "logs": expected["logs"][1:], "blocks": expected["blocks"][:-1]}
    told = compare.differences(expected, actual)
    assert [line for line in told.splitlines() if not line.startswith(" ")] == [
        "blocks: 61 rows expected, 60 found",
        f"logs: {len(expected['logs'])} rows expected, {len(expected['logs']) - 1} found",
    ]
    assert compare.differences(expected, expected) == ""


def _for_arrow(dataset: Dataset, row: dict[str, Any]) -> dict[str, Any]:
    return {
        column.name: None if row[column.name] is None else _arrow(column.kind, row[column.name])
        for column in dataset.columns
    }


def _arrow(kind: Kind, value: Any) -> Any:
    if kind is Kind.U256:
        return value.to_bytes(32, "big")
    return json.dumps(value) if kind is Kind.JSON else value


def _for_postgres(dataset: Dataset, row: dict[str, Any]) -> dict[str, Any]:
    return {
        column.name: (
            Decimal(row[column.name])
            if column.kind is Kind.U256 and row[column.name] is not None
            else row[column.name]
        )
        for column in dataset.columns
    }


def _block() -> Block:
    """A block with a transaction whose inner call failed and a creation that failed."""
    header = Header(
        parent_hash=b"P" * 32,
        sha3_uncles=b"U" * 32,
        miner=b"m" * 20,
        state_root=b"S" * 32,
        transactions_root=b"T" * 32,
        receipts_root=b"R" * 32,
        logs_bloom=b"B" * 256,
        difficulty=0,
        number=7,
        gas_limit=100,
        gas_used=60,
        timestamp=1_704_067_200,
        extra_data=b"x",
        mix_hash=b"M" * 32,
        nonce=bytes(8),
        base_fee_per_gas=5,
        withdrawals_root=b"W" * 32,
        blob_gas_used=0,
        excess_blob_gas=0,
        parent_beacon_block_root=b"C" * 32,
        requests_hash=b"Q" * 32,
    )
    called = Executed(
        transaction=Transaction(
            type=4,
            chain_id=1337,
            nonce=3,
            gas_price=None,
            max_priority_fee_per_gas=1,
            max_fee_per_gas=9,
            gas=50,
            to=b"c" * 20,
            value=11,
            input=b"in",
            access_list=((b"a" * 20, (b"k" * 32,)),),
            authorization_list=(
                Authorization(chain_id=0, address=b"z" * 20, nonce=16, y_parity=1, r=10, s=11),
            ),
            v=1,
            r=21,
            s=22,
        ),
        hash=b"1" * 32,
        sender=b"s" * 20,
        status=1,
        gas_used=40,
        cumulative_gas_used=40,
        effective_gas_price=6,
        contract_address=None,
        logs=(Log(address=b"c" * 20, topics=(b"t" * 32, b"u" * 32), data=b"\0d"),),
        log_indexes=(2**31,),
        calls=(
            _call((), "call", "call", 30, 20, b"out", subtraces=2),
            _call((0,), "call", "delegatecall", 9, 9, b"", subtraces=1, error="Reverted"),
            _call((0, 0), "call", "staticcall", 8, 1, b""),
            _call((1,), "suicide", None, 0, 0, b"", value=77),
        ),
    )
    created = Executed(
        transaction=Transaction(
            type=0,
            chain_id=None,
            nonce=0,
            gas_price=8,
            gas=20,
            to=None,
            value=2**256 - 1,
            input=b"init",
            v=27,
            r=31,
            s=32,
        ),
        hash=b"2" * 32,
        sender=b"s" * 20,
        status=0,
        gas_used=20,
        cumulative_gas_used=60,
        effective_gas_price=8,
        contract_address=None,
        logs=(),
        log_indexes=(),
        calls=(_call((), "create", None, 5, 5, b"", to=None, input=b"init", error="Out of gas"),),
    )
    return Block(
        header=header,
        hash=b"H" * 32,
        size=999,
        transactions=(called, created),
        withdrawals=(Withdrawal(index=41, validator_index=42, address=b"w" * 20, amount=43),),
    )


def _call(
    path: tuple[int, ...],
    type: str,
    call_type: str | None,
    gas: int,
    gas_used: int,
    output: bytes,
    *,
    to: bytes | None = b"c" * 20,
    value: int = 0,
    input: bytes = b"",
    subtraces: int = 0,
    error: str | None = None,
) -> Call:
    return Call(
        path=path,
        type=type,
        call_type=call_type,
        sender=b"s" * 20,
        to=to,
        value=value,
        gas=gas,
        gas_used=gas_used,
        input=input,
        output=output,
        subtraces=subtraces,
        error=error,
    )
