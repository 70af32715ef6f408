"""Goal: `verify` proves what the hot store holds and names whatever was changed behind its back.

Method: proven devnet blocks committed into real Postgres, then one thing damaged by plain SQL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from tests.batches import batch
from tests.places import Place
from unfork import errors
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.datasets import evm
from unfork.datasets.dataset import Dataset, Kind
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot import schema
from unfork.proof.columns import COVERED
from unfork.proof.finding import Check
from unfork.verify import blocks
from unfork.verify.blocks import Limits, Progress
from unfork.verify.report import Report

pytestmark = pytest.mark.postgres

BLOCKS = 12


@pytest.fixture(scope="module")
def chain() -> list[Block]:
    blocks = canonical_blocks(grown())
    damaged = blocks[5]
    # The block that is damaged below has something of everything.
    assert len(damaged.transactions) > 2 and damaged.withdrawals
    assert sum(len(executed.logs) for executed in damaged.transactions) > 2
    return blocks


async def fill(
    place: Place, chain: list[Block], *, inline_max_bytes: int = 8192, **settings: Any
) -> None:
    """Commits the blocks in three batches."""
    store = place.store(inline_max_bytes=inline_max_bytes)
    await store.open()
    await store.claim(chain_id=1337, start=chain[0].number)
    for first in range(0, len(chain), 5):
        await store.commit(batch(*chain[first : first + 5], head=chain[-1], **settings))
    await store.close()


async def verify(place: Place, **settings: Any) -> Report:
    settings.setdefault("payloads", place.payloads())
    return await blocks.verify(place.database(), place.name, **settings)


async def test_a_committed_chain_is_proven_in_every_way(
    any_place: Place, chain: list[Block]
) -> None:
    await fill(any_place, chain)
    seen: list[Progress] = []
    report = await verify(any_place, progress=seen.append)
    assert report.proven, "\n".join(report.lines())
    assert (report.blocks, report.span) == (BLOCKS, Span(0, BLOCKS - 1))
    assert {check for check, counts in report.checks.items() if counts.proven < BLOCKS} <= {
        *(Check.SENDERS, Check.TRACE_VALUES, Check.TOTAL_DIFFICULTY)
    }
    assert set(report.unproven_columns) == {
        name
        for check in (Check.SENDERS, Check.TRACE_VALUES, Check.TOTAL_DIFFICULTY)
        for name in COVERED[check]
    }
    assert {Check.HEADER_HASH, Check.TRANSACTIONS_ROOT, Check.RECEIPTS_ROOT} <= set(report.checks)
    assert (seen[-1].done, seen[-1].total, seen[-1].damaged) == (BLOCKS, BLOCKS, 0)


@pytest.mark.parametrize("limits", [Limits(blocks_max=1, rows_max=1), Limits(blocks_max=3)])
async def test_the_size_of_the_batches_changes_nothing(
    place: Place, chain: list[Block], limits: Limits
) -> None:
    await fill(place, chain, finalized=chain[-1])
    whole = await verify(place)
    assert (await verify(place, limits=limits)).document() == whole.document()


#: What is changed, the checks that must fail, and the block it is seen at.
DAMAGES = {
    "a header field": (
        "UPDATE {raw}.blocks SET state_root = set_bit(state_root, 77, 1 - get_bit(state_root, 77))"
        " WHERE number = 5",
        {Check.HEADER_HASH},
    ),
    "a time by a microsecond": (
        "UPDATE {raw}.blocks SET timestamp = timestamp + interval '1 microsecond' WHERE number = 5",
        {Check.HEADER_HASH, Check.PLACEMENT, Check.LOOKUPS},
    ),
    "a value of a transaction": (
        "UPDATE {raw}.transactions SET value = value + 1"
        " WHERE block_number = 5 AND transaction_index = 0",
        {Check.TRANSACTION_HASHES, Check.TRANSACTIONS_ROOT},
    ),
    "an outcome": (
        "UPDATE {raw}.transactions SET status = 1 - status"
        " WHERE block_number = 5 AND transaction_index = 1",
        {Check.RECEIPTS_ROOT},
    ),
    "a transaction's hash": (
        "UPDATE {raw}.transactions SET hash = set_bit(hash, 0, 1 - get_bit(hash, 0))"
        " WHERE block_number = 5 AND transaction_index = 0",
        {Check.TRANSACTION_HASHES, Check.LOOKUPS},
    ),
    "a lost transaction": (
        "DELETE FROM {raw}.transactions WHERE block_number = 5 AND transaction_index = 0",
        {Check.TRANSACTION_COUNT, Check.TRANSACTIONS_ROOT, Check.RECEIPTS_ROOT, Check.LOOKUPS},
    ),
    "a topic of a log": (
        "UPDATE {raw}.logs SET topic0 = set_bit(topic0, 9, 1 - get_bit(topic0, 9))"
        " WHERE block_number = 5 AND log_index ="
        " (SELECT min(log_index) FROM {raw}.logs WHERE block_number = 5)",
        {Check.RECEIPTS_ROOT, Check.LOGS_BLOOM},
    ),
    "a log of another block": (
        "UPDATE {raw}.logs SET block_hash = set_bit(block_hash, 0, 1 - get_bit(block_hash, 0))"
        " WHERE block_number = 5",
        {Check.PLACEMENT},
    ),
    "a trace of another block": (
        "UPDATE {raw}.traces SET block_hash = set_bit(block_hash, 0, 1 - get_bit(block_hash, 0))"
        " WHERE block_number = 5",
        {Check.PLACEMENT},
    ),
    "a withdrawal": (
        "UPDATE {raw}.withdrawals SET amount = amount + 1 WHERE block_number = 5",
        {Check.WITHDRAWALS_ROOT},
    ),
    "a lost lookup": ("DELETE FROM {raw}.tx_lookup WHERE block_number = 5", {Check.LOOKUPS}),
    "a lookup that is none": (
        "INSERT INTO {raw}.block_lookup SELECT set_bit(hash, 0, 1 - get_bit(hash, 0)),"
        " number, timestamp FROM {raw}.blocks WHERE number = 5",
        {Check.LOOKUPS},
    ),
}


@pytest.mark.parametrize("what", DAMAGES)
async def test_damage_is_found_at_its_block_and_nowhere_else(
    place: Place, chain: list[Block], what: str
) -> None:
    await fill(place, chain)
    change, expected = DAMAGES[what]
    before = (await verify(place)).document()
    await place.rows(change)
    report = await verify(place)
    assert report.document() != before, "the change changed nothing"
    assert [damage.ref.number for damage in report.damaged] == [5], "\n".join(report.lines())
    assert expected <= {finding.check for finding in report.damaged[0].findings}
    assert (report.ok, report.damaged_spans) == (False, (Span(5, 5),))


async def test_a_block_of_another_hash_breaks_the_link_to_the_next(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain)
    await place.rows("UPDATE {raw}.blocks SET hash = sha256(hash) WHERE number = 5")
    report = await verify(place)
    found = {damage.ref.number: {f.check for f in damage.findings} for damage in report.damaged}
    assert Check.HEADER_HASH in found[5] and found[6] == {Check.PARENT_LINK}
    assert report.damaged_spans == (Span(5, 6),)


async def test_missing_blocks_and_the_rows_they_left_are_named(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain)
    await place.rows("DELETE FROM {raw}.blocks WHERE number IN (4, 5)")
    report = await verify(place)
    (damage,) = report.damaged
    assert damage.ref.number == 6
    assert {finding.check for finding in damage.findings} == {Check.CONTIGUITY, Check.PLACEMENT}
    assert (report.blocks, report.damaged_spans) == (BLOCKS - 2, (Span(4, 6),))


async def test_missing_blocks_at_the_end_are_a_problem_of_the_store(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain)
    await place.rows("DELETE FROM {raw}.blocks WHERE number >= 10")
    report = await verify(place)
    assert not report.ok and report.damaged_spans == (Span(10, 11),)
    checks = {finding.check for finding in report.problems}
    assert checks == {Check.CONTIGUITY, Check.PLACEMENT, Check.POSITION}


async def test_rows_beyond_the_position_are_a_problem_of_the_store(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain)
    await place.rows(
        "INSERT INTO {raw}.tx_lookup SELECT sha256(id), 77, transaction_index, timestamp"
        " FROM {raw}.tx_lookup LIMIT 1"
    )
    report = await verify(place)
    assert [finding.check for finding in report.problems] == [Check.POSITION]
    assert "block 77" in report.problems[0].reason and not report.ok


async def test_a_position_that_names_another_block_is_a_problem_of_the_store(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain)
    await place.rows("UPDATE {raw}.chain SET position_hash = sha256(position_hash)")
    report = await verify(place)
    assert [finding.check for finding in report.problems] == [Check.POSITION]


async def test_offloaded_values_are_read_back_and_a_damaged_one_is_named(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain, inline_max_bytes=64)
    apart = await place.rows(
        "SELECT block_number, payload_ref FROM {raw}.transactions WHERE payload_ref IS NOT NULL"
    )
    assert apart
    assert (await verify(place)).proven
    unread = await verify(place, payloads=None)
    assert unread.ok and unread.checks[Check.PAYLOADS].unproven
    assert unread.checks[Check.TRANSACTIONS_ROOT].unproven
    blob = place.folder / "payloads" / apart[0]["payload_ref"]
    value = bytearray(blob.read_bytes())
    value[3] ^= 1
    blob.write_bytes(value)
    report = await verify(place)
    assert apart[0]["block_number"] in {damage.ref.number for damage in report.damaged}
    assert {f.check for damage in report.damaged for f in damage.findings} == {Check.PAYLOADS}


async def test_a_scope_of_logs_proves_headers_and_calls_the_rest_unproven(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain, scope=Scope(kind="logs"))
    report = await verify(place)
    assert report.ok and not report.proven
    for check in (Check.HEADER_HASH, Check.PARENT_LINK, Check.LOGS_BLOOM, Check.LOOKUPS):
        assert report.checks[check].proven == BLOCKS, check
    for check in (Check.TRANSACTIONS_ROOT, Check.RECEIPTS_ROOT, Check.WITHDRAWALS_ROOT):
        assert report.checks[check].unproven == BLOCKS, check


async def test_a_span_is_linked_to_the_block_below_it(place: Place, chain: list[Block]) -> None:
    await fill(place, chain)
    report = await verify(place, span=Span(4, 7))
    assert (report.blocks, report.span, report.proven) == (4, Span(4, 7), True)
    await place.rows("UPDATE {raw}.blocks SET hash = sha256(hash) WHERE number = 3")
    report = await verify(place, span=Span(4, 7))
    assert [damage.ref.number for damage in report.damaged] == [4]
    assert [finding.check for finding in report.damaged[0].findings] == [Check.PARENT_LINK]


async def test_a_span_that_is_not_stored_is_refused(place: Place, chain: list[Block]) -> None:
    await fill(place, chain)
    with pytest.raises(errors.ConfigInvalid, match=r"0\.\.11"):
        await verify(place, span=Span(50, 60))


async def test_an_empty_store_has_nothing_to_prove(place: Place) -> None:
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    report = await verify(place)
    assert (report.ok, report.span, report.blocks) == (True, None, 0)


async def test_blocks_above_the_floor_are_compared_with_a_source(
    place: Place, chain: list[Block]
) -> None:
    await fill(place, chain)
    asked: list[Span] = []

    async def canonical(span: Span) -> Mapping[int, bytes]:
        asked.append(span)
        theirs = {n: chain[n].hash for n in range(span.first, min(span.last, 10) + 1)}
        return {**theirs, 7: bytes(32)} if 7 in span else theirs

    report = await verify(place, canonical=canonical, limits=Limits(canonical_max=5))
    counts = report.checks[Check.SOURCE_HASH]
    assert asked == [Span(0, 4), Span(5, 9), Span(10, 11)]
    assert (counts.proven, counts.failed, counts.unproven) == (10, 1, 1)
    assert [damage.ref.number for damage in report.damaged] == [7]


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_an_unwind_of_what_was_read_begins_the_verification_again(
    place: Place, is_replaced: bool
) -> None:
    """An operator's unwind between two batches: the report is of the chain as it is afterwards."""
    tree = grown()
    before = canonical_blocks(tree)
    await fill(place, before)
    await place.rows(
        "UPDATE {raw}.chain SET floor_number = position_number, floor_hash = position_hash"
    )
    store = place.store()
    await store.open()
    moved = tree.fork(depth=BLOCKS - 3, length=BLOCKS - 3, style=Style.REPLACED)

    async def unwind() -> None:
        await store.unwind(before[2].ref, operator=True)
        if is_replaced:
            await store.commit(batch(*moved.added))

    database = InterruptedDatabase(place.dsn, after_sessions=2, action=unwind)
    place.databases.append(database)
    report = await blocks.verify(database, place.name, limits=Limits(blocks_max=3))
    expected = BLOCKS if is_replaced else 3
    assert (report.span, report.blocks) == (Span(0, expected - 1), expected)
    assert report.ok, "\n".join(report.lines())


