"""Owns the step from parsed answers to Arrow tables: whole blocks in, one table per dataset out.

Each table is built column by column over all blocks at once. What a row shares with its block or
its transaction (hash, time, position) was checked to be equal before it comes here, so it is
converted once and repeated, not converted again.

Invariants: the schemas are those of `datasets.evm`, exactly; rows are in chain order; log indexes
ascend within a block. A value that is not what its column holds raises, naming block, field and
value: Unbelievable where it is malformed, RowRefused where it is well-formed but does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unfork.datasets import evm
from unfork.datasets.scope import Scope
from unfork.errors import RowRefused, Unbelievable
from unfork.sources import answers, columns
from unfork.sources.traces import Trace

HASH, ADDRESS = 32, 20
#: Topics of a log at most.
TOPICS = 4

Numbers = NDArray[np.int64]

#: One table per dataset, by its name.
Tables = dict[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """Everything in scope of one block, as the node gave it, checked to belong together."""

    #: The block itself, with its transactions where the scope has them.
    block: answers.Block | answers.Outline
    #: One receipt per transaction; None where no receipts were fetched.
    receipts: list[answers.Receipt] | None = None
    #: The logs, where they came without receipts.
    logs: list[answers.Log] = field(default_factory=list)
    #: The calls, None where the scope has none.
    traces: list[Trace] | None = None


def tables(blocks: Sequence[Whole], scope: Scope) -> Tables:
    """One table per dataset of the scope."""
    assert blocks, "there is nothing to decode"
    heads = [whole.block for whole in blocks]
    place = _Place(heads)
    out = {"blocks": _blocks(heads, place)}
    if scope.kind == "logs":
        out["logs"] = _lone_logs(blocks, place)
        return out
    full = [block for block in heads if isinstance(block, answers.Block)]
    assert len(full) == len(heads), "the scope asks for transactions"
    out["transactions"], hashes = _transactions(full, blocks, place)
    if all(whole.receipts is not None for whole in blocks):
        out["logs"] = _receipt_logs(blocks, place, hashes)
    else:
        out["logs"] = _lone_logs(blocks, place)
    out["withdrawals"] = _withdrawals(full, place)
    if scope.traces:
        out["traces"] = _traces(blocks, place)
    return out


class _Place:
    """Number, hash and time of each block, to be repeated for its rows."""

    def __init__(self, heads: Sequence[answers.Header]) -> None:
        self.heads = heads
        self.own = _Columns("blocks", heads, np.ones(len(heads), np.int64))
        told = self.own.told
        self.numbers: Numbers = told("number", columns.int64, [head.number for head in heads])
        hashes = [head.hash for head in heads]
        self.hashes: columns.Bytes = told("hash", columns.matrix, hashes, HASH)
        moments = [head.timestamp for head in heads]
        self.seconds: Numbers = told("timestamp", columns.int64, moments)
        self.own.built |= {
            "number": columns.from_integers(self.numbers),
            "hash": columns.from_matrix(self.hashes),
            "timestamp": told("timestamp", columns.times, self.seconds),
        }


class _Columns:
    """The columns of one table under construction; knows which block a row belongs to."""

    def __init__(self, table: str, heads: Sequence[answers.Header], counts: Numbers) -> None:
        self.table = table
        self.heads = heads
        self.counts = counts
        self.built: columns.Arrays = {}

    def put(self, make: Callable[..., columns.Arrays], given: columns.Texts, *more: Any) -> None:
        """Makes columns of one kind together."""
        self.built |= self.told("", make, given, *more)

    def place(self, place: _Place) -> None:
        """The three columns every row shares with its block."""
        self.built |= {
            "block_number": columns.from_integers(np.repeat(place.numbers, self.counts)),
            "block_hash": columns.from_matrix(np.repeat(place.hashes, self.counts, axis=0)),
            "block_timestamp": columns.times(np.repeat(place.seconds, self.counts)),
        }

    def finished(self) -> pa.Table:
        """The table."""
        schema = _SCHEMAS[self.table]
        arrays = [self.built[name] for name in schema.names]
        for name, array in zip(schema.names, arrays, strict=True):
            if array.null_count and name in _REQUIRED[self.table]:
                row = int(np.flatnonzero(~array.is_valid().to_numpy(zero_copy_only=False))[0])
                raise self.error(name, columns.BadValue(row, None, "is missing"))
        return pa.Table.from_arrays(arrays, schema=schema)

    def told(self, name: str, make: Callable[..., Any], *given: Any) -> Any:
        """Does a step; what is refused on the way is told with its block."""
        try:
            return make(*given)
        except columns.BadValue as bad:
            raise self.error(name or bad.column, bad) from None

    def error(self, name: str, bad: columns.BadValue) -> Unbelievable | RowRefused:
        """A complaint that names block, field and value."""
        owner = int(np.searchsorted(np.cumsum(self.counts), bad.row, side="right"))
        head = self.heads[owner]
        kind = Unbelievable if bad.is_malformed else RowRefused
        return kind(
            f"block {head.number} ({head.hash}): {self.table}.{name}: {bad}",
            block_number=_number(head.number),
            block_hash=head.hash,
            field=f"{self.table}.{name}",
            value=str(bad.value)[:200],
        )


def _blocks(heads: Sequence[answers.Header], place: _Place) -> pa.Table:
    build = place.own
    build.put(columns.fixed, {"parent_hash": [head.parent_hash for head in heads]}, HASH)
    build.put(columns.binary, _each(heads, _HEADER_BYTES))
    build.put(columns.integers, _each(heads, _HEADER_INTEGERS))
    build.put(columns.u256, _each(heads, _HEADER_U256))
    lists = [getattr(head, "transactions", None) for head in heads]
    counts = [None if listed is None else len(listed) for listed in lists]
    build.built["transaction_count"] = pa.array(counts, pa.int64())
    return build.finished()


def _transactions(
    heads: Sequence[answers.Block], blocks: Sequence[Whole], place: _Place
) -> tuple[pa.Table, columns.Bytes]:
    """The table, and the hashes of its rows for those of the logs."""
    counts = np.fromiter((len(head.transactions) for head in heads), np.int64, len(heads))
    rows = [row for head in heads for row in head.transactions]
    if not rows:
        return _SCHEMAS["transactions"].empty_table(), np.zeros((0, HASH), np.uint8)
    outcomes = _outcomes(blocks, counts)
    build = _Columns("transactions", heads, counts)
    build.place(place)
    hashes = build.told("hash", columns.matrix, [row.hash for row in rows], HASH)
    build.built["hash"] = columns.from_matrix(hashes)
    build.built["transaction_index"] = columns.from_integers(_positions(counts))
    build.put(
        columns.fixed,
        {
            "from_address": [row.sender for row in rows],
            "to_address": [row.to for row in rows],
            "contract_address": [outcome.contract_address for outcome in outcomes],
        },
        ADDRESS,
    )
    build.put(
        columns.integers,
        {
            "transaction_type": [row.type or "0x0" for row in rows],
            "nonce": [row.nonce for row in rows],
            "gas": [row.gas for row in rows],
            **_each(outcomes, _RECEIPT_INTEGERS),
        },
    )
    build.put(
        columns.u256,
        {
            "v": [row.v or row.y_parity for row in rows],
            **_each(rows, _TRANSACTION_U256),
            **_each(outcomes, _RECEIPT_U256),
        },
    )
    build.put(
        columns.binary,
        {"input": [row.input for row in rows], "root": [outcome.root for outcome in outcomes]},
    )
    blobs = [row.blob_versioned_hashes for row in rows]
    name = "blob_versioned_hashes"
    build.built[name] = build.told(name, columns.binary_lists, blobs, HASH)
    for name in ("access_list", "authorization_list"):
        lists = list(map(attrgetter(name), rows))
        build.built[name] = build.told(name, _documents, lists)
    return build.finished(), hashes


def _outcomes(blocks: Sequence[Whole], counts: Numbers) -> list[answers.Receipt]:
    """A receipt per transaction; one that says nothing for the blocks that have none."""
    rows: list[answers.Receipt] = []
    for whole, count in zip(blocks, counts.tolist(), strict=True):
        assert whole.receipts is None or len(whole.receipts) == count, "one receipt each"
        rows.extend([_NO_RECEIPT] * count if whole.receipts is None else whole.receipts)
    return rows


def _receipt_logs(blocks: Sequence[Whole], place: _Place, hashes: columns.Bytes) -> pa.Table:
    """Logs inside receipts: hash and index of the transaction are the receipt's."""
    receipts = [receipt for whole in blocks for receipt in whole.receipts or ()]
    lists = [receipt.logs for receipt in receipts]
    rows = list(chain.from_iterable(lists))
    if not rows:
        return _SCHEMAS["logs"].empty_table()
    per_receipt = np.fromiter(map(len, lists), np.int64, len(lists))
    sizes = np.fromiter((len(whole.receipts or ()) for whole in blocks), np.int64, len(blocks))
    owner = np.repeat(np.arange(len(blocks)), sizes)
    counts = np.bincount(owner, per_receipt, minlength=len(blocks)).astype(np.int64)
    build = _Columns("logs", place.heads, counts)
    build.place(place)
    repeated = np.repeat(hashes, per_receipt, axis=0)
    build.built["transaction_hash"] = columns.from_matrix(repeated)
    positions = np.repeat(_positions(sizes), per_receipt)
    build.built["transaction_index"] = columns.from_integers(positions)
    return _logs(build, rows)


