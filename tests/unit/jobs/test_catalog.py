"""Goal: the jobs of a file mean what their author wrote, or are refused line by line.

Method: tables of small job files, each with the specification or the messages expected; the job
file of the design's seed is loaded as it stands.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.jobs.projects import problems, read, specs
from unfork.config import tree
from unfork.config.load import load
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Rule, Strategy
from unfork.errors import ConfigInvalid
from unfork.jobs import builtin, catalog, compaction, spec
from unfork.jobs.spec import JobSpec, OnChange

HERE = Path(__file__).parent

PLAIN = {"m.py": "def f(*inputs):\n    return inputs[0]\n"}


def job(name: str, inputs: str = "logs", rest: str = "") -> str:
    """One entry of a job file, on one line."""
    return f"- {{name: {name}, input_datasets: [{inputs}], transform: 'm:f'{rest and ', ' + rest}}}"


def test_the_job_file_of_the_seed_loads_unchanged(tmp_path: Path) -> None:
    found = read(tmp_path, (HERE / "seed_jobs.yaml").read_text())
    by_name = {spec.name: spec for spec in found.specs}
    assert list(by_name) == [
        "block_follower",
        "alert_evaluate",
        "enrich_transfers",
        "parquet_compact",
        "daily_summary",
    ]
    assert by_name["block_follower"].is_source
    assert not by_name["block_follower"].is_planned
    for name in ("alert_evaluate",):
        assert by_name[name].unavailable == "not available in this release"
        assert not by_name[name].is_planned
    alerts = by_name["alert_evaluate"]
    assert (alerts.inputs, alerts.input_names) == (("blocks",), ("hot_blocks",))
    assert alerts.unique_key == ("alert_definition_id", "block_hash", "tx_hash")
    assert (alerts.mode, alerts.strategy) == (Mode.CURSOR, Strategy.APPEND)
    enriched = by_name["enrich_transfers"]
    assert enriched.is_planned and enriched.output == "enriched_transfers"
    assert enriched.inputs == ("logs", "transactions", "blocks"), "what it needs is added"
    assert (enriched.mode, enriched.strategy) == (Mode.CURSOR, Strategy.REPLACE)
    compacting = by_name["parquet_compact"]
    assert compacting.is_compaction and not compacting.is_planned
    assert compacting.unavailable is None
    assert compaction.settings(compacting) == compaction.Settings(
        datasets=("blocks",), finality_threshold=100
    )
    daily = by_name["daily_summary"]
    assert daily.output == "daily_summaries"
    assert daily.inputs == ("blocks", "transactions"), "what the transform needs is added"
    assert daily.partitioning == ByDay()
    assert found.lineage.jobs.keys().isdisjoint({"block_follower", "parquet_compact"})


def test_without_a_file_the_built_in_jobs_are_declared(tmp_path: Path) -> None:
    found = catalog.read(load(env={}, folder=tmp_path))
    assert [spec.name for spec in found.specs] == list(builtin.BUILTINS)
    by_name = {spec.name: spec for spec in found.specs}
    assert by_name["token_transfers"].inputs == ("logs",)
    balances = by_name["token_balances"]
    assert (balances.strategy, balances.unique_key) == (
        Strategy.MERGE,
        ("token_address", "address", "standard", "token_id"),
    )
    assert balances.rules["balance"] is Rule.ADD
    assert balances.is_serial and balances.is_state
    assert by_name["daily_summary"].partitioning == ByDay()
    assert [spec.name for spec in found.lineage.upstream("token_balances")] == ["token_transfers"]


def test_the_built_in_datasets_have_the_keys_and_indexes_that_the_seeds_name(
    tmp_path: Path,
) -> None:
    by_name = {one.name: one for one in catalog.read(load(env={}, folder=tmp_path)).specs}
    assert by_name["enrich_transfers"].output == "enriched_transfers"
    transfers = by_name["token_transfers"]
    assert transfers.unique_key == ("block_number", "log_index", "batch_ordinal")
    for column in ("from_address", "to_address", "token_address"):
        assert (column, "block_number") in transfers.indexes
    assert by_name["approvals"].unique_key == ("block_number", "log_index")
    taken = by_name["address_transactions"]
    assert taken.unique_key == ("address", "block_number", "transaction_index")
    assert taken.indexes == (("address", "block_number DESC"),)
    assert by_name["address_stats"].unique_key == ("address",)
    growing = {name for name, one in by_name.items() if one.table_blocks is not None}
    assert growing == {
        *("token_transfers", "approvals", "internal_transactions", "enrich_transfers"),
        "address_transactions",
    }


def test_a_job_may_ask_for_indexes_and_a_built_in_one_for_more(tmp_path: Path) -> None:
    text = f"""