async def test_verification_beside_a_follower_sees_one_fork_or_the_other(place: Place) -> None:
    tree = grown()
    await fill(place, canonical_blocks(tree))
    store = place.store()
    await store.open()

    async def follow() -> None:
        for _ in range(12):
            moved = tree.fork(depth=5, length=5, style=Style.REPLACED)
            ancestor = tree.at(moved.added[0].number - 1)
            assert ancestor is not None
            await store.unwind(ancestor.ref)
            await store.commit(batch(*moved.added))

    following = asyncio.create_task(follow())
    rounds = 0
    while not following.done():
        report = await verify(place)
        assert report.ok, "\n".join(report.lines())
        assert report.blocks in (BLOCKS, BLOCKS - 5)
        rounds += 1
    await following
    assert rounds > 2, "the follower was through before anything was verified beside it"


#: Columns whose change is not found: the report names each as not proven, with the reason.
NOT_FOUND = {
    *("blocks.total_difficulty", "transactions.from_address", "transactions.blob_gas_price"),
    *("logs.log_index", *COVERED[Check.TRACE_VALUES]),
}
#: Columns that place a row in a partition, so that the store itself refuses most other values.
PLACED = {"number", "block_number"}


@pytest.mark.parametrize("dataset", evm.DATASETS, ids=[dataset.name for dataset in evm.DATASETS])
async def test_one_flipped_bit_in_any_column_is_found_or_the_column_is_named(
    place: Place, chain: list[Block], dataset: Dataset
) -> None:
    await fill(place, chain, inline_max_bytes=64)
    random, table = Random(5), dataset.name
    rows = await place.rows(f"SELECT * FROM {{raw}}.{table} WHERE {dataset.number_column} = 5")
    columns = set(schema.columns(dataset)) - PLACED - {"journal_seq", "events"}
    flips = 0
    for column in sorted(columns):
        row = random.choice([row for row in rows if row[column] is not None] or rows)
        turned = flip(random, row[column], wide=is_wide(dataset, column))
        if turned is None:
            continue
        key = {name: row[name] for name in dataset.key}
        await assign(place, table, key, column, turned)
        report = await verify(place, span=Span(5, 5))
        name = f"{table}.{column}"
        if name in NOT_FOUND:
            assert report.damaged_count or name in report.unproven_columns, (name, row[column])
        else:
            assert report.damaged_count == 1, (name, row[column], turned)
        moved = {**key, column: turned} if column in key else key
        await assign(place, table, moved, column, row[column])
        flips += 1
    assert flips >= len(columns) - 9
    assert (await verify(place)).proven


