"""Goal: a cursor job whose blocks depend on each other is refused, and the usual ones are not.

Method: tables of queries and functions. For queries soundness matters most: each refused form is
one that would give other rows when blocks are computed one by one; some try to hide it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.jobs.projects import problems, read
from unfork.jobs import locality, sql

LOCAL = [
    "select * from logs",
    "select block_number, address from logs where topic0 is not null order by log_index",
    "SELECT l.block_number, l.log_index FROM logs AS l WHERE l.data = 'group by limit'",
    "select block_number, count(*) n from logs group by block_number",
    "select l.block_number, l.address, sum(x) filter (where x > 1) from logs l group by l.address, "
    "l.block_number having count(distinct topic0) > 1",
    "select distinct block_number, address from logs",
    "select distinct l.block_number as b, address from logs l",
    "select row_number() over (partition by block_number order by log_index) from logs",
    "select block_number, sum(x) over w from logs window w as (partition by block_number, address)",
    "select l.* from logs l join transactions t on l.block_number = t.block_number and l.x = t.y",
    "select 1 from logs join blocks on (logs.block_number = blocks.number and x = 1)",
    "select 1 from logs l left join transactions t using (block_number, transaction_index)",
    "select 1 from a l join b t on t.block_number = l.block_number join c on l.block_number = "
    "c.block_number",
    "select block_number from logs union all select block_number from traces",
    "with t as (select block_number, data from logs) select * from t",
    "select block_number, item from logs lateral view explode(items) x as item",
    "select block_number, item from logs, lateral explode(items) as item",
    "select number as block_number, hash as block_hash from blocks",
    "select b.number block_number from blocks b",
    "select * from (select block_number from logs) t",
    "select extract(year from x), trim(both 'x' from y), a is distinct from b from logs",
    "select * except (data) from logs",
    "select a * block_number, block_number + 1 as next from logs",
    "select case when a and b then 1 else 0 end from logs -- limit 5\n/* group by */",
    "select address from logs where data like any ('a%', 'b%')",
    "select `block_number`, count(1) from `logs` group by `block_number`",
]

CROSSING = [
    ("select address, count(*) from logs group by address", "GROUP BY must name block_number"),
    ("select count(*) from logs", "`count` aggregates across blocks"),
    ("select max(block_number) from logs", "`max` aggregates across blocks"),
    ("select block_number, count(*) from logs group by all", "GROUP BY must name"),
    ("select block_number, count(*) from logs group by 1", "GROUP BY must name"),
    ("select 1 from logs group by block_number + 1", "GROUP BY must name"),
    ("select 1 from logs group by block_number div 10", "GROUP BY must name"),
    ("select 1 from logs group by rollup(block_number)", "ROLLUP gathers rows"),
    ("select 1 from logs group by block_number with cube", "CUBE gathers rows"),
    ("select 1 from logs group by grouping sets ((block_number), ())", "GROUPING gathers rows"),
    ("select distinct address from logs", "DISTINCT must include block_number"),
    ("select distinct * from logs", "DISTINCT must include block_number"),
    ("select * from logs limit 5", "LIMIT counts rows"),
    ("select * from logs offset 5", "OFFSET counts rows"),
    ("select 1 from logs union select 1 from traces", "UNION drops equal rows"),
    ("select 1 from logs union distinct select 1 from traces", "UNION drops equal rows"),
    ("select 1 from logs except select 1 from traces", "EXCEPT compares rows"),
    ("select lag(x) over (order by block_number) from logs", "a window must be PARTITION BY"),
    ("select sum(x) over () from logs", "a window must be PARTITION BY"),
    ("select sum(x) over (partition by address) from logs", "a window must be PARTITION BY"),
    (
        "select sum(x) over b from logs window a as (partition by block_number), b as (order by x)",
        "a window must be PARTITION BY",
    ),
    ("select 1 from logs l join transactions t on l.x = t.x", "a join must be ON"),
    ("select 1 from logs l join transactions t", "a join must be ON"),
    ("select 1 from logs l cross join transactions t", "a join must be ON"),
    ("select 1 from logs l natural join transactions t", "a join must be ON"),
    ("select 1 from logs l, transactions t", "a list of tables joins all blocks"),
    (
        "select 1 from logs l join traces t on l.block_number = t.block_number or l.x = t.x",
        "a join must be ON",
    ),
    (
        "select 1 from logs l join logs p on l.block_number = p.block_number + 1",
        "a join must be ON",
    ),
    ("select 1 from logs l join logs p on l.block_number > p.block_number", "a join must be ON"),
    (
        "select 1 from a join b on a.block_number = b.block_number "
        "join c on a.block_number = b.block_number",
        "a join must be ON",
    ),
    (
        "select 1 from a join b on case when x and a.block_number = b.block_number and y then z",
        "a join must be ON",
    ),
    ("select 1 from a join b on not (a.block_number = b.block_number)", "a join must be ON"),
    (
        "select 1 from logs l join (select block_number + 1 as block_number from logs) p "
        "on l.block_number = p.block_number",
        "`block_number` must be the block's number",
    ),
    (
        "select 1 from (select x - l.block_number block_number from logs l)",
        "`block_number` must be the block's number",
    ),
    (
        "select 1 from (select address as block_number from logs) t group by t.block_number",
        "`block_number` must be the block's number",
    ),
    (
        "with t (block_number) as (select address from logs) select 1 from t group by block_number",
        "a list of new column names may not hold block_number",
    ),
    (
        "select 1 from (select address from logs) as t (block_number) group by block_number",
        "a list of new column names may not hold block_number",
    ),
    ("select 1 from logs where x in (select x from traces)", "a subquery in an expression"),
    ("select 1 from logs where x in ((select x from traces))", "a subquery in an expression"),
    ("select 1 from logs where x > all (select x from traces)", "a subquery in an expression"),
    ("select (select x from traces) from logs", "a subquery in an expression"),
    ("select 1 from logs, lateral (select 1 from traces)", "a subquery in an expression"),
    ("select * from (select address, count(*) from logs group by address)", "GROUP BY must name"),
    ("with t as (select max(x) from logs) select * from t", "`max` aggregates across blocks"),
    ("select * from logs pivot (sum(x) for y in (1))", "PIVOT gathers rows"),
]


@pytest.mark.parametrize("query", LOCAL)
def test_a_query_that_keeps_blocks_apart_is_accepted(query: str) -> None:
    assert locality.check_sql(query) == []


@pytest.mark.parametrize(("query", "expected"), CROSSING)
def test_a_query_that_may_mix_blocks_is_refused(query: str, expected: str) -> None:
    found = locality.check_sql(query)
    assert any(finding.what.startswith(expected) for finding in found), found


def test_a_finding_names_its_line() -> None:
    assert [found.line for found in locality.check_sql("select *\n\nfrom logs\nlimit 5")] == [4]


def test_a_partition_job_may_do_what_a_cursor_job_may_not(tmp_path: Path) -> None:
    entry = "- {name: a, input_datasets: [logs], sql: a.sql, incremental: {mode: %s}}"
    files = {"a.sql": "select address, count(distinct data) from logs group by address"}
    assert read(tmp_path, "jobs:\n" + entry % "partition", files).specs
    assert "is not block-local" in problems(tmp_path, "jobs:\n" + entry % "cursor", files)[0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "the file holds no query"),
        ("-- nothing", "the file holds no query"),
        ("insert into x select 1", "a job's SQL is one SELECT; it begins with `insert`"),
        ("with t as (select 1) insert into x select 1 from t", "a job's SQL is one SELECT; INSERT"),
        ("select 1 from logs; drop table logs", "a job's SQL is one SELECT; there is more"),
        ("from logs |> select 1", "a job's SQL is one SELECT; it begins with `from`"),
        ("select 1 from traces", "reads `traces`, which is not among input_datasets"),
        ("select 1 from logs join other.logs using (block_number)", "reads `other`, which is not"),
        ("select 1 from (select 1 from `traces`) t", "reads `traces`, which is not among"),
        ("select rand() from logs", "`rand` gives another answer in every run"),
        ("select current_timestamp from logs", "`current_timestamp` gives another answer"),
        ("select * from logs tablesample (5 percent)", "TABLESAMPLE gives other rows"),
    ],
)
def test_a_query_must_be_one_steady_select_over_its_inputs(query: str, expected: str) -> None:
    found = sql.check(query, ["logs"])
    assert any(finding.what.startswith(expected) for finding in found), found


@pytest.mark.parametrize("query", LOCAL)
def test_usual_queries_pass_the_general_check(query: str) -> None:
    inputs = ["logs", "transactions", "blocks", "traces", "a", "b", "c"]
    assert sql.check(query, inputs) == []


def test_the_normal_form_ignores_layout_comments_and_case_but_not_texts() -> None:
    plain = sql.normalized("select a from logs where b = 'X y'")
    assert sql.normalized("SELECT  A -- why\nFROM Logs /* x */ WHERE b='X y' ;\n") == plain
    assert sql.normalized("select a from logs where b = 'x y'") != plain
    assert sql.normalized("select a from logs where b = 'X  y'") != plain


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("logs.groupBy('address').count()", "`groupBy` must name block_number"),
        ("logs.groupBy().count()", "`groupBy` must name block_number"),
        ("logs.distinct()", "`distinct` compares rows across blocks"),
        ("logs.dropDuplicates(['address'])", "`dropDuplicates` must name block_number"),
        ("logs.limit(10)", "`limit` counts rows"),
        ("logs.join(logs, 'address')", "`join` must be on block_number"),
        ("logs.join(logs, on=['address'], how='left')", "`join` must be on block_number"),
        ("logs.crossJoin(logs)", "`crossJoin` pairs rows"),
        ("logs.select('x').agg({'x': 'sum'})", "`agg` without groupBy"),
        ("F.sum('x').over(Window.partitionBy('address'))", "`partitionBy` must name block_number"),
        ("F.sum('x').over(Window.orderBy('x'))", "a window must be partitioned by block_number"),
        ("helper(logs)", "`groupBy` must name block_number"),
        ("logs.groupBy('block_number', 'address').count()", None),
        ("logs.groupBy(F.col('block_number')).count()", None),
        ("logs.groupBy(logs['block_number']).agg(F.sum('x'))", None),
        ("logs.groupBy(*KEYS).count()", None),
        ("logs.dropDuplicates(['block_number', 'x'])", None),
        ("logs.join(logs, ['block_number', 'x'])", None),
        ("logs.join(logs, logs.x == logs.y)", None),
        ("logs.select(', '.join(['a', 'b']))", None),
    ],
)
def test_a_transform_that_says_that_it_mixes_blocks_is_refused(
    tmp_path: Path, body: str, expected: str | None
) -> None:
    source = f"""
KEYS = ["block_number"]

def f(logs):
    return {body}

def helper(rows):
    return rows.groupBy("address").count()
"""
    text = "jobs:\n- {name: a, input_datasets: [logs], transform: 'm:f'}"
    if expected is None:
        assert read(tmp_path, text, {"m.py": source}).specs
        return
    (found,) = problems(tmp_path, text, {"m.py": source})
    line = 8 if "helper" in body else 5
    assert found.startswith(f"unfork.yaml:2: job `a` is not block-local (m.py:{line}): {expected}")
