"""Goal: a declaration that cannot work is refused by name; one that works survives being stored."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests import toy
from unfork import errors
from unfork.app import derived
from unfork.app.derived import DerivedDataset
from unfork.datasets.dataset import Column, Kind
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Rule


@pytest.mark.parametrize("dataset", toy.EVERY, ids=lambda dataset: dataset.name)
def test_a_declaration_reads_back_from_json(dataset: DerivedDataset) -> None:
    stored = json.loads(json.dumps(dataset.document()))
    read = derived.from_document(stored)
    assert read == dataset and read.schema_hash == dataset.schema_hash


def test_serial_is_what_gathers_several_blocks() -> None:
    serial = {dataset.name for dataset in toy.EVERY if dataset.is_serial}
    assert serial == {"balances", "firsts"}


def test_the_schema_hash_tells_shape_and_not_incidentals() -> None:
    known = toy.MOVES.schema_hash
    assert replace(toy.MOVES, inputs=("logs",), indexes=()).schema_hash == known
    for other in (
        replace(toy.MOVES, key=("block_number", "sender")),
        replace(toy.MOVES, columns=(*toy.MOVES.columns, Column("fee", Kind.INT))),
        replace(toy.MOVES, columns=toy.MOVES.columns[:-1]),
    ):
        assert other.schema_hash != known


@pytest.mark.parametrize(
    ("dataset", "changed", "said"),
    [
        (toy.MOVES, {"columns": (*toy.MOVES.columns, toy.PLACE[0])}, "there twice"),
        (toy.MOVES, {"key": ("nothing",)}, "`nothing` is needed"),
        (toy.MOVES, {"columns": toy.MOVES.columns[1:], "key": ()}, "`block_number` is needed"),
        (toy.MOVES, {"number_column": "height"}, "`height` is needed"),
        (toy.MOVES, {"rules": {"amount": Rule.ADD}}, "strategy merge alone"),
        (toy.MOVES, {"partitioning": ByBlocks(5)}, "mode partition"),
        (toy.MOVES, {"table_blocks": 10, "key": ("transfer_index",)}, "in its key"),
        (toy.ALERTS, {"key": ()}, "needs a unique_key"),
        (toy.ALERTS, {"mode": Mode.FULL}, "mode cursor alone"),
        (toy.BALANCES, {"rules": {"note": Rule.ADD}}, "rule add does not go with column `note`"),
        (toy.BALANCES, {"rules": {"block_number": Rule.MIN}}, "last block"),
        (toy.BALANCES, {"key": ("note",)}, "may be NULL"),
        (toy.BALANCES, {"key": ("account", "block_number")}, "names the block"),
        (toy.BALANCES, {"table_blocks": 10}, "one piece"),
        (toy.DAILY, {"partitioning": None}, "mode partition"),
        (toy.DAILY, {"partitioning": ByDay("moves")}, "must be a date"),
        (toy.DAILY, {"partitioning": ByBlocks(5)}, "`block_number` is needed"),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(
    dataset: DerivedDataset, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(errors.ConfigInvalid, match=said) as caught:
        replace(dataset, **changed)
    assert f"`{dataset.name}` of job `{dataset.job}`" in str(caught.value)
