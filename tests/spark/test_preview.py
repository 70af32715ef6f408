"""Goal: a preview shows exactly what a run would commit, and leaves everything as it is.

Method: a devnet in real stores, workers and previews on a real Spark; every table of both schemas
is digested before and after a preview, and what was previewed is compared with what a worker then
commits. The watch is given a project whose files the test saves.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.engines import Engine, engine
from tests.spark.test_reads import asking
from tests.sparks import Chain
from unfork import errors, wiring, wiring_jobs
from unfork.chain.span import Span
from unfork.cli import output, previewing
from unfork.cli.context import Context
from unfork.cli.previewing import Desk, Watch, Wish
from unfork.config import load
from unfork.devnet.knobs import Knobs
from unfork.jobs import catalog
from unfork.jobs.preview import Preview

KNOBS = Knobs(density=3, finality_lag=10, block_time_s=7200)

FILES = {
    "moves.sql": "SELECT block_number, block_hash, log_index, token_address, amount"
    " FROM token_transfers WHERE standard = 'erc20'",
    "pages.sql": "SELECT min(block_number) AS block_number, token_address, count(*) AS moves"
    " FROM moves GROUP BY token_address",
    "totals.sql": "SELECT token_address, count(*) AS holders FROM token_balances"
    " GROUP BY token_address",
}

TRANSFERS = {"name": "token_transfers"}
BALANCES = {"name": "token_balances"}
DAYS = {"name": "daily_summary"}
MOVES = {
    "name": "moves",
    "input_datasets": ["token_transfers"],
    "sql": "moves.sql",
    "unique_key": ["block_number", "log_index"],
}
PAGES = {
    "name": "pages",
    "input_datasets": ["moves"],
    "incremental": {"mode": "partition", "partition": 5},
    "sql": "pages.sql",
}
TOTALS = {
    "name": "totals",
    "input_datasets": ["token_balances"],
    "incremental": {"mode": "full", "min_interval": 0},
    "sql": "totals.sql",
}


def config(chain: Chain, *jobs: Mapping[str, Any], **files: str) -> dict[str, Any]:
    for name, text in {**FILES, **files}.items():
        (chain.file.parent / name).write_text(text)
    return {"jobs": [dict(job) for job in jobs]}


async def preview(made: Engine, job: str, **given: Any) -> Preview:
    """A preview by the files as they are."""
    loaded = load.load(made.chain.file)
    place = made.chain.place
    where = wiring.Urls(raw=place.dsn, app=place.app_dsn or place.dsn)
    asked = {"span": None, "last": 20, "limit": 1000, **given}
    jobs = catalog.read(loaded)
    only = loaded.config.chains[0]
    return await wiring_jobs.preview(loaded, jobs, made.chain.spark, where, only, job, **asked)


async def everything(chain: Chain) -> dict[str, str]:
    """What every table of both schemas holds."""
    place = chain.place
    tables = await place.rows(
        "SELECT relnamespace::regnamespace::text || '.' || quote_ident(relname) AS name, relkind"
        " FROM pg_class WHERE relkind IN ('r', 'S') AND relnamespace::regnamespace::text IN"
        f" ('{place.raw}', '{place.app}') ORDER BY 1"
    )
    found = {}
    for row in tables:
        text = "t::text" if row["relkind"] == "r" else "last_value::text"
        digest = f"md5(coalesce(string_agg({text}, '|' ORDER BY {text}), ''))"
        held = await place.rows(f"SELECT {digest} AS digest FROM {row['name']} AS t")
        found[row["name"]] = held[0]["digest"]
    assert len(found) > 20
    return found


def columns(rows: Any, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows)


async def test_a_preview_writes_nothing_and_is_what_a_run_then_commits(
    spark: SparkSession, chain: Chain
) -> None:
    async with engine(chain, KNOBS, config=config(chain, TRANSFERS, MOVES, PAGES, DAYS)) as made:
        await made.grow(34)
        before = await everything(chain)
        moves = await preview(made, "moves", last=1000)
        pages = await preview(made, "pages", span=Span(7, 21))
        days = await preview(made, "daily_summary", span=Span(14, 14))
        assert await everything(chain) == before
        assert moves.span == Span(0, 34) and moves.count == len(moves.rows)
        assert moves.computed == ("token_transfers",)
        assert pages.computed == ("moves", "token_transfers")
        assert pages.span == Span(5, 24), "whole partitions"
        assert days.span.first < 14 < days.span.last and len(days.rows) == 1
        assert moves.difference is None
        await made.settle()
        stored = await made.rows("moves", "block_number, log_index")
        assert list(moves.rows) == stored and stored
        held = await made.rows("pages", "block_number")
        names = ("block_number", "token_address", "moves")
        assert columns(pages.rows, *names) == columns(
            (row for row in held if 5 <= row["block_number"] <= 24), *names
        )
        summary = await made.rows("daily_summary", "day")
        assert list(days.rows) == [row for row in summary if row["day"] == days.rows[0]["day"]]
        (day,) = days.rows
        assert days.span == Span(day["first_block"], day["block_number"]), "the whole day"


async def test_a_preview_says_how_it_differs_from_what_is_stored(
    spark: SparkSession, chain: Chain
) -> None:
    async with engine(chain, KNOBS, config=config(chain, TRANSFERS, MOVES)) as made:
        await made.grow(20)
        await made.settle()
        stored = await made.rows("moves", "block_number, log_index")
        same = await preview(made, "moves")
        assert same.difference is not None and same.difference.is_none
        assert same.difference.same == same.count and same.computed == ()
        first, second, *_ = stored
        text = (
            "SELECT block_number, block_hash, log_index,"
            f" CASE WHEN block_number = {first['block_number']} AND log_index ="
            f" {first['log_index']} THEN X'07' ELSE token_address END AS token_address, amount"
            " FROM token_transfers WHERE standard = 'erc20' AND NOT (block_number ="
            f" {second['block_number']} AND log_index = {second['log_index']})"
        )
        config(chain, TRANSFERS, MOVES, **{"moves.sql": text})
        other = (await preview(made, "moves", last=100)).difference
        assert other is not None
        assert (other.added, other.removed, other.changed) == (0, 1, 1)
        assert other.same == len(stored) - 2
        keys = ("block_number", "log_index", "token_address")
        shown = [(change.is_new, *(change.row[key] for key in keys)) for change in other.changes]
        assert sorted(shown) == sorted(
            [
                (True, first["block_number"], first["log_index"], b"\x07"),
                (False, *(first[key] for key in keys)),
                (False, *(second[key] for key in keys)),
            ]
        )
        wider = "SELECT *, 1 AS one FROM (" + FILES["moves.sql"] + ") AS held"
        config(chain, TRANSFERS, MOVES, **{"moves.sql": wider})
        found = (await preview(made, "moves")).difference
        assert found is not None and found.columns_added == ("one",) and found.changed == 0
        await made.fork(depth=3, length=4)
        ahead = await preview(made, "moves", last=8)
        assert ahead.span.last == made.tree.head.number
        assert ahead.at.hash == made.tree.head.hash
        hashes = {block.hash for block in made.blocks}
        assert {row["block_hash"] for row in ahead.rows} <= hashes


async def test_a_state_that_is_not_stored_is_asked_for_and_one_that_is_is_read_where_it_stands(
    spark: SparkSession, chain: Chain
) -> None:
    async with engine(chain, KNOBS, config=config(chain, TRANSFERS, BALANCES, TOTALS)) as made:
        await made.grow(12)
        with pytest.raises(errors.Misconfigured, match="reads `token_balances`, which only"):
            await preview(made, "totals")
        changes = await preview(made, "token_balances", span=Span(3, 9))
        assert changes.difference is None and "these are changes" in " ".join(changes.notes)
        with pytest.raises(errors.Misconfigured, match=r"blocks 0..12 .* not all of 5..40"):
            await preview(made, "token_balances", span=Span(5, 40))
        await made.settle()
        await made.grow(1)
        totals = await preview(made, "totals")
        assert totals.span == Span(0, 12), "where the state stands"
        assert columns(totals.rows, "token_address", "holders") == columns(
            await made.rows("totals", "token_address"), "token_address", "holders"
        )


TRANSFER = [
    {
        "type": "event",
        "name": "Transfer",
        "inputs": [
            {"name": "from", "type": "address", "indexed": True},
            {"name": "to", "type": "address", "indexed": True},
            {"name": "value", "type": "uint256", "indexed": False},
        ],
    }
]
SEEN = {
    "name": "seen",
    "input_datasets": ["token_transfers", "erc20_transfer"],
    "lookups": {"erc20_transfer": {"column": "address", "by": "token_address"}},
    "sql": "seen.sql",
}
SEEN_SQL = (
    "SELECT t.block_number, t.block_hash, t.log_index, count(*) AS before FROM token_transfers AS t"
    " JOIN erc20_transfer AS e ON e.address = t.token_address AND e.block_number <= t.block_number"
    " GROUP BY t.block_number, t.block_hash, t.log_index"
)


PICKY = {"name": "picky", "input_datasets": ["token_transfers"], "sql": "picky.sql"}
PICKY_SQL = (
    "SELECT block_number, block_hash, log_index,"
    " CASE WHEN log_index % 2 = 1 THEN 'odd' END AS indexing_error FROM token_transfers"
    " WHERE standard = 'erc20'"
)


async def test_decoded_events_are_previewed_without_those_that_are_refused_and_looked_up_whole(
    spark: SparkSession, chain: Chain
) -> None:
    files = {"abi.json": json.dumps(TRANSFER), "seen.sql": SEEN_SQL, "picky.sql": PICKY_SQL}
    made_of = config(chain, TRANSFERS, SEEN, PICKY, **files)
    made_of["decode"] = [{"name": "erc20", "abi": "abi.json"}]
    knobs = Knobs(density=4, finality_lag=10, hostile=True)
    async with engine(chain, knobs, config=made_of) as made:
        await made.grow(30)
        before = await everything(chain)
        decoded = await preview(made, "erc20_transfer", last=31)
        seen = await preview(made, "seen", last=4)
        picky = await preview(made, "picky", last=31)
        assert await everything(chain) == before
        assert "erc20_transfer" in seen.computed
        await made.settle()
        assert list(decoded.rows) == await made.rows("erc20_transfer", "block_number, log_index")
        assert list(picky.rows) == await made.rows("picky", "block_number, log_index")
        odd = len(decoded.rows) - len(picky.rows)
        assert odd and f"{odd:,} rows are refused" in " ".join(picky.notes)
        held = await made.rows("seen", "block_number, log_index")
        assert list(seen.rows) == [row for row in held if row["block_number"] > 26]


async def test_contracts_are_asked_by_a_preview_and_their_answers_kept_nowhere(
    chain: Chain,
) -> None:
    async with asking(chain) as (made, _):
        await made.grow(12)
        before = await everything(chain)
        found = await preview(made, "holdings", last=13)
        assert await everything(chain) == before
        with pytest.raises(errors.Misconfigured, match="so it can only be run"):
            await preview(made, "tokens", last=2)
        await made.settle()
        assert list(found.rows) == await made.rows("holdings", "block_number, log_index")


async def test_many_blocks_are_previewed_by_tasks_and_judged_by_the_checks(
    spark: SparkSession, chain: Chain
) -> None:
    checked = {**MOVES, "checks": [{"sql": "SELECT * FROM moves WHERE block_number > 130"}]}
    knobs = Knobs(density=1, finality_lag=10)
    async with engine(chain, knobs, config=config(chain, TRANSFERS, checked)) as made:
        await made.grow(150)
        found = await preview(made, "moves", span=Span(1, 145), limit=5)
        assert len(found.rows) == 5 and found.count > 5
        assert not found.is_published and "check `sql_1` failed" in found.findings[0]
        assert (await preview(made, "moves", span=Span(1, 130), limit=1)).is_published


SAVED = """
from pyspark.sql import functions as F

