"""Owns the transform of decoding: the logs of one event, as rows with a column an argument.

Whether a log is of the event is told by its first topic, by how many topics it has and by its
address: an ERC-20 and an ERC-721 share the topic of Transfer and differ in the number. A log that
is of the event and does not decode is refused (jobs/refused.py), with what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from unfork.app import refused
from unfork.datasets.dataset import Kind
from unfork.jobs.decode import abi, columns, dynamic, static
from unfork.jobs.decode.abi import Event
from unfork.jobs.decode.columns import PLACE, Decoded
from unfork.jobs.decode.static import Source
from unfork.jobs.spark.schema import KIND

TOPICS = ("topic0", "topic1", "topic2", "topic3")

#: The same functions; the types that PySpark publishes leave out the newer ones.
_FUNCTIONS: Any = F

#: The column that holds what SQL could not decode, while rows are made.
_PARTS = "decoded_parts"


def events(
    logs: DataFrame, announced: DataFrame | None = None, *, config: Mapping[str, Any]
) -> DataFrame:
    """The logs of the event that `config` describes, decoded.

    With `announced` only those of contracts that it names in the log's own block or before.
    """
    event = abi.event(config["event"])
    chosen = logs.select(*PLACE, *TOPICS, "data").where(_is_of(event, config))
    if announced is not None:
        known = announced.select(
            F.col(config["column"]).alias("announced_address"),
            F.col("block_number").alias("announced_at"),
        )
        is_known = F.col("address") == F.col("announced_address")
        is_before = F.col("announced_at") <= F.col("block_number")
        chosen = chosen.join(known, on=is_known & is_before, how="left_semi")
    return decoded(event, chosen)


def decoded(event: Event, logs: DataFrame) -> DataFrame:
    """Logs of an event, a column an argument; those that are malformed say why."""
    places = list(_places(event))
    parts = [place for place in places if place.is_part]
    if parts:
        decode = _FUNCTIONS.arrow_udf(_decoder(parts, _heads(event)), _struct(parts))
        logs = logs.withColumn(_PARTS, decode("data"))
    values = []
    for place in places:
        text = place.source.whole
        if place.is_part:
            text = f"{_PARTS}.part{parts.index(place)}"
        elif not place.column.is_hash:
            text = static.value(place.column.argument.type, place.source)
        values.append(_typed(F.expr(text), place.column.name, place.column.kind))
    logs = logs.withColumn(refused.ERROR, F.expr(_error(event, places)))
    data = f"CASE WHEN {refused.ERROR} IS NOT NULL THEN data END AS {refused.DATA}"
    return logs.select(*PLACE, *values, refused.ERROR, F.expr(data))


def topics_of(event: Event) -> tuple[str, ...]:
    """The topics that a log of an event has."""
    return TOPICS[: len(event.indexed) + (not event.is_anonymous)]


def _is_of(event: Event, config: Mapping[str, Any]) -> str:
    """The condition under which a log is of an event."""
    held = topics_of(event)
    conditions = [f"{topic} IS NOT NULL" for topic in held]
    conditions += [f"{topic} IS NULL" for topic in TOPICS[len(held) :][:1]]
    if not event.is_anonymous:
        conditions[0] = f"topic0 = X'{event.topic.hex()}'"
    listed = config.get("addresses")
    if listed:
        texts = ", ".join(f"X'{address.removeprefix('0x')}'" for address in listed)
        conditions.append(f"address IN ({texts})")
    return " AND ".join(conditions)


def _error(event: Event, places: Sequence[_Place]) -> str:
    """What is wrong with a log, NULL where nothing is."""
    cases = []
    heads = _heads(event)
    if heads:
        short = f"'the data ends after ', length(data), ' bytes, of at least {heads}'"
        cases.append((f"length(data) < {heads}", short))
    for place in places:
        type_ = place.column.argument.type
        wrong = static.wrong(type_, place.source) if place.is_word else None
        if wrong is not None:
            why = f"argument {place.column.name}: a word is no {type_.canonical}"
            cases.append((wrong, f"'{why}'"))
    if any(place.is_part for place in places):
        cases.append((f"{_PARTS}.{dynamic.ERROR} IS NOT NULL", f"{_PARTS}.{dynamic.ERROR}"))
    if not cases:
        return "CAST(NULL AS string)"
    which = "'log ', log_index, ' of 0x', lower(hex(address)), ': '"
    told = (f"WHEN {condition} THEN concat({which}, {why})" for condition, why in cases)
    return f"CASE {' '.join(told)} END"


def _decoder(parts: Sequence[_Place], heads: int) -> Callable[[Any], Any]:
    told = []
    for place in parts:
        argument = place.column.argument
        document = {key: value for key, value in argument.document.items() if key != "indexed"}
        told.append((place.column.name, document, place.source.at or 0, heads))
    return dynamic.decoder(told)


def _struct(parts: Sequence[_Place]) -> StructType:
    fields = [StructField(dynamic.ERROR, StringType())]
    for index, place in enumerate(parts):
        type_: DataType = BinaryType() if place.column.kind is Kind.BYTES else StringType()
        fields.append(StructField(f"part{index}", type_))
    return StructType(fields)


def _heads(event: Event) -> int:
    """Bytes that the data of an event has at least."""
    return sum(one.type.head for one in event.arguments if not one.is_indexed)


def _typed(column: Column, name: str, kind: Kind) -> Column:
    """A column that says what its bytes are."""
    return column.alias(name, metadata={KIND: kind.value})


class _Place:
    """The column of an argument, and where its value stands in a log."""

    def __init__(self, column: Decoded, source: Source) -> None:
        self.column = column
        self.source = source
        #: Whether SQL decodes it: a hash, or a word.
        self.is_word = column.argument.type.is_word
        #: Whether Arrow decodes it.
        self.is_part = not self.is_word and not column.is_hash


def _places(event: Event) -> Iterator[_Place]:
    topics = iter(TOPICS if event.is_anonymous else TOPICS[1:])
    at = 0
    for column in columns.of(event):
        if column.argument.is_indexed:
            yield _Place(column, Source(next(topics)))
        else:
            yield _Place(column, Source("data", at))
            at += column.argument.type.head