@pytest.mark.parametrize("which", ["first", "inner", "last", "all"])
async def test_a_deleted_trace_is_missed(place: Place, chain: list[Block], which: str) -> None:
    await fill(place, chain)
    number, inner = next(
        (block.number, at)
        for block in chain
        for at, call in enumerate(call for each in block.transactions for call in each.calls)
        if call.path
    )
    last = sum(len(each.calls) for each in chain[number].transactions) - 1
    gone = {"first": [0], "inner": [inner], "last": [last], "all": list(range(last + 1))}[which]
    await place.rows(
        "DELETE FROM {raw}.traces WHERE block_number = %(number)s AND trace_index = ANY(%(gone)s)",
        number=number,
        gone=gone,
    )
    # Closed up, as if the rows had never been there.
    for at in range(gone[-1] + 1, last + 1):
        await place.rows(
            "UPDATE {raw}.traces SET trace_index = trace_index - 1"
            " WHERE block_number = %(number)s AND trace_index = %(at)s",
            number=number,
            at=at,
        )
    report = await verify(place)
    (damage,) = report.damaged
    assert (damage.ref.number, [f.check for f in damage.findings]) == (number, [Check.TRACE_TREES])


async def test_an_added_trace_is_found(place: Place, chain: list[Block]) -> None:
    await fill(place, chain)
    names = ", ".join(column.name for column in evm.TRACES.columns if column.name != "trace_index")
    await place.rows(
        f"INSERT INTO {{raw}}.traces (trace_index, {names}) SELECT 1 + trace_index, {names}"
        " FROM {raw}.traces WHERE block_number = 5 ORDER BY trace_index DESC LIMIT 1"
    )
    report = await verify(place)
    (damage,) = report.damaged
    assert (damage.ref.number, [f.check for f in damage.findings]) == (5, [Check.TRACE_TREES])


