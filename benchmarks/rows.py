"""Owns made-up batches for measuring the store: blocks of a given size, with realistic columns.

Values are random but as long and as varied as on a busy chain: small and 256-bit numbers, NULLs
where transactions of older types have none, call data of varying length. Nothing is decoded here,
so a batch costs little beside what is measured.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from unfork.chain.block import BlockRef, Head
from unfork.datasets import evm
from unfork.datasets.batch import Batch
from unfork.datasets.dataset import ARROW, Column, Dataset, Kind
from unfork.datasets.scope import Scope

START_US = 1_700_000_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """Rows of one block."""

    transactions: int = 200
    logs: int = 400
    traces: int = 0
    withdrawals: int = 0

    @property
    def scope(self) -> Scope:
        """Everything, with traces where there are any."""
        return Scope(traces=self.traces > 0)


class Maker:
    """A seeded source of batches that continue one another."""

    def __init__(self, density: Density, seed: int = 1) -> None:
        self._density = density
        self._random = np.random.default_rng(seed)

    def batch(self, first: int, blocks: int, parent: BlockRef | None) -> Batch:
        """So many blocks from `first` on, after `parent`."""
        refs = tuple(BlockRef(number, self._hash()) for number in range(first, first + blocks))
        counts = {
            "blocks": 1,
            "transactions": self._density.transactions,
            "logs": self._density.logs,
            "traces": self._density.traces,
            "withdrawals": self._density.withdrawals,
        }
        parents = [parent.hash if parent else bytes(32), *(ref.hash for ref in refs[:-1])]
        tables = {
            name: self._table(evm.BY_NAME[name], refs, parents, counts[name])
            for name in self._density.scope.datasets
        }
        head = Head(latest=refs[-1], finalized=None)
        return Batch(parent=parent, refs=refs, tables=tables, head=head, scope=self._density.scope)

    def _table(
        self, dataset: Dataset, refs: tuple[BlockRef, ...], parents: list[bytes], count: int
    ) -> pa.Table:
        block = np.repeat(np.arange(len(refs)), count)
        place = np.tile(np.arange(count), len(refs))
        numbers = np.array([ref.number for ref in refs], dtype=np.int64)[block]
        known: dict[str, Any] = {
            dataset.number_column: pa.array(numbers),
            dataset.hash_column: _bytes([refs[index].hash for index in block]),
            "parent_hash": _bytes(parents) if dataset.name == "blocks" else None,
            dataset.key[-1]: pa.array(place if len(dataset.key) > 1 else numbers),
        }
        moments = pa.array(START_US + numbers * 12_000_000, pa.timestamp("us", tz="UTC"))
        known["timestamp" if dataset.name == "blocks" else "block_timestamp"] = moments
        columns = [
            known[column.name]
            if known.get(column.name) is not None
            else self._column(column, block)
            for column in dataset.columns
        ]
        return pa.Table.from_arrays(columns, schema=dataset.schema)

    def _column(self, column: Column, block: npt.NDArray[np.int64]) -> pa.Array:
        rows = len(block)
        nulls = None
        if column.nullable:
            # A column is mostly there, mostly not, or there for every other row.
            share = int.from_bytes(hashlib.sha256(column.name.encode()).digest()[:1], "big") % 3
            nulls = self._random.random(rows) < (0.02, 0.98, 0.5)[share]
        kind = ARROW[column.kind]
        if column.kind is Kind.INT:
            return pa.array(self._random.integers(0, 2**31, rows), kind, mask=nulls)
        if column.kind is Kind.U256:
            width = 32 if column.name in ("r", "s") else 8
            body = self._random.bytes(rows * width)
            values = [body[at : at + width].rjust(32, b"\x00") for at in range(0, len(body), width)]
            return pa.array(values, kind, mask=nulls)
        if column.kind is Kind.BYTES:
            return pa.array(self._byte_strings(column.name, rows), kind, mask=nulls)
        if column.kind is Kind.TEXT:
            return pa.array(["call"] * rows, kind, mask=nulls)
        if column.kind is Kind.JSON:
            return pa.array(["[]"] * rows, kind, mask=np.ones(rows, bool))
        return pa.nulls(rows, kind)

    def _byte_strings(self, name: str, rows: int) -> list[bytes]:
        if name in ("input", "data", "output"):
            lengths = self._random.choice([0, 4, 32, 68, 100, 260], rows)
        else:
            lengths = np.full(rows, _WIDTHS.get(name, 32))
        body = self._random.bytes(int(lengths.sum()))
        ends = np.cumsum(lengths)
        return [body[end - length : end] for end, length in zip(ends, lengths, strict=True)]

    def _hash(self) -> bytes:
        return self._random.bytes(32)


_WIDTHS = {
    "logs_bloom": 256,
    "nonce": 8,
    **dict.fromkeys(("miner", "address", "from_address", "to_address", "contract_address"), 20),
}


def _bytes(values: list[bytes]) -> pa.Array:
    return pa.array(values, pa.binary())
