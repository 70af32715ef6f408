"""Owns the asking of contracts: rows that ask in, rows with answers out, the same wherever it runs.

A small run asks from the driver, through the source that its worker has anyway. A large one asks
from its tasks: each makes a source of its own out of the configuration (no address travels with a
plan), with its share of the requests that may be under way at once. Either way a question is asked
once a block, an answer that is kept is not asked for again, and what was answered is kept, so that
a task that Spark runs twice finds what it was told the first time.

A value that no call can carry, or an answer that is not what the signature says, is a row like any
other, with a remark. What a contract returns beyond OUTPUT_BYTES_MAX is not kept.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa

from unfork.chain.block import BlockRef
from unfork.clock import Clock
from unfork.datasets.dataset import Column, Kind
from unfork.jobs import read as reads
from unfork.jobs import signature
from unfork.jobs.calling import Calls
from unfork.jobs.read import Read
from unfork.jobs.spark import kept, schema
from unfork.jobs.spark import place as places
from unfork.jobs.spark.kept import Kept, Moment
from unfork.jobs.spark.place import Place
from unfork.proof.keccak import keccak256
from unfork.sources.evm import EvmSource
from unfork.sources.source import ContractCall, Returned

T = TypeVar("T")

#: Bytes of an answer that are kept: what is longer is none that a column is for.
OUTPUT_BYTES_MAX = 65_536
#: Calls whose answers are kept together: what a failure further on cannot undo.
CALLS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A read, and the columns of the rows that ask it."""

    read: Read
    #: The columns of a row that asks: its place and what is carried along.
    asked: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the rows with answers."""
        returned = (
            Column(one.name, one.type.kind, nullable=True) for one in self.read.signature.returns
        )
        return (*self.asked, *reads.ANSWER, *returned)


@dataclass(slots=True)
class _Rows:
    """The rows that ask one question, and what becomes of each."""

    question: Question
    table: pa.Table
    #: The call of each row; None where there can be none, and why.
    calls: list[ContractCall | None] = field(default_factory=list)
    refused: dict[int, str] = field(default_factory=dict)


class Asker:
    """Asks contracts for one run."""

    def __init__(self, place: Place, moment: Moment, calls: Calls, *, keeps: bool = True) -> None:
        """`keeps` is whether answers are written down."""
        self._place = place
        self._moment = moment
        self._calls = calls
        self._keeps = keeps

    def answers(self, asked: Sequence[tuple[Question, pa.Table]]) -> list[pa.Table]:
        """The rows with answers, a table a question, rows in the order of those that ask."""
        rows = [_rows(question, table) for question, table in asked]
        lasting: dict[ContractCall, bool] = {}
        for one in rows:
            for call in one.calls:
                if call is not None:
                    lasting[call] = lasting.get(call, False) or one.question.read.is_immutable
        answered = self._answered(lasting) if lasting else {}
        return [_table(one, answered) for one in rows]

    def _answered(self, wanted: Mapping[ContractCall, bool]) -> dict[ContractCall, Returned]:
        """What contracts answer; `wanted` says whether an answer lasts as long as their code."""
        calls = list(wanted)
        with kept.opened(self._place, self._moment) as store:
            held = store.held(calls)
            answered = {calls[place]: answer for place, answer in held.items()}
            codes = self._codes([call for call in calls if wanted[call] and call not in answered])
            answered |= self._lasting(store, codes)
        missing = [call for call in calls if call not in answered]
        for at in range(0, len(missing), CALLS_AT_ONCE):
            piece = missing[at : at + CALLS_AT_ONCE]
            # Nothing of the database is held while a node takes its time.
            told = [_cut(answer) for answer in self._calls.call(piece)]
            if self._keeps:
                good = [
                    codes.get(call) if answer.ok and answer.output else None
                    for call, answer in zip(piece, told, strict=True)
                ]
                with kept.opened(self._place, self._moment) as store:
                    store.keep(piece, told, good)
            answered |= dict(zip(piece, told, strict=True))
        return answered

    def _codes(self, calls: Sequence[ContractCall]) -> dict[ContractCall, bytes]:
        """The hash of the code that each call meets; none where there is no code."""
        at = list(dict.fromkeys((call.at, call.address) for call in calls))
        found = dict(zip(at, self._calls.code(at), strict=True)) if at else {}
        return {
            call: keccak256(found[call.at, call.address])
            for call in calls
            if found[call.at, call.address]
        }

    def _lasting(
        self, store: Kept, codes: Mapping[ContractCall, bytes]
    ) -> dict[ContractCall, Returned]:
        calls = list(codes)
        found = store.lasting(calls, [codes[call] for call in calls]) if calls else {}
        return {calls[place]: answer for place, answer in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What every task does that asks; it travels to where the task runs."""

    question: Question
    moment: Moment
    chain: str
    #: The path of the configuration, None where the task's environment says.
    config: str | None
    #: Tasks that ask at once, among which the requests under way are shared out.
    tasks: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that ask in, rows with answers out."""
        place = places.find(self.config, self.chain)
        calls = _OwnCalls(place, self.tasks)
        try:
            asker = Asker(place, self.moment, calls)
            for batch in batches:
                if batch.num_rows:
                    asked = [(self.question, pa.Table.from_batches([batch]))]
                    yield from asker.answers(asked)[0].to_batches()
        finally:
            calls.close()


class _OwnCalls:
    """A source of a task's own, on a loop of its own."""

    def __init__(self, place: Place, tasks: int) -> None:
        settings = place.chain.source
        share = settings.model_copy(update={"concurrency": max(1, settings.concurrency // tasks)})
        self._loop = asyncio.new_event_loop()
        self._source = EvmSource(
            place.chain.model_copy(update={"source": share}),
            clock=Clock(),
            random=random.Random(),
        )

    def call(self, calls: Sequence[ContractCall]) -> list[Returned]:
        return self._run(self._source.call(calls))

    def code(self, places: Sequence[tuple[BlockRef, bytes]]) -> list[bytes]:
        return self._run(self._source.code(places))

    def close(self) -> None:
        self._run(self._source.close())
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)


def _rows(question: Question, table: pa.Table) -> _Rows:
    """Every row's call, as far as its values can be written as one."""
    read, found = question.read, _Rows(question, table)
    kinds = {column.name: column.kind for column in question.asked}
    given = [table.column(name).to_pylist() for name in read.arguments]
    for at, (number, hash, address) in enumerate(
        zip(
            table.column("block_number").to_pylist(),
            table.column("block_hash").to_pylist(),
            table.column("address").to_pylist(),
            strict=True,
        )
    ):
        values = [
            _argument(kinds[name], column[at])
            for name, column in zip(read.arguments, given, strict=True)
        ]
        try:
            if len(address) != 20:
                raise signature.Unfit
            data = signature.encode(read.signature, values)
            call = ContractCall(at=BlockRef(number, hash), address=address, data=data)
        except signature.Unfit:
            found.refused[at] = "address" if len(address) != 20 else "argument"
            call = None
        found.calls.append(call)
    return found


def _argument(kind: Kind, value: Any) -> Any:
    """A value of a column as an argument."""
    if kind is Kind.U256:
        return int.from_bytes(value, "big")
    if kind is Kind.SIGNED:
        return int.from_bytes(value, "big", signed=True)
    return value


def _cut(answer: Returned) -> Returned:
    """An answer no longer than it takes to know that it is too long."""
    if len(answer.output) <= OUTPUT_BYTES_MAX:
        return answer
    return replace(answer, output=answer.output[: OUTPUT_BYTES_MAX + 1])


def _table(rows: _Rows, answered: Mapping[ContractCall, Returned]) -> pa.Table:
    """Rows with their answers."""
    found = rows.question.read.signature
    nothing: tuple[Any, ...] = (None,) * len(found.returns)
    answers: list[tuple[Any, ...]] = []
    for at, call in enumerate(rows.calls):
        if call is None:
            answers.append((False, None, rows.refused[at], *nothing))
            continue
        told = answered[call]
        if not told.ok:
            answers.append((False, None, "reverted", *nothing))
        elif len(told.output) > OUTPUT_BYTES_MAX:
            answers.append((True, None, "long", *nothing))
        else:
            said = signature.decode(found, told.output)
            remark = " ".join(said.remarks) or None
            answers.append((True, told.output, remark, *said.values))
    shape = schema.arrow(rows.question.columns)
    own = [rows.table.column(column.name) for column in rows.question.asked]
    columns = [
        pa.chunked_array([pa.array(values, shape.field(len(own) + place).type)])
        for place, values in enumerate(
            zip(*answers, strict=True) if answers else ((),) * (len(shape) - len(own))
        )
    ]
    return pa.Table.from_arrays(
        [each.cast(field.type) for each, field in zip([*own, *columns], shape, strict=True)],
        schema=shape,
    )
