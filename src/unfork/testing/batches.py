"""Owns batches made of devnet blocks by way of the oracle's rows: a source without a node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from unfork.chain.block import BlockRef, Head
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.datasets.dataset import Dataset, Kind
from unfork.datasets.scope import Scope
from unfork.devnet.block import Block
from unfork.testing import oracle

WHOLE = Scope(traces=True)


def batch(
    *blocks: Block,
    head: Block | None = None,
    finalized: Block | None = None,
    scope: Scope = WHOLE,
) -> Batch:
    """The blocks as a source hands them on; the head is the last of them unless given."""
    first = blocks[0]
    parent = BlockRef(first.number - 1, first.header.parent_hash) if first.number else None
    rows = oracle.rows_of(blocks)
    return Batch(
        parent=parent,
        refs=tuple(ref(block) for block in blocks),
        tables={name: table(evm.BY_NAME[name], rows[name]) for name in scope.datasets},
        head=Head(latest=ref(head or blocks[-1]), finalized=ref(finalized) if finalized else None),
        scope=scope,
    )


def ref(block: Block) -> BlockRef:
    """A block's number and hash."""
    return BlockRef(block.number, block.hash)


def table(dataset: Dataset, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of plain values as the Arrow table of their dataset."""
    columns = [
        pa.array([_arrow(column.kind, row[column.name]) for row in rows], field.type)
        for column, field in zip(dataset.columns, dataset.schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=dataset.schema)


def _arrow(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind is Kind.U256:
        return int(value).to_bytes(32, "big")
    return json.dumps(value) if kind is Kind.JSON else value
