"""Owns what a decoded event looks like as a table: the names of its columns, and what they hold.

Names are written as SQL writes them: `tokenId` is token_id, `_from` is from_. Where a name is taken
by another column, or is a word of SQL, it gets an underscore at its end; an argument without a name
is called for its place, arg0 being the first.

| type | column |
|---|---|
| uint8 to uint56, int8 to int64 | bigint |
| uint64 to uint256 | numeric(78,0) |
| int72 to int256 | numeric |
| address, bytes1 to bytes32, function, bytes | bytea |
| bool | boolean |
| string | text |
| arrays, tuples | jsonb: numbers as decimal text, bytes as 0x and hex, tuples by their names |
| an indexed string, bytes, array or tuple | bytea: the hash that is its topic, named …_hash |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from unfork.datasets.dataset import Kind
from unfork.jobs.decode.abi import Argument, Event
from unfork.jobs.decode.types import Form, Type

#: The columns that say where a log is, before those of the arguments.
PLACE = (
    "block_number",
    "block_hash",
    "block_timestamp",
    "transaction_hash",
    "transaction_index",
    "log_index",
    "address",
)

#: Characters that a name is cut to, and those that Postgres takes.
NAME_MAX, LENGTH_MAX = 58, 63

#: Words that SQL, Postgres' or Spark's, wants quoted where a column stands.
WORDS = frozenset(
    """all analyse analyze and anti any array as asc asymmetric authorization between binary both
    case cast check collate collation column concurrently constraint create cross current
    current_catalog current_date current_role current_schema current_time current_timestamp
    current_user default deferrable desc distinct div do else end escape except false fetch filter
    for foreign freeze from full grant group having ilike in initially inner intersect into is
    isnull join lateral leading left like limit localtime localtimestamp minus natural not notnull
    null offset on only or order outer overlaps placing primary qualify references returning right
    select semi session_user similar some symmetric table tablesample then time to trailing true
    union unique unknown user using variadic verbose when where window with within""".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The column of one argument."""

    name: str
    kind: Kind
    argument: Argument
    #: Whether it is the hash that stands in a topic for a value that does not fit there.
    is_hash: bool


def of(event: Event) -> tuple[Decoded, ...]:
    """The columns of an event's arguments, in order."""
    return tuple(_columns(event))


def snake(name: str) -> str:
    """A name of an ABI as SQL writes it; empty where nothing of it can be written."""
    text = re.sub(r"[^A-Za-z0-9]+", "_", name)
    text = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", text)
    text = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    return re.sub(r"_+", "_", text).strip("_").lower()


def kind(type_: Type) -> Kind:
    """What the column of a value holds."""
    match type_.form:
        case Form.UINT:
            return Kind.INT if type_.size < 64 else Kind.U256
        case Form.INT:
            return Kind.INT if type_.size <= 64 else Kind.SIGNED
        case Form.BOOL:
            return Kind.BOOL
        case Form.STRING:
            return Kind.TEXT
        case Form.ARRAY | Form.TUPLE:
            return Kind.JSON
    return Kind.BYTES


def _columns(event: Event) -> Iterator[Decoded]:
    taken = set(PLACE)
    for place, argument in enumerate(event.arguments):
        is_hash = argument.is_indexed and not argument.type.is_word
        name = snake(argument.name) or f"arg{place}"
        name = (f"_{name}" if name[0].isdigit() else name)[:NAME_MAX]
        name = f"{name[: NAME_MAX - 5]}_hash" if is_hash else name
        while name in taken or name in WORDS:
            name = f"{name}_" if len(name) < LENGTH_MAX else f"arg{place}"
        taken.add(name)
        yield Decoded(
            name=name,
            kind=Kind.BYTES if is_hash else kind(argument.type),
            argument=argument,
            is_hash=is_hash,
        )
