"""Owns a contract read: what a job asks contracts, declared beside the datasets that it reads.

The rows of one of the job's inputs ask. Each of them names a block and a contract, and perhaps
arguments; what the contract answers in the state after that very block, known by its hash, is a row
of a table that the transform gets after its other inputs. Rows that ask the same share an answer.

A read that is `immutable` promises that what a contract answers never changes while its code stays:
then an answer is good for every later block at which the contract has the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from unfork.datasets.dataset import Column, Kind
from unfork.jobs import signature
from unfork.jobs.signature import Signature

#: What every read begins with: where it was asked, and whom.
PLACE = (
    Column("block_number", Kind.INT),
    Column("block_hash", Kind.BYTES),
    Column("address", Kind.BYTES),
)
#: What was answered, before it is decoded.
ANSWER = (
    Column("ok", Kind.BOOL),
    Column("output", Kind.BYTES, nullable=True),
    Column("remark", Kind.TEXT, nullable=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Who is asked where, decided by a function: for built-in jobs that know what they were told.

    It takes the job's inputs and what the job has written already, and returns the rows that ask:
    the block by number and hash, the address, and what is carried along.
    """

    #: `package.module:function`.
    function: str
    #: The columns of inputs, each with its dataset, that name addresses.
    keys: tuple[tuple[str, str], ...]
    #: The columns of the job's own output that it is told, for these addresses.
    known: tuple[str, ...]
    #: What its rows carry along.
    carried: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One function that contracts are asked."""

    #: What the transform, or its SQL, calls the answers.
    name: str
    #: The input whose rows ask.
    of: str
    #: Its column with the contract.
    address: str
    #: `name(types of arguments)(types it returns)`.
    function: str
    #: Its columns with the arguments.
    arguments: tuple[str, ...] = ()
    is_immutable: bool = False
    #: Who is asked, where that is not every row; None for every row.
    asking: Asking | None = None

    @property
    def signature(self) -> Signature:
        """The function."""
        return signature.parse(self.function)

    @property
    def asks_alike(self) -> tuple[object, ...]:
        """Reads that are equal in this ask in the same places."""
        if self.asking is not None:
            return (self.asking.function,)
        return (self.of, self.address, self.arguments)

    def carried(self, asked: Mapping[str, Column]) -> tuple[Column, ...]:
        """The columns that are handed through; `asked` are those of the input by name."""
        if self.asking is not None:
            return self.asking.carried
        return tuple(Column(name, asked[name].kind) for name in self.arguments)

    def asked(self, columns: Mapping[str, Column]) -> tuple[Column, ...]:
        """The columns of a row that asks."""
        return (*PLACE, *self.carried(columns))

    def columns(self, columns: Mapping[str, Column]) -> tuple[Column, ...]:
        """The columns of the table of answers."""
        returned = (
            Column(one.name, one.type.kind, nullable=True) for one in self.signature.returns
        )
        return (*self.asked(columns), *ANSWER, *returned)

    def document(self) -> dict[str, object]:
        """What of it decides rows, as plain JSON values."""
        return {
            "name": self.name,
            "of": self.of,
            "address": self.address,
            "function": self.function,
            "arguments": list(self.arguments),
            "immutable": self.is_immutable,
            "asking": None if self.asking is None else self.asking.function,
        }


def problems(read: Read, taken: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with a read as the file has it: the key that is, and why.

    `taken` are the names that the transform's other inputs have.
    """
    if read.name in taken:
        yield "name", f"`{read.name}` is the name of another input; choose another"
    try:
        found = read.signature
    except signature.BadSignature as error:
        yield "function", str(error)
        return
    if len(found.arguments) != len(read.arguments):
        yield (
            "arguments",
            f"`{read.function}` takes {len(found.arguments)} arguments, not {len(read.arguments)}",
        )
    named = {column.name for column in (*PLACE, *ANSWER)} | set(read.arguments)
    for one in found.returns:
        if one.name in named:
            yield "function", f"what it returns cannot be called `{one.name}`: a column is already"
    for argument in read.arguments:
        if argument in {column.name for column in (*PLACE, *ANSWER)}:
            yield (
                "arguments",
                f"an argument cannot be called `{argument}`: answers have such a column",
            )


def misfits(read: Read, columns: Mapping[str, Column]) -> Iterator[str]:
    """What of a read does not fit the columns of the input whose rows ask."""
    number, hash = place_of(columns)
    for name in (number, hash, read.address, *read.arguments):
        if name not in columns:
            yield f"`{read.of}` has no column `{name}`; it has {', '.join(columns)}"
    if read.address in columns and columns[read.address].kind is not Kind.BYTES:
        yield f"`{read.address}` of `{read.of}` holds no addresses: it is not binary"
    for type_, name in zip(read.signature.arguments, read.arguments, strict=True):
        if name in columns and columns[name].kind not in type_.takes:
            kind = columns[name].kind.value
            yield f"`{name}` of `{read.of}` is {kind}, which is no {type_.name}"


def place_of(columns: Mapping[str, Column]) -> tuple[str, str]:
    """The columns of a dataset that say which block a row is of."""
    if "block_number" not in columns and "number" in columns:
        return "number", "hash"
    return "block_number", "block_hash"