def mine(transactions):
    def doubled(batches):
        for batch in batches:
            yield batch
    chosen = transactions.select("block_number", "block_hash", F.lit({number}).alias("word"))
    return chosen.mapInArrow(doubled, "block_number bigint, block_hash binary, word int")
"""


def save(file: Path, text: str) -> None:
    """Saves a file as editors do: nobody ever sees half of it."""
    draft = file.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(file)


async def test_what_is_saved_is_previewed_at_once_and_mistakes_end_nothing(
    spark: SparkSession, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"name": "mine", "input_datasets": ["transactions"], "transform": "watched_one:mine"}
    folder = chain.file.parent
    code = folder / "watched_one.py"
    code.write_text(SAVED.format(number=1))
    async with engine(chain, KNOBS, config={"jobs": [job]}) as made:
        await made.grow(6)
        context = Context(
            config_file=chain.file, log_level="warning", is_debug=False, output=output.make(True)
        )
        wish = Wish(job="mine", span=None, last=5, limit=3, chain=None, is_watched=True)
        desk = Desk(context, wish)
        desk.use(spark, wiring.Urls(raw=chain.place.dsn, app=chain.place.dsn))
        stopping, told = threading.Event(), _Told()
        watching = threading.Thread(
            target=Watch(folder, desk.preview, told).run, args=(stopping,), daemon=True
        )
        watching.start()
        try:
            assert {row["word"] for row in told.next().rows} == {1}
            save(code, SAVED.format(number=22))
            assert {row["word"] for row in told.next().rows} == {22}
            save(code, SAVED.format(number="1 / 0 if transactions else 0"))
            assert "ZeroDivisionError" in told.error() and "(watched_one.py:8)" in told.last
            save(code, "def mine(transactions:\n")
            assert "watched_one.py, line 1" in told.error()
            save(chain.file, chain.file.read_text() + "job: 1\n")
            assert "unknown key `job`" in told.error() and "unfork.yaml:" in told.last
            text = yaml.safe_load(chain.file.read_text())
            del text["job"]
            save(code, SAVED.format(number=333))
            told.error()
            save(chain.file, yaml.safe_dump(text))
            assert {row["word"] for row in told.next().rows} == {333}
        finally:
            stopping.set()
            watching.join()


class _Told:
    """What a watch tells, one after the other."""

    def __init__(self) -> None:
        self._came = threading.Semaphore(0)
        self._found: list[Preview | errors.UnforkError] = []
        self._taken = 0
        self.last = ""

    def __call__(self, found: Preview | errors.UnforkError) -> None:
        self._found.append(found)
        self._came.release()

    def next(self) -> Preview:
        found = self._take()
        assert isinstance(found, Preview), found
        return found

    def error(self) -> str:
        found = self._take()
        assert isinstance(found, errors.UnforkError), found
        self.last = found.message
        return found.message

    def _take(self) -> Preview | errors.UnforkError:
        assert self._came.acquire(timeout=120), "nothing was told"
        self._taken += 1
        return self._found[self._taken - 1]


def test_a_preview_is_shown_with_exact_numbers_and_readable_bytes() -> None:
    assert previewing._short(bytes(range(32))) == "0x000102…1d1e1f"
    assert previewing._short(2**256 - 1) == str(2**256 - 1)
    assert previewing._short([b"\x01", b"\x02"]) == "[0x01, 0x02]"


def test_a_watch_looks_at_the_files_of_the_project_alone(tmp_path: Path) -> None:
    ours = ("unfork.yaml", "jobs/a.sql", "m.py", ".env")
    for name in (*ours, ".git/x.py", "v/pyvenv.cfg", "v/y.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
    seen = previewing.stamps(tmp_path)
    names = {str(file.relative_to(tmp_path)) for file in seen}
    assert names == set(ours)
    (tmp_path / "m.py").write_text("22")
    assert previewing.stamps(tmp_path) != seen