async def test_traces_of_a_block_that_has_none_are_found(place: Place, chain: list[Block]) -> None:
    await fill(place, chain, scope=Scope(traces=False))
    assert Check.TRACE_TREES not in (await verify(place)).checks
    await place.rows(
        "INSERT INTO {raw}.traces (block_number, block_hash, block_timestamp, trace_index,"
        " trace_address, trace_type, subtraces, status)"
        " SELECT number, hash, timestamp, 0, '', 'reward', 0, 1 FROM {raw}.blocks WHERE number = 5"
    )
    report = await verify(place)
    (damage,) = report.damaged
    assert (damage.ref.number, [f.check for f in damage.findings]) == (5, [Check.PLACEMENT])


@pytest.mark.parametrize("ref", ["payload_ref", "output_payload_ref"])
async def test_a_payload_of_a_trace_that_is_gone_is_missed(
    place: Place, chain: list[Block], ref: str
) -> None:
    await fill(place, chain, inline_max_bytes=16)
    shared = "SELECT payload_ref FROM {raw}.transactions WHERE payload_ref IS NOT NULL"
    apart = await place.rows(
        f"SELECT block_number, {ref} AS ref FROM {{raw}}.traces WHERE {ref} IS NOT NULL"
        f" AND {ref} NOT IN ({shared}) ORDER BY block_number LIMIT 1"
    )
    assert apart, "no trace has a payload of its own"
    assert (await verify(place)).proven
    (place.folder / "payloads" / apart[0]["ref"]).unlink()
    report = await verify(place)
    assert {f.check for damage in report.damaged for f in damage.findings} == {Check.PAYLOADS}
    assert report.damaged[0].ref.number == apart[0]["block_number"]