def _lone_logs(blocks: Sequence[Whole], place: _Place) -> pa.Table:
    """Logs that came without receipts, or partly so."""
    lists: list[Sequence[answers.ReceiptLog]] = [
        whole.logs
        if whole.receipts is None
        else [log for receipt in whole.receipts for log in receipt.logs]
        for whole in blocks
    ]
    rows = list(chain.from_iterable(lists))
    if not rows:
        return _SCHEMAS["logs"].empty_table()
    build = _Columns("logs", place.heads, np.fromiter(map(len, lists), np.int64, len(lists)))
    build.place(place)
    build.put(columns.fixed, _each(rows, ("transaction_hash",)), HASH)
    build.put(columns.integers, _each(rows, ("transaction_index",)))
    return _logs(build, rows)


def _logs(build: _Columns, rows: Sequence[answers.ReceiptLog]) -> pa.Table:
    written = [log.log_index for log in rows]
    indexes: Numbers = build.told("log_index", columns.int64, written)
    owner = np.repeat(np.arange(len(build.counts)), build.counts)
    back = np.flatnonzero((np.diff(indexes) <= 0) & (np.diff(owner) == 0))
    if len(back):
        row = int(back[0]) + 1
        raise build.error("log_index", columns.BadValue(row, written[row], "does not ascend"))
    build.built["log_index"] = columns.from_integers(indexes)
    build.put(columns.fixed, {"address": [log.address for log in rows]}, ADDRESS)
    build.put(columns.binary, {"data": [log.data for log in rows]})
    topics = build.told("topics", columns.nth, [log.topics for log in rows], HASH, TOPICS)
    build.built |= {f"topic{position}": column for position, column in enumerate(topics)}
    return build.finished()


