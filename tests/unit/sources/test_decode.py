"""Decoding gives exactly the rows of the oracle, and names what it cannot store.

Method: every block of a devnet with awkward values goes through rendering and decoding and is
compared with the oracle, which shares no code with either; single fields are then damaged.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.nodes import grown
from tests.unit.sources import answered
from tests.unit.sources.answered import Damage
from unfork.datasets import evm
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.tree import Tree
from unfork.errors import RowRefused, Unbelievable
from unfork.sources import decode, traces
from unfork.sources.decode import Whole
from unfork.testing import compare, oracle

TRACED = Scope(traces=True)


@pytest.fixture(scope="module")
def tree() -> Tree:
    return grown(120, density=6, hostile=True, seed=5)


@pytest.fixture(scope="module")
def blocks(tree: Tree) -> list[Block]:
    found = [tree.at(number) for number in range(tree.head.number + 1)]
    return [block for block in found if block is not None]


def whole(
    block: Block,
    damage: Damage = lambda _: None,
    receipts_damage: Damage = lambda _: None,
    *,
    is_nested: bool = False,
) -> Whole:
    parsed = answered.block(block, damage)
    if is_nested:
        hashes = [row.hash for row in parsed.transactions]
        rows = traces.from_frames(answered.frames(block), hashes)
    else:
        rows = traces.from_parity(answered.parity_traces(block))
    given = answered.receipts(block, receipts_damage)
    return Whole(block=parsed, receipts=given, traces=rows)


def rows(made: decode.Tables) -> dict[str, Any]:
    return {name: table.to_pylist() for name, table in made.items()}


@pytest.mark.parametrize("is_nested", [False, True], ids=["trace_block", "callTracer"])
def test_many_blocks_at_once_give_the_rows_of_the_oracle(
    blocks: list[Block], is_nested: bool
) -> None:
    made = decode.tables([whole(block, is_nested=is_nested) for block in blocks], TRACED)
    assert compare.differences(oracle.rows_of(blocks), rows(made)) == ""
    assert all(made[name].num_rows > 0 for name in TRACED.datasets)


def test_each_block_by_itself_gives_the_rows_of_the_oracle(blocks: list[Block]) -> None:
    for block in blocks:
        made = decode.tables([whole(block)], TRACED)
        assert compare.differences(oracle.rows(block), rows(made)) == ""


def test_the_schemas_are_those_of_the_datasets_with_and_without_rows(blocks: list[Block]) -> None:
    for some in (blocks, blocks[:1]):
        for name, table in decode.tables([whole(block) for block in some], TRACED).items():
            assert table.schema == evm.BY_NAME[name].schema
            table.validate(full=True)


def test_logs_without_receipts_leave_the_outcomes_unknown(blocks: list[Block]) -> None:
    wholes = [
        Whole(block=answered.block(block), receipts=None, logs=answered.logs(block))
        for block in blocks
    ]
    made = rows(decode.tables(wholes, Scope()))
    expected = oracle.rows_of(blocks)
    assert compare.difference(evm.LOGS, expected["logs"], made["logs"]) == ""
    for row in expected["transactions"]:
        for name in (
            *("status", "root", "gas_used", "cumulative_gas_used", "effective_gas_price"),
            *("contract_address", "blob_gas_used", "blob_gas_price"),
        ):
            row[name] = None
    found = made["transactions"]
    assert compare.difference(evm.TRANSACTIONS, expected["transactions"], found) == ""


def test_blocks_with_and_without_receipts_stand_side_by_side(blocks: list[Block]) -> None:
    wholes = [
        whole(block)
        if place % 2
        else Whole(block=answered.block(block), receipts=None, logs=answered.logs(block))
        for place, block in enumerate(blocks)
    ]
    made = rows(decode.tables(wholes, Scope()))
    expected = oracle.rows_of(blocks)["logs"]
    assert compare.difference(evm.LOGS, expected, made["logs"]) == ""


def test_a_field_that_a_node_leaves_out_is_null(blocks: list[Block]) -> None:
    def bare(said: Any) -> None:
        for name in ("nonce", "mixHash", "size", "baseFeePerGas", "withdrawalsRoot", "logsBloom"):
            said.pop(name, None)
        for row in said["transactions"]:
            for name in ("type", "v", "r", "s", "yParity", "chainId", "gasPrice", "blockHash"):
                row.pop(name, None)

    block = next(block for block in blocks if len(block.transactions) > 2)
    made = decode.tables([whole(block, bare)], Scope())
    assert made["blocks"]["size"].null_count == 1
    assert made["blocks"]["base_fee_per_gas"].null_count == 1
    transactions = made["transactions"]
    assert transactions["transaction_type"].to_pylist() == [0] * transactions.num_rows
    for name in ("v", "r", "s", "chain_id", "gas_price"):
        assert transactions[name].null_count == transactions.num_rows


def test_a_signature_without_v_takes_its_parity(blocks: list[Block]) -> None:
    block = next(block for block in blocks if any(t.transaction.type for t in block.transactions))

    def only_parity(said: Any) -> None:
        for row in said["transactions"]:
            if "yParity" in row:
                del row["v"]

    made = decode.tables([whole(block, only_parity)], Scope())
    expected = [row["v"] for row in oracle.rows(block)["transactions"]]
    found = [int.from_bytes(value, "big") for value in made["transactions"]["v"].to_pylist()]
    assert found == expected


@pytest.mark.parametrize(
    ("name", "value", "kind", "field"),
    [
        ("timestamp", hex(253_402_300_800), RowRefused, "blocks.timestamp"),
        ("size", hex(2**63), RowRefused, "blocks.size"),
        ("gasUsed", "0x", Unbelievable, "blocks.gas_used"),
        ("gasLimit", "21000", Unbelievable, "blocks.gas_limit"),
        ("extraData", "0x123", Unbelievable, "blocks.extra_data"),
        ("difficulty", "0x1" + "0" * 64, RowRefused, "blocks.difficulty"),
        ("stateRoot", "0x" + "zz" * 32, Unbelievable, "blocks.state_root"),
    ],
)
def test_a_header_value_that_cannot_be_stored_is_named(
    blocks: list[Block], name: str, value: str, kind: type[Exception], field: str
) -> None:
    some = [whole(block) for block in blocks[:5]]
    some[3] = whole(blocks[3], lambda said: said.update({name: value}))
    with pytest.raises(kind) as caught:
        decode.tables(some, Scope())
    _names(caught.value, blocks[3], field, value)


@pytest.mark.parametrize(
    ("name", "value", "kind", "field"),
    [
        ("nonce", hex(2**64), RowRefused, "transactions.nonce"),
        ("value", "0x" + "f" * 65, RowRefused, "transactions.value"),
        ("gas", "0xg1", Unbelievable, "transactions.gas"),
        ("input", "0xabc", Unbelievable, "transactions.input"),
        ("hash", "0x" + "q" * 64, Unbelievable, "transactions.hash"),
        ("from", "1x" + "0" * 40, Unbelievable, "transactions.from_address"),
    ],
)
def test_a_transaction_value_that_cannot_be_stored_is_named(
    blocks: list[Block], name: str, value: str, kind: type[Exception], field: str
) -> None:
    place = next(at for at, block in enumerate(blocks) if len(block.transactions) > 3)
    some = [whole(block) for block in blocks[: place + 3]]

    def damage(said: Any) -> None:
        said["transactions"][2][name] = value

    some[place] = whole(blocks[place], damage)
    with pytest.raises(kind) as caught:
        decode.tables(some, Scope())
    _names(caught.value, blocks[place], field, value)


@pytest.mark.parametrize(
    ("name", "value", "kind", "field"),
    [
        ("logIndex", hex(2**63), RowRefused, "logs.log_index"),
        ("data", "0x1", Unbelievable, "logs.data"),
        ("address", "0x" + "x" * 40, Unbelievable, "logs.address"),
        ("topics", ["0x" + "g" * 64], Unbelievable, "logs.topics"),
        ("topics", ["0x" + "00" * 32] * 5, Unbelievable, "logs.topics"),
    ],
)
def test_a_log_value_that_cannot_be_stored_is_named(
    blocks: list[Block], name: str, value: Any, kind: type[Exception], field: str
) -> None:
    place = next(
        at for at, block in enumerate(blocks) if any(each.logs for each in block.transactions)
    )

    def damage(said: Any) -> None:
        next(receipt for receipt in said if receipt["logs"])["logs"][0][name] = value

    some = [whole(block) for block in blocks[: place + 2]]
    some[place] = whole(blocks[place], receipts_damage=damage)
    with pytest.raises(kind) as caught:
        decode.tables(some, Scope())
    _names(caught.value, blocks[place], field, value[0] if isinstance(value, list) else value)


def test_log_indexes_may_have_gaps_and_reach_the_largest_number(blocks: list[Block]) -> None:
    block = next(b for b in blocks if sum(len(each.logs) for each in b.transactions) >= 3)

    def spread(said: Any) -> None:
        logs = [log for receipt in said for log in receipt["logs"]]
        for place, log in enumerate(logs):
            log["logIndex"] = hex(2**63 - 1 - 5 * (len(logs) - 1 - place))

    made = decode.tables([whole(block, receipts_damage=spread)], Scope())
    assert made["logs"]["log_index"].to_pylist()[-1] == 2**63 - 1


def test_log_indexes_that_do_not_ascend_are_refused(blocks: list[Block]) -> None:
    block = next(b for b in blocks if sum(len(each.logs) for each in b.transactions) >= 3)

    def repeat(said: Any) -> None:
        logs = [log for receipt in said for log in receipt["logs"]]
        logs[2]["logIndex"] = logs[1]["logIndex"]

    with pytest.raises(Unbelievable, match="does not ascend"):
        decode.tables([whole(blocks[0]), whole(block, receipts_damage=repeat)], Scope())


def test_a_trace_with_nul_in_its_error_is_refused(blocks: list[Block]) -> None:
    block = next(block for block in blocks if block.transactions)
    made = whole(block)
    assert made.traces is not None
    made.traces[0].error = "re\0verted"
    with pytest.raises(RowRefused, match="NUL"):
        decode.tables([made], TRACED)


def test_a_call_inside_one_that_failed_did_not_take_effect() -> None:
    def entry(path: list[int], error: str | None = None) -> Any:
        return {
            "action": {"from": "0x" + "00" * 20, "callType": "call"},
            "blockHash": "0x" + "11" * 32,
            "type": "call",
            "traceAddress": path,
            "subtraces": 0,
            "error": error,
            "transactionHash": "0x" + "22" * 32,
            "transactionPosition": 0,
        }

    parsed = answered.answers.PARITY_TRACES.result.decode(
        answered.json.dumps(
            [entry([]), entry([0], "Reverted"), entry([0, 0]), entry([0, 0, 3]), entry([1])]
        ).encode()
    )
    assert parsed is not None
    assert [row.status for row in traces.from_parity(parsed)] == [1, 0, 0, 0, 1]


def test_rewards_belong_to_no_transaction() -> None:
    said = {
        "action": {
            "author": "0x" + "33" * 20,
            "rewardType": "block",
            "value": "0x1bc16d674ec80000",
        },
        "blockHash": "0x" + "11" * 32,
        "type": "reward",
        "traceAddress": [],
        "subtraces": 0,
        "result": None,
        "transactionHash": None,
        "transactionPosition": None,
    }
    parsed = answered.answers.PARITY_TRACES.result.decode(answered.json.dumps([said]).encode())
    assert parsed is not None
    row = traces.from_parity(parsed)[0]
    assert (row.trace_type, row.reward_type, row.transaction_hash) == ("reward", "block", None)
    assert row.to_address == "0x" + "33" * 20


def _names(error: Any, block: Block, field: str, value: str) -> None:
    """The complaint says which block, which field and which value."""
    assert error.fields["block_number"] == block.number
    assert error.fields["block_hash"] == "0x" + block.hash.hex()
    assert error.fields["field"] == field
    assert value[:20] in error.message
