"""Toy datasets for tests of derived data: plain Python transforms whose input is a block's hash.

What a block holds is drawn from its hash, so another block at the same number holds something else,
and whoever knows the chain can compute everything anew: `expected` does, in the plainest way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from unfork.app.derived import DerivedDataset
from unfork.chain.advance import Day
from unfork.chain.block import BlockRef
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import ByBlocks, ByDay, Lookup, Mode, Rule, Strategy

Row = dict[str, Any]

ACCOUNTS = [bytes([65 + number]) * 3 for number in range(6)]
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)

PLACE = (Column("block_number", Kind.INT), Column("block_hash", Kind.BYTES))


@dataclass(frozen=True, slots=True)
class Transfer:
    """What a toy block holds."""

    index: int
    sender: bytes
    receiver: bytes
    amount: int
    note: str | None


#: What blocks hold, as whoever reads them sees it.
Contents = Callable[[BlockRef], Sequence[Transfer]]


def transfer(row: Mapping[str, Any]) -> Transfer:
    """A transfer as a row of `moves` tells it."""
    return Transfer(
        row["transfer_index"], row["sender"], row["receiver"], int(row["amount"]), row["note"]
    )


def transfers(block: BlockRef) -> list[Transfer]:
    """The transfers of a block; a third of all blocks has none."""
    dice = random.Random(block.hash)
    found = []
    for index in range(dice.choice([0, 1, 2, 3, 0, 1])):
        sender, receiver = dice.sample(ACCOUNTS, 2)
        amount = dice.choice([1, 7, 2**255, 2**256 - 1, dice.randrange(1000)])
        note = dice.choice([None, None, "a", "b'\"\\", "ü"])
        found.append(Transfer(index, sender, receiver, amount, note))
    return found


#: When blocks were made that a real chain has, by hash.
TIMES: dict[bytes, datetime] = {}


def time(block: BlockRef, *, blocks_per_day: int = 7) -> datetime:
    """When a block was made: never before its parent, in a fork perhaps in another day."""
    if block.hash in TIMES:
        return TIMES[block.hash]
    step = 86_400 / blocks_per_day
    jitter = random.Random(block.hash).random()
    return EPOCH + timedelta(seconds=int((block.number + jitter) * step))


def days(blocks: Sequence[BlockRef]) -> tuple[Day, ...]:
    """The days of some blocks."""
    found: dict[date, list[int]] = {}
    for block in blocks:
        found.setdefault(time(block).date(), []).append(block.number)
    return tuple(Day(day, min(numbers), max(numbers)) for day, numbers in found.items())


def _moves(block: BlockRef, held: Sequence[Transfer]) -> list[Row]:
    return [
        {
            "block_number": block.number,
            "block_hash": block.hash,
            "transfer_index": one.index,
            "sender": one.sender,
            "receiver": one.receiver,
            "amount": one.amount,
            "note": one.note,
        }
        for one in held
    ]


def _alerts(block: BlockRef, held: Sequence[Transfer]) -> list[Row]:
    return [
        {
            "block_number": block.number,
            "block_hash": block.hash,
            "rule": "large",
            "transfer_index": one.index if one.index else None,
            "amount": one.amount,
        }
        for one in held
        if one.amount > 5
    ]


def _firsts(block: BlockRef, held: Sequence[Transfer]) -> list[Row]:
    return [
        {
            "block_number": block.number,
            "block_hash": block.hash,
            "account": one.receiver,
            "sender": one.sender,
        }
        for one in held
    ]


def _balances(block: BlockRef, held: Sequence[Transfer]) -> list[Row]:
    """One change per account and block."""
    changes: dict[bytes, Row] = {}
    for one in held:
        for account, amount in ((one.sender, -one.amount), (one.receiver, one.amount)):
            change = changes.setdefault(
                account,
                {
                    "block_number": block.number,
                    "block_hash": block.hash,
                    "account": account,
                    "balance": 0,
                    "moves": 0,
                    "largest": None,
                    "since": block.number,
                    "note": None,
                    "first_note": None,
                },
            )
            change["balance"] += amount
            change["moves"] += 1
            change["largest"] = max(change["largest"] or 0, one.amount)
            change["note"] = one.note
            change["first_note"] = change["first_note"] or one.note
    return list(changes.values())


MOVES = DerivedDataset(
    name="moves",
    job="find_moves",
    inputs=("blocks",),
    mode=Mode.CURSOR,
    strategy=Strategy.REPLACE,
    columns=(
        *PLACE,
        Column("transfer_index", Kind.INT),
        Column("sender", Kind.BYTES),
        Column("receiver", Kind.BYTES),
        Column("amount", Kind.U256),
        Column("note", Kind.TEXT, nullable=True),
    ),
    key=("block_number", "transfer_index"),
    indexes=(("receiver",),),
)

ALERTS = DerivedDataset(
    name="alerts",
    job="find_alerts",
    inputs=("moves",),
    mode=Mode.CURSOR,
    strategy=Strategy.APPEND,
    columns=(
        *PLACE,
        Column("rule", Kind.TEXT),
        Column("transfer_index", Kind.INT, nullable=True),
        Column("amount", Kind.U256),
    ),
    key=("rule", "block_hash", "transfer_index"),
)

FIRSTS = DerivedDataset(
    name="firsts",
    job="find_firsts",
    inputs=("moves",),
    mode=Mode.CURSOR,
    strategy=Strategy.APPEND,
    columns=(*PLACE, Column("account", Kind.BYTES), Column("sender", Kind.BYTES)),
    key=("account",),
)

BALANCES = DerivedDataset(
    name="balances",
    job="sum_balances",
    inputs=("moves",),
    mode=Mode.CURSOR,
    strategy=Strategy.MERGE,
    columns=(
        *PLACE,
        Column("account", Kind.BYTES),
        Column("balance", Kind.SIGNED),
        Column("moves", Kind.INT),
        Column("largest", Kind.U256, nullable=True),
        Column("since", Kind.INT),
        Column("note", Kind.TEXT, nullable=True),
        Column("first_note", Kind.TEXT, nullable=True),
    ),
    key=("account",),
    rules={
        "balance": Rule.ADD,
        "moves": Rule.ADD,
        "largest": Rule.MAX,
        "since": Rule.MIN,
        "first_note": Rule.SET_IF_NULL,
    },
)

DAILY = DerivedDataset(
    name="daily",
    job="sum_days",
    inputs=("blocks", "moves"),
    mode=Mode.PARTITION,
    strategy=Strategy.REPLACE,
    columns=(
        Column("day", Kind.DATE),
        Column("account", Kind.BYTES),
        Column("moves", Kind.INT),
    ),
    key=("day", "account"),
    partitioning=ByDay("day"),
)

PAGES = DerivedDataset(
    name="pages",
    job="cut_pages",
    inputs=("moves",),
    mode=Mode.PARTITION,
    strategy=Strategy.REPLACE,
    columns=(Column("block_number", Kind.INT), Column("total", Kind.U256)),
    partitioning=ByBlocks(5),
)

TOTALS = DerivedDataset(
    name="totals",
    job="sum_all",
    inputs=("moves",),
    mode=Mode.FULL,
    strategy=Strategy.REPLACE,
    columns=(Column("account", Kind.BYTES), Column("moves", Kind.INT)),
    key=("account",),
)

EVERY = (MOVES, ALERTS, FIRSTS, BALANCES, DAILY, PAGES, TOTALS)

#: How often each sender received something so far: it looks up `moves` of all earlier blocks.
SEEN = DerivedDataset(
    name="seen",
    job="find_seen",
    inputs=("blocks", "moves"),
    lookups=("moves",),
    mode=Mode.CURSOR,
    strategy=Strategy.REPLACE,
    columns=(*PLACE, Column("transfer_index", Kind.INT), Column("received", Kind.INT)),
    key=("block_number", "transfer_index"),
)
LOOKUP = Lookup("receiver", "sender")

#: What a job in mode cursor makes of one block.
OF_BLOCK: Mapping[str, Callable[[BlockRef, Sequence[Transfer]], list[Row]]] = {
    "moves": _moves,
    "alerts": _alerts,
    "firsts": _firsts,
    "balances": _balances,
}


def computed(
    dataset: DerivedDataset,
    blocks: Sequence[BlockRef],
    contents: Contents = transfers,
    *,
    earlier: Sequence[BlockRef] = (),
) -> list[Row]:
    """What a run over the blocks hands over; `earlier` are all before them, for what is looked up.

    What drives a job with a lookup are the blocks themselves, whatever was corrected.
    """
    if dataset.name == "seen":
        return _seen(blocks, contents, earlier)
    if dataset.name in OF_BLOCK:
        return [row for block in blocks for row in OF_BLOCK[dataset.name](block, contents(block))]
    if dataset.name == "pages":
        return [
            {"block_number": block.number, "total": sum(t.amount for t in contents(block)) % 2**256}
            for block in blocks
            if contents(block)
        ]
    counts: dict[Any, int] = {}
    for block in blocks:
        for one in contents(block):
            key = (time(block).date(), one.receiver) if dataset.name == "daily" else one.receiver
            counts[key] = counts.get(key, 0) + 1
    if dataset.name == "daily":
        return [{"day": d, "account": a, "moves": n} for (d, a), n in counts.items()]
    return [{"account": account, "moves": count} for account, count in counts.items()]


def _seen(blocks: Sequence[BlockRef], contents: Contents, earlier: Sequence[BlockRef]) -> list[Row]:
    known = Counter(one.receiver for block in earlier for one in contents(block))
    rows = []
    for block in blocks:
        known.update(one.receiver for one in contents(block))
        rows += [
            {
                "block_number": block.number,
                "block_hash": block.hash,
                "transfer_index": one.index,
                "received": known[one.sender],
            }
            for one in transfers(block)
        ]
    return rows


def expected(
    dataset: DerivedDataset, blocks: Sequence[BlockRef], contents: Contents = transfers
) -> list[Row]:
    """What the dataset holds once all these blocks, from the first on, are in."""
    rows = computed(dataset, blocks, contents)
    if dataset.name == "firsts":
        seen: dict[bytes, Row] = {}
        for block in blocks:
            # Of several rows of one key in a block, the one that sorts first stays.
            for row in sorted(_firsts(block, contents(block)), key=lambda row: row["sender"]):
                seen.setdefault(row["account"], row)
        rows = list(seen.values())
    if dataset.name == "balances":
        held: dict[bytes, Row] = {}
        for row in rows:
            known = held.get(row["account"])
            if known is None:
                held[row["account"]] = dict(row)
                continue
            known["balance"] += row["balance"]
            known["moves"] += row["moves"]
            known["largest"] = max(known["largest"], row["largest"])
            known["since"] = min(known["since"], row["since"])
            known["first_note"] = known["first_note"] or row["first_note"]
            for column in ("block_number", "block_hash", "note"):
                known[column] = row[column]
        rows = list(held.values())
    return ordered(rows)


def ordered(rows: Sequence[Row]) -> list[Row]:
    """Rows in an order of their own, to be compared."""
    return sorted(rows, key=lambda row: repr([row[name] for name in sorted(row)]))


def arrow(dataset: DerivedDataset, rows: Sequence[Row]) -> pa.Table:
    """Rows as a run hands them over."""
    columns = [
        pa.array([_arrow(column.kind, row[column.name]) for row in rows], field.type)
        for column, field in zip(dataset.columns, dataset.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=dataset.schema)


def plain(rows: Sequence[Row]) -> list[Row]:
    """Rows as Postgres gives them, as plain values in an order of their own."""
    return ordered([{name: _plain(value) for name, value in row.items()} for row in rows])


def _arrow(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.U256:
        return int(value).to_bytes(32, "big")
    if kind is Kind.SIGNED:
        return int(value).to_bytes(40, "big", signed=True)
    return value


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value
