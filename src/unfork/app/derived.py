"""Owns the declaration of a derived dataset: columns, key, and how its rows are kept right.

A job's specification says what is to be computed; this says what of it the database must know. It
is stored with every build of the dataset, so that a fork is undone in all of them, also where their
job is declared no longer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from unfork import errors
from unfork.datasets.dataset import ARROW, Column, Kind
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Partitioning, Rule, Strategy

#: The one partition of a dataset in mode full.
WHOLE = "all"

#: How an indexed column says that the index begins with the highest.
DESCENDING = " DESC"

#: Blocks of one version of a dataset in mode cursor.
VERSION_BLOCKS = 50_000

#: Kinds that a rule can be applied to; "set" goes with any of them.
_RULED: dict[Rule, frozenset[Kind]] = {
    Rule.ADD: frozenset({Kind.INT, Kind.U256, Kind.SIGNED}),
    Rule.MIN: frozenset({Kind.INT, Kind.U256, Kind.SIGNED, Kind.TEXT, Kind.TIME, Kind.DATE}),
    Rule.MAX: frozenset({Kind.INT, Kind.U256, Kind.SIGNED, Kind.TEXT, Kind.TIME, Kind.DATE}),
    Rule.SET_IF_NULL: frozenset(Kind) - {Kind.BYTES_LIST},
    Rule.SET: frozenset(Kind) - {Kind.BYTES_LIST},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivedDataset:
    """A table that a job computes: what its rows are and how they are written."""

    name: str
    #: The one job that writes it.
    job: str
    #: The datasets that the job reads.
    inputs: tuple[str, ...]
    mode: Mode
    strategy: Strategy
    columns: tuple[Column, ...]
    #: The columns that identify a row; may be empty with replace.
    key: tuple[str, ...] = ()
    #: How merge folds each column; one that is not named is set.
    rules: Mapping[str, Rule] = field(default_factory=dict)
    #: How the chain is cut, in mode partition alone.
    partitioning: Partitioning | None = None
    #: The inputs of which rows of all earlier blocks are read, so that a change of them reaches
    #: every later block.
    lookups: tuple[str, ...] = ()
    #: Further indexes of the table; a column may say ` DESC`.
    indexes: tuple[tuple[str, ...], ...] = ()
    #: Block numbers per physical partition of the table; None for a table in one piece.
    table_blocks: int | None = None
    number_column: str = "block_number"
    hash_column: str = "block_hash"

    def __post_init__(self) -> None:
        """Raises ConfigInvalid, naming the dataset, where the parts do not fit together."""
        problem = _problem(self)
        if problem:
            raise errors.ConfigInvalid(f"dataset `{self.name}` of job `{self.job}`: {problem}")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def has_hash(self) -> bool:
        """Whether every row names its block by hash too."""
        return self.hash_column in self.names

    @property
    def is_serial(self) -> bool:
        """Whether blocks can only be added in order: a row gathers what several blocks brought."""
        with_block = {self.number_column, self.hash_column} & set(self.key)
        return self.strategy is Strategy.MERGE or (
            self.strategy is Strategy.APPEND and not with_block
        )

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows that a run hands over."""
        return pa.schema(
            [pa.field(c.name, ARROW[c.kind], nullable=c.nullable) for c in self.columns]
        )

    @property
    def schema_hash(self) -> str:
        """A short stable name of the table's shape and of how rows come into it."""
        shape = self.document()
        for incidental in ("job", "inputs", "lookups", "indexes", "table_blocks"):
            del shape[incidental]
        text = json.dumps(shape, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def kind(self, name: str) -> Kind:
        """What a column holds."""
        return next(column.kind for column in self.columns if column.name == name)

    def rule(self, name: str) -> Rule:
        """How merge folds a column that is not in the key."""
        return self.rules.get(name, Rule.SET)

    def document(self) -> dict[str, Any]:
        """The declaration as plain JSON values."""
        match self.partitioning:
            case ByBlocks(size):
                partitioning: Any = {"blocks": size}
            case ByDay(column):
                partitioning = {"day": column}
            case None:
                partitioning = None
        return {
            "name": self.name,
            "job": self.job,
            "inputs": list(self.inputs),
            "lookups": list(self.lookups),
            "mode": str(self.mode),
            "strategy": str(self.strategy),
            "columns": [[c.name, c.kind.name, c.nullable] for c in self.columns],
            "key": list(self.key),
            "rules": {name: str(rule) for name, rule in self.rules.items()},
            "partitioning": partitioning,
            "indexes": [list(index) for index in self.indexes],
            "table_blocks": self.table_blocks,
            "number_column": self.number_column,
            "hash_column": self.hash_column,
        }


def from_document(document: Mapping[str, Any]) -> DerivedDataset:
    """Reads what `document` wrote."""
    given = document["partitioning"]
    partitioning: Partitioning | None = None
    if given is not None:
        partitioning = ByBlocks(given["blocks"]) if "blocks" in given else ByDay(given["day"])
    return DerivedDataset(
        name=document["name"],
        job=document["job"],
        inputs=tuple(document["inputs"]),
        # What an earlier release declared has none.
        lookups=tuple(document.get("lookups", ())),
        mode=Mode(document["mode"]),
        strategy=Strategy(document["strategy"]),
        columns=tuple(Column(n, Kind[kind], nullable) for n, kind, nullable in document["columns"]),
        key=tuple(document["key"]),
        rules={name: Rule(rule) for name, rule in document["rules"].items()},
        partitioning=partitioning,
        indexes=tuple(tuple(index) for index in document["indexes"]),
        table_blocks=document["table_blocks"],
        number_column=document["number_column"],
        hash_column=document["hash_column"],
    )


def _problem(dataset: DerivedDataset) -> str | None:
    """What is wrong with a declaration, None where nothing is."""
    names = dataset.names
    for name in names:
        if names.count(name) > 1:
            return f"column `{name}` is there twice"
    indexed = (name.removesuffix(DESCENDING) for index in dataset.indexes for name in index)
    wanted = [*dataset.key, *dataset.rules, *indexed]
    if dataset.mode is Mode.CURSOR:
        wanted.append(dataset.number_column)
        if dataset.strategy is not Strategy.MERGE:
            wanted.append(dataset.hash_column)
    if isinstance(dataset.partitioning, ByDay):
        wanted.append(dataset.partitioning.column)
    if isinstance(dataset.partitioning, ByBlocks) or dataset.table_blocks is not None:
        wanted.append(dataset.number_column)
    for name in wanted:
        if name not in names:
            return f"column `{name}` is needed and not there"
    return _strategy_problem(dataset) or _partition_problem(dataset)


def _strategy_problem(dataset: DerivedDataset) -> str | None:
    if dataset.strategy is not Strategy.REPLACE:
        if dataset.mode is not Mode.CURSOR:
            return f"strategy {dataset.strategy} goes with mode cursor alone"
        if not dataset.key:
            return f"strategy {dataset.strategy} needs a unique_key"
    if dataset.rules and dataset.strategy is not Strategy.MERGE:
        return "rules go with strategy merge alone"
    if dataset.strategy is not Strategy.MERGE:
        return None
    for column in dataset.columns:
        if column.name in dataset.key:
            if column.nullable or column.name in (dataset.number_column, dataset.hash_column):
                return f"column `{column.name}` of the key may be NULL or names the block"
        elif column.kind not in _RULED[dataset.rule(column.name)]:
            return f"rule {dataset.rule(column.name)} does not go with column `{column.name}`"
        elif column.name in (dataset.number_column, dataset.hash_column):
            if dataset.rule(column.name) is not Rule.SET:
                return f"column `{column.name}` names the last block that changed a row: rule set"
    return None


def _partition_problem(dataset: DerivedDataset) -> str | None:
    if (dataset.partitioning is not None) != (dataset.mode is Mode.PARTITION):
        return "partitions go with mode partition, and it needs them"
    if isinstance(dataset.partitioning, ByDay):
        if dataset.kind(dataset.partitioning.column) not in (Kind.DATE, Kind.TEXT):
            return f"column `{dataset.partitioning.column}` must be a date or its text"
    if dataset.table_blocks is not None:
        if dataset.strategy is Strategy.MERGE:
            return "the rows of a merge do not lie along the chain; keep the table in one piece"
        if dataset.key and dataset.number_column not in dataset.key:
            return f"a table in pieces needs `{dataset.number_column}` in its key"
    return None
