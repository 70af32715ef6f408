"""Goal: a contract read that cannot work is refused before anything runs, with line and reason.

Method: small project files; what is wrong in each is said in one sentence.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.unit.jobs.projects import problems, project, read, specs
from unfork.chain.block import BlockRef
from unfork.config.load import load
from unfork.datasets.dataset import Column, Kind
from unfork.jobs import catalog, fingerprint
from unfork.jobs import read as reads
from unfork.jobs.plan import plan
from unfork.jobs.read import Read
from unfork.jobs.run import Cause
from unfork.jobs.state import Fingerprint, State
from unfork.jobs.work import Limits

JOBS = """
jobs:
  - name: token_transfers
  - name: prices
    input_datasets: [hot_logs, token_transfers]
    sql: prices.sql
    reads:
      - name: {name}
        of: {of}
        address: address
        function: {function}
        arguments: {arguments}
        immutable: {immutable}
"""
GIVEN = {
    "name": "slot0",
    "of": "hot_logs",
    "function": "slot0()(uint160 price, int24 tick)",
    "arguments": "[]",
    "immutable": "false",
}
SQL = """
SELECT l.block_number, l.block_hash, slot0.price
FROM hot_logs AS l LEFT JOIN slot0
  ON slot0.block_number = l.block_number AND slot0.address = l.address
"""
FILES = {"prices.sql": SQL}


def jobs(**changed: str) -> str:
    return JOBS.format(**{**GIVEN, **changed})


def test_a_read_is_an_input_of_its_job_by_its_name(tmp_path: Path) -> None:
    spec = specs(tmp_path, jobs(), FILES)["prices"]

    assert spec.names == ("hot_logs", "token_transfers", "slot0")
    (found,) = spec.reads
    assert (found.of, found.address, found.is_immutable) == ("logs", "address", False)
    columns = {one.name: one for one in (Column("address", Kind.BYTES),)}
    assert [column.name for column in found.columns(columns)] == [
        "block_number",
        "block_hash",
        "address",
        "ok",
        "output",
        "remark",
        "price",
        "tick",
    ]


@pytest.mark.parametrize(
    ("changed", "line", "why"),
    [
        ({"of": "traces"}, 9, "does not read `traces`, whose rows are to ask"),
        ({"name": "token_transfers"}, 8, "is the name of another input"),
        ({"function": "slot0"}, 11, "is no signature"),
        ({"function": "slot0()((uint8,uint8))"}, 11, "is no signature"),
        ({"function": "slot0()(uint8[])"}, 11, "no type that fits into a column"),
        ({"function": "slot0()(uint8 ok)"}, 11, "cannot be called `ok`"),
        ({"function": "balanceOf(address)(uint256)"}, 12, "takes 1 arguments, not 0"),
        (
            {"function": "of(bytes32)(bool)", "arguments": "[block_hash]"},
            12,
            "an argument cannot be called `block_hash`",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_at_its_line(
    tmp_path: Path, changed: dict[str, str], line: int, why: str
) -> None:
    text = jobs(**changed)
    sql = SQL.replace("slot0", changed.get("name", "slot0"))
    found = [problem for problem in problems(tmp_path, text, {"prices.sql": sql}) if why in problem]
    assert len(found) == 1, problems(tmp_path, text, FILES)
    assert found[0].startswith(f"unfork.yaml:{line}: "), found


def test_a_built_in_job_knows_for_itself_what_it_asks(tmp_path: Path) -> None:
    text = """
jobs:
  - name: token_transfers
  - name: tokens
    reads: [{name: x, of: token_transfers, address: token_address, function: "x()(bool)"}]
"""
    (problem,) = problems(tmp_path, text)
    assert "the built-in job `tokens` says for itself" in problem


COLUMNS = {
    one.name: one
    for one in (
        Column("block_number", Kind.INT),
        Column("block_hash", Kind.BYTES),
        Column("pool", Kind.BYTES),
        Column("amount", Kind.U256),
        Column("note", Kind.TEXT),
    )
}


@pytest.mark.parametrize(
    ("address", "function", "arguments", "why"),
    [
        ("pool", "f(uint256)(bool)", ("amount",), None),
        ("pool", "f(bytes32,string)(bool)", ("pool", "note"), None),
        ("pol", "f()(bool)", (), "`swaps` has no column `pol`; it has block_number"),
        ("note", "f()(bool)", (), "`note` of `swaps` holds no addresses"),
        ("pool", "f(address)(bool)", ("amount",), "`amount` of `swaps` is numeric(78,0), which"),
        ("pool", "f(uint8)(bool)", ("note",), "`note` of `swaps` is text, which is no uint8"),
    ],
)
def test_a_read_that_does_not_fit_its_input_is_told(
    address: str, function: str, arguments: tuple[str, ...], why: str | None
) -> None:
    found = list(
        reads.misfits(
            Read(name="r", of="swaps", address=address, function=function, arguments=arguments),
            COLUMNS,
        )
    )
    assert (why is None and found == []) or (len(found) == 1 and why in found[0]), found


def test_an_input_without_its_blocks_cannot_ask() -> None:
    read = Read(name="r", of="pools", address="pool", function="f()(bool)")
    columns = {"pool": COLUMNS["pool"], "block_number": COLUMNS["block_number"]}

    assert list(reads.misfits(read, columns)) == [
        "`pools` has no column `block_hash`; it has pool, block_number"
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"function": "slot0()(uint160 price)"},
        {"of": "token_transfers"},
        {"immutable": "true"},
    ],
)
def test_a_changed_read_is_a_changed_job(tmp_path: Path, changed: dict[str, str]) -> None:
    def hash() -> str:
        made = catalog.read(load(env={}, folder=tmp_path))
        spec = next(spec for spec in made.specs if spec.name == "prices")
        return fingerprint.config_hash(spec, tmp_path)

    project(tmp_path, jobs(), FILES)
    before = hash()
    assert hash() == before
    project(tmp_path, jobs(**changed), FILES)
    assert hash() != before


def test_without_a_node_to_ask_the_job_is_not_available_and_says_why(tmp_path: Path) -> None:
    made = read(tmp_path, jobs(), FILES)
    state = State(
        now=datetime(2024, 1, 1, tzinfo=UTC),
        first=0,
        head=BlockRef(9, b"i"),
        floor=None,
        refs=tuple(BlockRef(number, b"abcdefghi"[number - 1 : number]) for number in range(1, 10)),
        held=frozenset({"logs"}),
        has_calls=False,
        fingerprints={spec.name: Fingerprint("config") for spec in made.specs},
    )

    found = plan(made.lineage, state, Limits())
    assert {run.job for run in found.runs} == {"token_transfers"}
    (idle,) = (idle for idle in found.idle if idle.job == "prices")
    assert idle.cause is Cause.UNAVAILABLE
    assert idle.why == "it asks contracts, and this chain has no source.urls to ask"
    asked = plan(made.lineage, replace(state, has_calls=True), Limits())
    assert Cause.UNAVAILABLE not in {idle.cause for idle in asked.idle}
