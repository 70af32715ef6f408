"""Goal: a check says exactly what it covers, or is refused with its line.

Method: tables of small job files, each with the checks or the messages expected; hashes of job
files that differ in their checks are compared.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.jobs.projects import problems, read, specs
from unfork.datasets.derivation import Mode
from unfork.jobs import fingerprint
from unfork.jobs.check import Freshness, NotNull, Query, Relation, Severity, Unique
from unfork.jobs.state import Fingerprint, config_of

SQL = {"m.sql": "SELECT * FROM token_transfers", "none.sql": "SELECT 1 FROM mine -- none"}


def job(checks: str, rest: str = "") -> str:
    return (
        "jobs:\n- {name: token_transfers}\n- {name: token_balances}\n"
        f"- {{name: mine, input_datasets: [token_transfers], sql: m.sql{rest},\n   "
        f"checks: [{checks}]}}\n"
    )


def test_every_kind_of_check_is_read_and_named_after_what_it_asks(tmp_path: Path) -> None:
    text = job(
        "{unique: [block_number, log_index]}, {not_null: [amount], severity: warn},"
        " {relation: {columns: [token_address], dataset: hot_logs, to: [address]}},"
        " {freshness: {max_age: 2h}}, {sql: none.sql}, {sql: 'SELECT * FROM mine', name: own}"
    )
    found = specs(tmp_path, text, SQL)["mine"]
    assert [(check.name, check.severity, check.condition) for check in found.checks] == [
        (
            "unique_block_number_log_index",
            Severity.ERROR,
            Unique(("block_number", "log_index")),
        ),
        ("not_null_amount", Severity.WARN, NotNull(("amount",))),
        (
            "token_address_in_hot_logs",
            Severity.ERROR,
            Relation(("token_address",), "logs", ("address",)),
        ),
        ("freshness", Severity.ERROR, Freshness(7200.0, None)),
        ("none", Severity.ERROR, Query(SQL["none.sql"])),
        ("own", Severity.ERROR, Query("SELECT * FROM mine")),
    ]
    assert found.awaited == ("token_transfers", "logs")


@pytest.mark.parametrize(
    ("checks", "rest", "told"),
    [
        ("{}", "", "a check asks exactly one of unique, not_null, relation, freshness, sql"),
        ("{unique: [a], not_null: [b]}", "", "this one has unique, not_null"),
        ("{uniqe: [a]}", "", "did you mean `unique`?"),
        ("{freshness: {max_age: soon}}", "", "must be seconds, or a number with s, m, h or d"),
        (
            "{relation: {columns: [a, b], dataset: logs, to: [c]}}",
            "",
            "columns names 2 and to names 1",
        ),
        ("{unique: [amount]}", "", "amount may be alike in rows of two runs"),
        (
            "{unique: [to_address]}",
            ", update_strategy: merge, unique_key: [to_address]",
            "a merge keeps one row a key by itself",
        ),
        ("{not_null: [a]}, {not_null: [a]}", "", "two checks `not_null_a`"),
        ("{relation: {columns: [a], dataset: mine}}", "", "looks into another dataset"),
        ("{relation: {columns: [a], dataset: log}}", "", "did you mean `logs`?"),
        (
            "{relation: {columns: [a], dataset: token_balances}}",
            "",
            "cannot read `token_balances` block by block",
        ),
        ("{freshness: {max_age: 1h, column: day}}", "", "as old as their block"),
        ("{sql: SELECT * FROM logs}", "", "line 1: reads `logs`, which is not among"),
        ("{sql: lost.sql}", "", "lost.sql of job `mine` cannot be read"),
    ],
)
def test_a_check_that_cannot_hold_what_it_says_is_refused(
    tmp_path: Path, checks: str, rest: str, told: str
) -> None:
    found = problems(tmp_path, job(checks, rest), SQL)
    assert any(told in problem for problem in found), found
    assert all(problem.startswith("unfork.yaml:") for problem in found)


@pytest.mark.parametrize(
    ("checks", "rest"),
    [
        ("{unique: [amount, block_hash]}", ""),
        ("{unique: [to_address, amount]}", ", unique_key: [amount]"),
        ("{unique: [amount]}", ", incremental: {mode: full}"),
        ("{unique: [day]}", ", incremental: {mode: partition, partition: day}"),
        ("{freshness: {max_age: 1d, column: day}}", ", incremental: {mode: full}"),
    ],
)
def test_unique_is_taken_where_no_two_runs_can_hold_rows_that_are_alike(
    tmp_path: Path, checks: str, rest: str
) -> None:
    found = specs(tmp_path, job(checks, rest), SQL)["mine"]
    assert len(found.checks) == 1 and found.mode in Mode


def test_a_job_comes_after_the_datasets_its_checks_look_into_and_never_waits_for_itself(
    tmp_path: Path,
) -> None:
    other = "- {name: other, input_datasets: [%s], sql: o.sql}\n"
    files = {**SQL, "o.sql": "SELECT * FROM logs", "p.sql": "SELECT * FROM mine"}
    relation = job("{relation: {columns: [a], dataset: other}}")
    found = read(tmp_path, relation + other % "logs", files)
    names = [spec.name for spec in found.lineage.order]
    assert names.index("other") < names.index("mine")
    told = problems(tmp_path, relation + other % "mine", {**files, "o.sql": files["p.sql"]})
    assert "jobs wait for each other: mine → other → mine" in told[0]


def test_a_changed_check_is_another_trial_of_the_same_configuration(tmp_path: Path) -> None:
    hashes = []
    for checks in (
        "",
        "{sql: 'SELECT * FROM mine'}",
        "{sql: 'select  * from mine', name: renamed}",
        "{sql: 'SELECT 1 FROM mine'}",
    ):
        catalog = read(tmp_path, job(checks), SQL)
        spec = catalog.lineage.jobs["mine"]
        config = fingerprint.config_hash(spec, catalog.folder)
        hashes.append(Fingerprint(config, checks_hash=fingerprint.checks_hash(spec)))
    assert len({one.config_hash for one in hashes}) == 1
    none, first, renamed, other = (one.trial for one in hashes)
    assert none == hashes[0].config_hash and first == renamed
    assert len({none, first, other}) == 3
    assert {config_of(one.trial) for one in hashes} == {hashes[0].config_hash}