jobs:
  {job("a", rest="indexes: [[from_address, block_number DESC], [hash]]")}
  - {{name: address_transactions, indexes: [[transaction_hash]]}}
  - name: token_transfers
"""
    found = specs(tmp_path, text, PLAIN)
    assert found["a"].indexes == (("from_address", "block_number DESC"), ("hash",))
    assert found["address_transactions"].indexes == (
        ("address", "block_number DESC"),
        ("transaction_hash",),
    )


@pytest.mark.parametrize("index", ["[]", "['block_number desc']", "['a b']", "[a, a]"])
def test_an_index_is_a_list_of_columns(tmp_path: Path, index: str) -> None:
    with pytest.raises(ConfigInvalid, match="jobs"):
        read(tmp_path, f"jobs:\n{job('a', rest=f'indexes: [{index}]')}", PLAIN)


def test_an_empty_list_declares_no_job(tmp_path: Path) -> None:
    assert read(tmp_path, "jobs: []").specs == ()


def test_a_whole_entry_becomes_a_specification(tmp_path: Path) -> None:
    text = """
jobs:
  - name: holders
    input_datasets: [hot_logs]
    output_dataset: token_holders
    incremental: {mode: cursor, cursor_column: block_number}
    unique_key: [token, holder]
    update_strategy: merge
    merge: {amount: add, first_seen: set-if-null}
    transform: m:f
    config: {tokens: [a, b]}
    on_change: stop
  - name: busy
    input_datasets: [transactions, logs]
    incremental: {mode: partition, partition: 500, min_interval: 10m}
    sql: jobs/busy.sql
    on_change: continue
  - name: totals
    input_datasets: [token_holders, busy]
    incremental: {mode: full, min_interval: 90}
    transform: m:f