def _withdrawals(heads: Sequence[answers.Block], place: _Place) -> pa.Table:
    counts = np.fromiter((len(head.withdrawals or ()) for head in heads), np.int64, len(heads))
    rows = [row for head in heads for row in head.withdrawals or ()]
    if not rows:
        return _SCHEMAS["withdrawals"].empty_table()
    build = _Columns("withdrawals", heads, counts)
    build.place(place)
    build.built["withdrawal_index"] = columns.from_integers(_positions(counts))
    build.put(columns.integers, _each(rows, ("index", "validator_index")))
    build.put(columns.fixed, _each(rows, ("address",)), ADDRESS)
    build.put(columns.u256, _each(rows, ("amount",)))
    return build.finished()


def _traces(blocks: Sequence[Whole], place: _Place) -> pa.Table:
    counts = np.fromiter((len(whole.traces or ()) for whole in blocks), np.int64, len(blocks))
    rows = [row for whole in blocks for row in whole.traces or ()]
    if not rows:
        return _SCHEMAS["traces"].empty_table()
    build = _Columns("traces", place.heads, counts)
    build.place(place)
    build.built["trace_index"] = columns.from_integers(_positions(counts))
    build.put(columns.fixed, _each(rows, ("transaction_hash",)), HASH)
    build.put(columns.fixed, _each(rows, ("from_address", "to_address")), ADDRESS)
    build.put(columns.integers, _each(rows, ("gas", "gas_used")))
    build.put(columns.u256, _each(rows, ("value",)))
    build.put(columns.binary, _each(rows, ("input", "output")))
    for name in ("trace_address", "trace_type", "call_type", "reward_type", "error"):
        build.built[name] = build.told(name, columns.texts, list(map(attrgetter(name), rows)))
    for name in ("transaction_index", "subtraces", "status"):
        build.built[name] = pa.array(list(map(attrgetter(name), rows)), pa.int64())
    return build.finished()


def _each(rows: Sequence[Any], names: Sequence[str]) -> dict[str, list[Any]]:
    """One column per field."""
    return {name: list(map(attrgetter(name), rows)) for name in names}


def _positions(counts: Numbers) -> Numbers:
    """0..n-1 for each block, one after the other."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - counts, counts)


def _documents(lists: Sequence[Sequence[msgspec.Struct] | None]) -> pa.Array:
    """JSON text per row; most rows hold the empty list, whose text is shared."""
    if not any(entries is not None for entries in lists):
        return pa.nulls(len(lists), pa.string())
    encode = msgspec.json.encode
    return columns.texts(
        [
            None if entries is None else encode(entries).decode() if entries else "[]"
            for entries in lists
        ],
        "\\u0000",
    )


def _number(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None


#: Built once: a schema takes longer to build than a small table.
_SCHEMAS = {dataset.name: dataset.schema for dataset in evm.DATASETS}
_REQUIRED = {
    dataset.name: frozenset(c.name for c in dataset.columns if not c.nullable)
    for dataset in evm.DATASETS
}
_NO_RECEIPT = answers.Receipt(transaction_hash="", transaction_index="", block_hash="", logs=[])
_HEADER_BYTES = (
    "nonce",
    "mix_hash",
    "sha3_uncles",
    "logs_bloom",
    "transactions_root",
    "state_root",
    "receipts_root",
    "miner",
    "extra_data",
    "withdrawals_root",
    "parent_beacon_block_root",
    "requests_hash",
)
_HEADER_INTEGERS = ("size", "gas_limit", "gas_used", "blob_gas_used", "excess_blob_gas")
_HEADER_U256 = ("difficulty", "total_difficulty", "base_fee_per_gas")
_TRANSACTION_U256 = (
    "value",
    "gas_price",
    "max_fee_per_gas",
    "max_priority_fee_per_gas",
    "max_fee_per_blob_gas",
    "chain_id",
    "r",
    "s",
)
_RECEIPT_INTEGERS = ("status", "gas_used", "cumulative_gas_used", "blob_gas_used")
_RECEIPT_U256 = ("effective_gas_price", "blob_gas_price")