def grown() -> Tree:
    tree = Tree(Knobs(seed=15, density=6, proven=True, fork_rate=0))
    tree.extend(BLOCKS - 1)
    return tree


def canonical_blocks(tree: Tree) -> list[Block]:
    return [block for number in range(BLOCKS) if (block := tree.at(number)) is not None]


async def assign(place: Place, table: str, key: dict[str, Any], column: str, value: Any) -> None:
    """Sets one column of the row that has the key."""
    found = " AND ".join(f'"{name}" = %(key_{name})s' for name in key)
    await place.rows(
        f'UPDATE {{raw}}.{table} SET "{column}" = %(value)s WHERE {found}',
        value=value,
        **{f"key_{name}": part for name, part in key.items()},
    )


def is_wide(dataset: Dataset, column: str) -> bool:
    return any(part.name == column and part.kind is Kind.U256 for part in dataset.columns)


def flip(random: Random, value: Any, *, wide: bool) -> Any:
    """The value with one bit turned over, None where it has none to turn or is a document."""
    match value:
        case bytes() if value:
            number = int.from_bytes(value, "big") ^ (1 << random.randrange(8 * len(value)))
            return number.to_bytes(len(value), "big")
        case int() | Decimal():
            return int(value) ^ (1 << random.randrange(255 if wide else 62))
        case str() if value:
            at = random.randrange(len(value))
            return value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]
        case datetime():
            return value + timedelta(microseconds=1 << random.randrange(40))
    return None


class InterruptedDatabase(Database):
    """A database at which something happens once, between two sessions."""

    def __init__(
        self, dsn: str, *, after_sessions: int, action: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(dsn)
        self._after_sessions = after_sessions
        self._action: Callable[[], Awaitable[None]] | None = action

    async def _take(self) -> Session:
        if self._after_sessions == 0 and self._action is not None:
            action, self._action = self._action, None
            await action()
        self._after_sessions -= 1
        return await super()._take()