"""
    files = {**PLAIN, "jobs/busy.sql": "select 1 from transactions join logs using (block_number)"}
    found = specs(tmp_path, text, files)
    holders = found["holders"]
    assert holders == JobSpec(
        name="holders",
        inputs=("logs",),
        input_names=("hot_logs",),
        output="token_holders",
        mode=Mode.CURSOR,
        strategy=Strategy.MERGE,
        unique_key=("token", "holder"),
        transform="m:f",
        rules={"amount": Rule.ADD, "first_seen": Rule.SET_IF_NULL},
        config={"tokens": ["a", "b"]},
    )
    assert holders.where("merge").endswith("unfork.yaml:9")
    assert holders.where().endswith("unfork.yaml:3")
    assert found["busy"].partitioning == ByBlocks(500)
    assert found["busy"].min_interval_s == 600
    assert found["busy"].sql == tmp_path / "jobs/busy.sql"
    assert found["busy"].on_change is OnChange.CONTINUE
    assert found["totals"].min_interval_s == 90
    assert found["totals"].is_state


@pytest.mark.parametrize(
    ("key", "is_serial"),
    [
        ("update_strategy: replace", False),
        ("update_strategy: append, unique_key: [block_hash, x]", False),
        ("update_strategy: append, unique_key: [block_number, x]", False),
        ("update_strategy: append, unique_key: [x]", True),
        ("update_strategy: merge, unique_key: [x]", True),
    ],
)
def test_a_job_is_serial_where_a_row_gathers_what_several_blocks_brought(
    tmp_path: Path, key: str, is_serial: bool
) -> None:
    assert specs(tmp_path, f"jobs:\n{job('a', rest=key)}", PLAIN)["a"].is_serial is is_serial


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([job("a", "lgos")], "2: job `a` reads `lgos`, which nobody writes; did you mean `logs`?"),
        (
            [job("a", "zzzzzz")],
            "2: job `a` reads `zzzzzz`, which nobody writes; there are a, blocks, logs, traces, "
            "transactions, withdrawals",
        ),
        ([job("a", "hot_xs")], "2: job `a` reads `hot_xs`, which nobody writes; there are a, "),
        ([job("a", "logs, hot_logs")], "2: job `a` reads `logs` twice"),
        (["- {name: a, transform: 'm:f'}"], "2: job `a` has no input_datasets"),
        ([job("a"), job("a", rest="output_dataset: b")], "3: job `a` is declared already (at "),
        (
            [job("a"), job("b", rest="output_dataset: a")],
            "3: job `a` (at unfork.yaml:2) writes `a` already",
        ),
        ([job("a", rest="output_dataset: logs")], "2: `logs` is a raw dataset, which only"),
        ([job("a", rest="output_dataset: hot_logs")], "2: `hot_logs` is a raw dataset, which"),
        ([job("a", rest="output_dataset: history")], "2: `history` is a table of the engine's own"),
        (
            [job("a", "c"), job("b", "a"), job("c", "b, logs")],
            "2: jobs wait for each other: a → c → b → a",
        ),
        ([job("a", "a")], "2: jobs wait for each other: a → a"),
        (
            [job("a", rest="update_strategy: merge")],
            "2: job `a` needs a unique_key: merge finds rows by it",
        ),
        ([job("a", rest="update_strategy: append")], "2: job `a` needs a unique_key: append finds"),
        (
            [job("a", rest="update_strategy: merge, unique_key: [x], incremental: {mode: full}")],
            "2: merge goes block by block: it needs mode: cursor, not full",
        ),
        (
            [job("a", rest="incremental: {mode: full, cursor_column: block_number}")],
            "2: cursor_column belongs to mode: cursor, not full",
        ),
        (
            [job("a", rest="incremental: {cursor_column: log_index}")],
            "2: cursor_column must be block_number: a fork is known by its blocks",
        ),
        (
            [job("a", rest="incremental: {mode: cursor, partition: day}")],
            "2: partition belongs to mode: partition, not cursor",
        ),
        (
            [job("a", rest="incremental: {min_interval: 5}")],
            "2: min_interval belongs to the modes partition and full",
        ),
        (
            [job("a", rest="merge: {x: add}")],
            "2: merge rules belong to update_strategy: merge, not replace",
        ),
        (
            [job("a", rest="update_strategy: merge, unique_key: [x], merge: {x: add}")],
            "2: `x` is in the unique_key, which a merge never changes",
        ),
        (
            ["- {name: token_transfer, input_datasets: [logs]}"],
            "2: job `token_transfer` has neither transform nor sql; did you mean the built-in job "
            "`token_transfers`?",
        ),
        (
            ["- {name: mine, input_datasets: [logs]}"],
            "2: job `mine` has neither transform nor sql; add one of them",
        ),
        (
            ["- {name: token_transfers, input_datasets: [blocks]}"],
            "2: the built-in job `token_transfers` reads logs, not `blocks`",
        ),
        (
            ["- {name: token_balances}"],
            "2: job `token_balances` reads `token_transfers`, which nobody writes; add its job",
        ),
        (
            [job("a", rest="update_strategy: merge, unique_key: [x]"), job("b", "a")],
            "3: job `b` cannot read `a` block by block: it is a state, not rows of blocks; read "
            "what it is made of, or use mode: full",
        ),
        (
            [job("a", rest="incremental: {mode: full}"),
             job("b", "a", "incremental: {mode: partition}")],
            "3: job `b` cannot read `a` block by block",
        ),
        (
            [job("a", rest="incremental: {mode: partition}"), job("b", "a")],
            "3: job `b` is not block-local: rows of `a` change until their partition is complete",
        ),
        (
            [job("a", rest="incremental: {mode: partition, partition: 30}"),
             job("b", "a", "incremental: {mode: partition, partition: 20}")],
            "3: partitions of 20 blocks cut through those of `a` (30 blocks); use the same, or a "
            "multiple",
        ),
        (
            [job("a", rest="incremental: {mode: partition, partition: 30}"),
             job("b", "a", "incremental: {mode: partition, partition: day}")],
            "3: partitions of UTC days cut through those of `a` (30 blocks)",
        ),
        (
            ["- {name: a, input_datasets: [logs], transform: 'nowhere.jobs:f'}"],
            "2: the transform of job `a` cannot be imported: there is no module `nowhere.jobs` in",
        ),
        (
            ["- {name: a, input_datasets: [logs], transform: 'm:g'}"],
            "2: the transform of job `a` cannot be imported: m.py defines no `g`",
        ),
        (
            ["- {name: a, input_datasets: [logs], sql: gone.sql}"],
            "2: gone.sql of job `a` cannot be read: No such file or directory",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_line(
    tmp_path: Path, jobs: list[str], expected: str
) -> None:
    found = problems(tmp_path, "\n".join(["jobs:", *jobs]), PLAIN)
    assert any(text.startswith(f"unfork.yaml:{expected}") for text in found), found


def test_every_problem_is_named_at_once_in_the_order_of_the_lines(tmp_path: Path) -> None:
    text = """
