"""Proves that docs/proofs.md says of every check and every column what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from unfork.proof.columns import COVERED, UNCOMMITTED
from unfork.proof.finding import Check

PAGE = (Path(__file__).parents[2] / "docs/proofs.md").read_text()


def test_the_page_lists_the_columns_that_each_check_answers_for() -> None:
    listed = {}
    for check, columns in re.findall(r"^\| `(\w+)` \| ([^|]*) \|", PAGE, flags=re.MULTILINE):
        listed[Check(check)] = {
            f"{dataset}.{name}"
            for dataset, names in re.findall(r"`(\w+)`: ([^;|]*)", columns)
            for name in re.split(r",\s*", names.strip())
        }
    assert listed == {check: set(columns) for check, columns in COVERED.items()}


def test_the_page_names_every_check() -> None:
    said = set(re.findall(r"`(\w+)`", PAGE))
    assert {check.value for check in Check} - said == {Check.SOURCE_HASH.value}
    last = PAGE.rpartition("commits to (")[2]
    assert set(re.findall(r"`(\w+)`", last)) == {check.value for check in UNCOMMITTED}
