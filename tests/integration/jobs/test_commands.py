"""Goal: the commands around jobs tell what the database holds and do what they say, also twice.

Method: the real commands over a chain whose toy jobs were run by the
dispatcher of the tests; a project folder declares the same jobs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests import toy
from tests.dispatching import Dispatcher
from tests.journals import Journal
from tests.places import Place
from tests.workers import Worker
from unfork import errors
from unfork.chain.span import Span
from unfork.cli import output
from unfork.cli.context import Context
from unfork.cli.main import cli
from unfork.config import load
from unfork.jobs import catalog, survey
from unfork.jobs.run import Reason

PROJECT = """
jobs:
  - name: find_moves
    input_datasets: [blocks]
    output_dataset: moves
    transform: toys:moves
    config: {{version: {version}}}
  - name: sum_balances
    input_datasets: [moves]
    output_dataset: balances
    transform: toys:balances
    update_strategy: merge
    unique_key: [account]
    merge: {{balance: add, moves: add, largest: max, since: min, first_note: set-if-null}}
  - name: cut_pages
    input_datasets: [moves]
    output_dataset: pages
    transform: toys:pages
    incremental: {{mode: partition, partition: 5}}
  - name: alert_evaluate
    input_datasets: [moves]
"""

CODE = """
def moves(blocks):
    return blocks


def balances(moves):
    return moves


def pages(moves):
    return moves
"""


class Project:
    """A folder whose jobs are the toy jobs of a place."""

    def __init__(self, place: Place, folder: Path) -> None:
        self.folder = folder
        self.chain = place.name
        self.env = {"DB_RAW_URL": place.dsn, "DB_APP_URL": place.app_dsn or place.dsn}
        (folder / "toys.py").write_text(CODE)
        self.write(version=1)

    def write(self, *, version: int) -> None:
        chain = f"chains:\n  - name: {self.chain}\n"
        (self.folder / "unfork.yaml").write_text(chain + PROJECT.format(version=version))

    def dispatcher(self, place: Place, journal: Journal) -> Dispatcher:
        """A worker of the project's jobs."""
        jobs = catalog.read(load.load(self.folder / "unfork.yaml", env={}))
        datasets = (toy.MOVES, toy.BALANCES, toy.PAGES)
        specs = [spec for spec in jobs.lineage.order if spec.is_planned]
        found = Dispatcher(Worker(place, journal), journal, *datasets, specs=specs)
        for job, known in survey.fingerprints(jobs).items():
            found.change(job, known.config_hash)
        return found

    async def answer(self, *arguments: str) -> dict[str, Any]:
        """The one JSON document of a command."""
        document = json.loads(await self.text(*arguments, "--json"))
        assert isinstance(document, dict)
        return document

    async def text(self, *arguments: str, code: int | None = None) -> str:
        """What a command says; in this process, since many of them would take long to start."""
        made = Context(
            config_file=None, log_level="warning", is_debug=False, output=output.make(False)
        )
        given = ["--config", str(self.folder / "unfork.yaml"), *arguments]
        runner = CliRunner(env={**self.env, "COLUMNS": "200"})
        # A command has an event loop of its own.
        done = await asyncio.to_thread(runner.invoke, cli, given, obj=made)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert code is None or done.exit_code == code, done.output
        return done.output if code else done.stdout


@pytest.fixture
def project(place: Place, tmp_path: Path, own_log: logging.Logger) -> Project:
    return Project(place, tmp_path)


def drawing(letter: str, first: int, last: int) -> str:
    return "-".join(f"{letter}{number}" for number in range(first, last + 1))


async def test_plan_jobs_and_datasets_tell_what_there_is_and_what_comes_next(
    place: Place, project: Project
) -> None:
    journal = Journal().commit(drawing("a", 1, 9))
    found = project.dispatcher(place, journal)
    await found.settle()
    journal.unwind(7).commit(drawing("b", 8, 11))
    await found.worker.follow()

    plan = await project.answer("plan")
    assert plan["applied"]["number"] == 11
    first = plan["runs"][0]
    assert (first["job"], first["span"]) == ("find_moves", {"first": 8, "last": 11})
    assert (first["reason"], first["rows_expected"] is not None) == ("invalidation", True)
    text = await project.text("plan")
    assert "live find_moves 8..11: extend" in text and "reorg of blocks" in text

    jobs = {one["job"]: one for one in (await project.answer("jobs"))["jobs"]}
    assert list(jobs) == ["find_moves", "sum_balances", "cut_pages", "alert_evaluate"]
    assert jobs["find_moves"]["status"] == "due"
    assert jobs["find_moves"]["watermark"]["number"] == 7
    assert jobs["sum_balances"]["status"] == "waiting"
    assert jobs["alert_evaluate"]["status"] == "unavailable"
    assert jobs["cut_pages"]["stale"] == [
        {"span": {"first": 5, "last": 9}, "partitions": 1, "why": "reorg of blocks"}
    ]
    assert "pages 5..9 (1 parts): reorg of blocks" in await project.text("jobs")

    datasets = {one["dataset"]: one for one in (await project.answer("datasets"))["datasets"]}
    assert datasets["blocks"]["readers"] == ["find_moves"]
    assert datasets["moves"]["readers"] == ["sum_balances", "cut_pages", "alert_evaluate"]
    assert datasets["moves"]["bytes"] > 0
    assert [build["state"] for build in datasets["moves"]["builds"]] == ["served"]
    assert "pages" in await project.text("datasets")