jobs:
  - name: a
    input_datasets: [lgos]
    transform: m:g
  - name: b
    input_datasets: [logs]
    output_dataset: blocks
    sql: b.sql
  - name: c
    input_datasets: [logs]
    update_strategy: merge
    transform: m:f
"""
    files = {**PLAIN, "b.sql": "select address from logs\ngroup by address"}
    found = problems(tmp_path, text, files)
    assert [line.split(": ")[0] for line in found] == [
        f"unfork.yaml:{line}" for line in (4, 5, 8, 9, 12)
    ]
    assert found[3].startswith("unfork.yaml:9: job `b` is not block-local (b.sql:2): GROUP BY must")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobs:\n- nam: a", "2: unknown key `jobs[0].nam`; did you mean `name`?"),
        (
            "jobs:\n- name: a\n  incremental:\n    modus: cursor",
            "4: unknown key `jobs[0].incremental.modus`; did you mean `mode`?",
        ),
        (
            "jobs:\n- name: a\n  incremental: {mode: rows}",
            "3: jobs[0].incremental.mode: input should be 'cursor', 'partition' or 'full'",
        ),
        (
            "jobs:\n- name: a\n  incremental: {partition: week}",
            "3: jobs[0].incremental.partition: must be a number of blocks, at least 1, or day",
        ),
        (
            "jobs:\n- name: a\n  incremental: {min_interval: soon}",
            "3: jobs[0].incremental.min_interval: must be seconds, or a number with s, m, h or d",
        ),
        (
            "jobs:\n- name: a\n  transform: m.f",
            "3: jobs[0].transform: String should match pattern",
        ),
        (
            "jobs:\n- name: a\n  transform: m:f\n  sql: x.sql",
            "2: jobs[0]: transform and sql cannot be given both",
        ),
        (
            "jobs:\n- name: a\n  unique_key: [x]\n  incremental: {unique_key: [y]}",
            "2: jobs[0]: unique_key and incremental.unique_key differ; give one of them",
        ),
        (
            "jobs:\n- name: a\n  unique_key: [x, x]",
            "3: jobs[0].unique_key: names a column twice",
        ),
        (
            "jobs:\n- name: a\n  unique_key: ['x;y']",
            "3: jobs[0].unique_key: 'x;y' is not the name of a column",
        ),
        (
            "jobs:\n- name: a\n  merge: {x: sum}",
            "3: jobs[0].merge.x: input should be 'set', 'add', 'min', 'max' or 'set-if-null'",
        ),
        ("jobs:\n- name: A", "2: jobs[0].name: String should match pattern"),
        ("schedules:\n- {task: dance, cron: '* * * * *'}", "2: schedules[0].task: input should be"),
        (
            "schedules:\n- task: verify\n  cron: '0 25 * * *'",
            "3: schedules[0].cron: hour '25' is not between 0 and 23 (got '0 25 * * *')",
        ),
    ],
)
def test_each_key_is_checked_like_the_rest_of_the_configuration(
    tmp_path: Path, text: str, expected: str
) -> None:
    found = problems(tmp_path, text)
    assert any(line.startswith(f"unfork.yaml:{expected}") for line in found), found


def test_settings_of_a_job_may_be_secret_and_are_never_shown(tmp_path: Path) -> None:
    text = f"jobs:\n{job('a', rest='config: {key: hunter2}')}"
    found = read(tmp_path, text, PLAIN)
    assert "hunter2" not in repr(found.specs)
    assert "hunter2" not in repr(load(env={}, folder=tmp_path).config)


def test_jobs_may_come_from_the_environment_as_a_whole(tmp_path: Path) -> None:
    env = {"UNFORK_JOBS": '[{"name": "x"}]', "RANGE_SIZE": "1000"}
    config = load(env=env, folder=tmp_path).config
    assert config.jobs == (tree.Job(name="x"),)
    assert config.planning.range_size == 1000
    with pytest.raises(Exception, match="environment variable UNFORK_JOBS: job `x` has no input"):
        catalog.read(load(env=env, folder=tmp_path))


def test_a_job_that_reads_from_an_unavailable_one_is_unavailable_too(tmp_path: Path) -> None:
    alerts = "- {name: alert_evaluate, input_datasets: [logs], unique_key: [a]}"
    text = f"jobs:\n{alerts}\n{job('mine', 'alert_evaluate')}"
    found = specs(tmp_path, text, PLAIN)
    assert found["mine"].unavailable == (
        "reads `alert_evaluate`, whose job `alert_evaluate` is not available in this release"
    )


def test_a_transform_that_fails_when_imported_is_refused_only_where_imports_are_asked_for(
    tmp_path: Path,
) -> None:
    files = {"broken_on_import.py": "import surely_not_installed\ndef f(logs): return logs\n"}
    text = "jobs:\n- {name: a, input_datasets: [logs], transform: 'broken_on_import:f'}"
    assert read(tmp_path, text, files).specs
    found = problems(tmp_path, text, files, imports=True)
    assert "No module named 'surely_not_installed'" in found[0]


def test_missing_columns_are_named_with_the_line_that_asks_for_them(tmp_path: Path) -> None:
    text = """
jobs:
  - name: a
    input_datasets: [logs]
    unique_key: [x, y]
    update_strategy: merge
    merge: {total: add}
    transform: m:f
"""
    found = specs(tmp_path, text, PLAIN)["a"]
    whole = {"x": "binary", "y": "binary", "total": "decimal", "block_number": "bigint"}
    assert spec.missing_columns(found, whole) == ()
    missing = spec.missing_columns(found, {"x": "binary", "block_number": "bigint"})
    assert [text.replace(f"{tmp_path}/", "") for text in missing] == [
        "unfork.yaml:5: job `a` does not return the column `y`, which is in its unique_key; "
        "it returns block_number, x",
        "unfork.yaml:7: job `a` does not return the column `total`, which has a merge rule; "
        "it returns block_number, x",
    ]
    rows = specs(tmp_path, f"jobs:\n{job('a')}", PLAIN)["a"]
    assert len(spec.missing_columns(rows, {})) == 2, "block_number and block_hash"