async def test_a_paused_job_stays_where_it_is_until_it_is_resumed(
    place: Place, project: Project
) -> None:
    journal = Journal().commit(drawing("a", 1, 4))
    found = project.dispatcher(place, journal)
    # Before anything was computed too.
    assert (await project.answer("jobs", "pause", "cut_pages"))["jobs"] == ["cut_pages"]
    await found.settle()
    assert (await project.answer("jobs", "pause", "find_moves"))["paused"] is True
    journal.commit("a5")
    assert await found.settle() == []
    jobs = {one["job"]: one for one in (await project.answer("jobs"))["jobs"]}
    assert (jobs["find_moves"]["status"], jobs["cut_pages"]["status"]) == ("paused", "paused")
    assert jobs["find_moves"]["watermark"]["number"] == 4
    assert jobs["cut_pages"]["watermark"] is None
    for _ in range(2):
        resumed = await project.answer("jobs", "resume", "--all")
        assert sorted(resumed["jobs"]) == ["cut_pages", "find_moves", "sum_balances"]
    await found.settle()
    await found.require_exact()
    with pytest.raises(errors.Misconfigured, match="no job is called `nobody`"):
        await project.answer("jobs", "pause", "nobody")
    with pytest.raises(errors.Misconfigured, match="cannot be run here"):
        await project.answer("jobs", "pause", "alert_evaluate")


async def test_blocks_that_failed_too_often_are_shown_and_released(
    place: Place, project: Project
) -> None:
    journal = Journal().commit(drawing("a", 1, 3))
    found = project.dispatcher(place, journal)
    await found.worker.follow()
    for _ in range(5):
        found.worker.time.pass_s(400)
        surveyed, made = await found.planned()
        claimed = await found.claim(made.runs[0], surveyed)
        assert claimed is not None
        await found.worker.leases.fail(claimed.lease, ValueError("the transform is broken"))
    jobs = {one["job"]: one for one in (await project.answer("jobs"))["jobs"]}
    assert jobs["find_moves"]["status"] == "poisoned"
    failure = jobs["find_moves"]["failures"][0]
    assert (failure["attempt"], failure["error"]) == (5, "the transform is broken")
    status = await project.answer("status")
    assert status["chains"][0]["chain"] == place.name
    elsewhere = await project.answer("jobs", "release", "find_moves", "--span", "100:200")
    assert elsewhere["released"] == []
    released = await project.answer("jobs", "release", "find_moves", "--span", "2:2")
    assert released["released"] == [{"first": 1, "last": 3}]
    ran = await found.settle()
    assert ran[0].span == Span(1, 3)
    await found.require_exact()


async def test_a_changed_job_is_shown_as_stale_with_what_to_do(
    place: Place, project: Project
) -> None:
    journal = Journal().commit(drawing("a", 1, 6))
    found = project.dispatcher(place, journal)
    await found.settle()
    project.write(version=2)
    plan = await project.answer("plan")
    assert [(one["job"], one["spans"]) for one in plan["stale"]] == [
        ("find_moves", [{"first": 1, "last": 6}])
    ]
    jobs = {one["job"]: one for one in (await project.answer("jobs"))["jobs"]}
    assert jobs["find_moves"]["status"] == "stale"
    assert "unfork backfill find_moves --stale" in jobs["find_moves"]["why"]
    assert jobs["find_moves"]["stale"][0]["why"] == "computed with other code or settings"


async def test_a_backfill_shows_its_cost_asks_and_is_put_on_record_once(
    place: Place, project: Project
) -> None:
    journal = Journal().commit(drawing("a", 1, 22)).finalize(12).commit("a23")
    found = project.dispatcher(place, journal)
    await found.settle()
    shown = await project.answer("backfill", "find_moves", "--span", "3:12", "--span", "20:21")
    assert (shown["how"], shown["asked"], shown["done"]) == ("in place", False, False)
    assert shown["spans"] == [{"first": 3, "last": 12}, {"first": 20, "last": 21}]
    assert shown["blocks"] == 12
    assert [one["job"] for one in shown["follows"]] == ["sum_balances", "cut_pages"]
    assert await found.settle() == [], "nobody said yes"
    detached = ("--detach", "--yes")
    for is_asked in (True, False):
        put = await project.answer("backfill", "find_moves", "--span", "3:12", *detached)
        assert put["asked"] is is_asked
    ran = await found.settle()
    assert {(run.job, run.reason) for run in ran} == {("find_moves", Reason.BACKFILL)}
    # What cannot be undone any more is built beside; its columns are those of the served build.
    put = await project.answer("backfill", "sum_balances", "--all", *detached)
    assert (put["how"], put["asked"], put["blocks"]) == ("anew", True, 23)
    jobs = {one["job"]: one for one in (await project.answer("jobs"))["jobs"]}
    assert jobs["sum_balances"]["building"] == {"generation": 2, "watermark": None}
    put = await project.answer("backfill", "sum_balances", "--all", *detached)
    assert (put["asked"], put["left"]) == (False, 23)
    await found.settle()
    await found.require_exact()
    done = await project.answer("backfill", "cut_pages", "--stale")
    assert (done["how"], done["done"]) == ("nothing", True)
    text = await project.text("backfill", "cut_pages", "--span", "7:7")
    assert "pages 5..9, in place: computed again a partition at a time" in text
    assert "1 runs over 5 blocks, about" in text


async def test_a_backfill_of_a_job_that_cannot_run_is_refused(
    place: Place, project: Project
) -> None:
    journal = Journal().commit(drawing("a", 1, 4))
    found = project.dispatcher(place, journal)
    await found.settle()
    await project.answer("jobs", "pause", "find_moves")
    with pytest.raises(errors.Misconfigured, match="unfork jobs resume find_moves"):
        await project.answer("backfill", "find_moves", "--all")
    with pytest.raises(errors.Misconfigured, match="not available in this release"):
        await project.answer("backfill", "alert_evaluate", "--all")
    for few in ([], ["--all", "--stale"]):
        assert "say which blocks" in await project.text("backfill", "find_moves", *few, code=2)
