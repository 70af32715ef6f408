"""Goal: a partition of the lake is one whole version or the other, whoever writes, reads or dies.

Method: real Postgres and real files; writers are stopped where a crash, a pause or another writer
would meet them, and a reader polls while pointers move and garbage goes.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.journals import Journal
from tests.lakes import ROWS, Lake, hash_of, lake, table, target
from tests.places import Place
from tests.workers import Worker
from unfork import errors
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.cli import output
from unfork.cli.context import Context
from unfork.cli.main import cli
from unfork.lake import gc, pieces, publish
from unfork.lake import rows as lake_rows
from unfork.lake.versions import Claim, Lost, Version, Written

FIRST, SECOND = Span(0, 9), Span(10, 19)


@pytest.fixture
async def lakes(place: Place) -> Lake:
    made = lake(place)
    await made.final_up_to(100)
    return made


def rows(lake: Lake, versions: list[Version], span: Span) -> list[tuple[int, int]]:
    """The block and the stamp of every row of a span, as a Python process reads them."""
    found = []
    for piece in pieces.of(versions, span):
        for batch in lake_rows.batches(lake.storage, piece, ROWS, number="block_number"):
            columns = batch.to_pydict()
            found += zip(columns["block_number"], columns["stamp"], strict=True)
    return found


def expected(span: Span, stamp: int) -> list[tuple[int, int]]:
    return [(number, stamp) for number in range(span.first, span.last + 1) for _ in range(3)]


async def test_a_published_version_is_read_as_it_was_written(lakes: Lake) -> None:
    below, above = await lakes.publish(FIRST), await lakes.publish(SECOND)
    current = await lakes.versions.current(["toys"])
    assert [version.version for version in current] == [below.version, above.version]
    assert rows(lakes, current, Span(0, 19)) == expected(FIRST, 1) + expected(SECOND, 2)
    assert rows(lakes, current, Span(8, 10)) == expected(Span(8, 9), 1) + expected(Span(10, 10), 2)
    assert (below.rows, below.parent_hash) == (30, None)
    assert above.parent_hash == below.last.hash == hash_of(9)
    assert below.size == sum(one.bytes for one in lakes.storage.files(below.location))


async def test_a_crash_between_file_write_and_pointer_leaves_the_old_version_and_garbage(
    lakes: Lake,
) -> None:
    old = await lakes.publish(FIRST)
    crashed = await lakes.claim(FIRST, replaces=old, lease_s=0.001)
    assert crashed is not None
    lakes.write(crashed, table(FIRST, 7))
    # The writer is gone here: nothing is published, and nobody renews its claim.
    current = await lakes.versions.current()
    assert rows(lakes, current, FIRST) == expected(FIRST, 1)
    found = await gc.find(lakes.versions, lakes.storage, keep_s=0)
    assert [(one.version, one.is_abandoned) for one in found.versions] == [(crashed.version, True)]
    assert found.strays == ()
    await gc.remove(lakes.versions, lakes.storage, found)
    assert not list(lakes.storage.files(crashed.location))
    assert rows(lakes, await lakes.versions.current(), FIRST) == expected(FIRST, 1)
    assert (await gc.find(lakes.versions, lakes.storage, keep_s=0)).is_empty


async def test_a_folder_that_no_version_names_is_garbage_and_other_files_are_nobodys(
    lakes: Lake,
) -> None:
    await lakes.publish(FIRST)
    await lakes.place.app_rows("DELETE FROM {app}.lake_versions")
    system, other = lakes.storage.opened(f"{lakes.place.name}/toys/README")
    with system.open_output_stream(other) as stream:
        stream.write(b"somebody's own")
    found = await gc.find(lakes.versions, lakes.storage, keep_s=0)
    assert [(stray.files, found.versions) for stray in found.strays] == [(2, ())]
    await gc.remove(lakes.versions, lakes.storage, found)
    left = [one.path for one in lakes.storage.files()]
    assert left == [f"{lakes.place.name}/toys/README"]


async def test_a_partition_that_becomes_empty_becomes_an_empty_version(lakes: Lake) -> None:
    full = await lakes.publish(FIRST)
    empty = await lakes.publish(FIRST, replaces=full, each=0)
    assert (empty.rows, empty.size, empty.content, empty.files) == (0, 0, 0, ())
    current = await lakes.versions.current()
    assert [version.version for version in current] == [empty.version]
    assert rows(lakes, current, FIRST) == []
    # Absent is something else than empty.
    assert not any(version.span.overlaps(SECOND) for version in current)


async def test_two_publishers_at_once_publish_one_version(lakes: Lake) -> None:
    begun, going_on = 0, asyncio.Event()

    async def in_thread(work: object) -> Written:
        nonlocal begun
        begun += 1
        await going_on.wait()
        assert callable(work)
        written: Written = work()
        return written

    def write(claim: Claim) -> Written:
        return lakes.written(FIRST, lakes.write(claim, table(FIRST, 1)))

    async def publisher() -> Version | Lost:
        try:
            return await publish.publish(
                lakes.versions,
                target(FIRST),
                write,
                worker="test",
                lease_s=60,
                in_thread=in_thread,
            )
        finally:
            # Whoever is refused lets the other one go on.
            going_on.set()

    found = await asyncio.gather(publisher(), publisher(), publisher())
    assert sorted(type(one).__name__ for one in found) == ["Lost", "Lost", "Version"]
    assert begun == 1
    assert rows(lakes, await lakes.versions.current(), FIRST) == expected(FIRST, 1)


async def test_a_writer_that_comes_back_after_its_claim_has_ended_publishes_nothing(
    lakes: Lake,
) -> None:
    slow = await lakes.claim(FIRST, lease_s=0.001)
    assert slow is not None
    files = lakes.write(slow, table(FIRST, 9))
    fast = await lakes.publish(FIRST)
    lost = await lakes.versions.publish(slow, lakes.written(FIRST, files))
    assert isinstance(lost, Lost)
    assert [one.version for one in await lakes.versions.current()] == [fast.version]
    assert not await lakes.versions.renew(slow, lease_s=60)


async def test_a_publish_whose_answer_was_lost_does_nothing_the_second_time(lakes: Lake) -> None:
    claim = await lakes.claim(FIRST)
    assert claim is not None
    written = lakes.written(FIRST, lakes.write(claim, table(FIRST, 1)))
    first = await lakes.versions.publish(claim, written)
    assert await lakes.versions.publish(claim, written) == first
    assert len(await lakes.versions.current()) == 1


async def test_a_version_that_was_replaced_meanwhile_is_not_replaced_again(lakes: Lake) -> None:
    old = await lakes.publish(FIRST)
    new = await lakes.publish(FIRST, replaces=old)
    assert await lakes.claim(FIRST, replaces=old) is None
    assert await lakes.claim(FIRST) is None
    assert [one.version for one in await lakes.versions.current()] == [new.version]


async def test_partitions_that_do_not_link_are_refused_and_nothing_is_changed(lakes: Lake) -> None:
    await lakes.publish(FIRST)
    for span, wrong in ((SECOND, {"parent": "another "}), (Span(20, 29), {"fork": "another "})):
        if span.first == 20:
            await lakes.publish(Span(30, 39))
        claim = await lakes.claim(span)
        assert claim is not None
        files = lakes.write(claim, table(span, 5))
        before = await lakes.versions.current()
        with pytest.raises(errors.LakeUnlinked) as caught:
            await lakes.versions.publish(claim, lakes.written(span, files, **wrong))
        assert caught.value.fields["span"] == str(span)
        assert await lakes.versions.current() == before
        await lakes.versions.abandon(claim)


async def test_what_is_not_final_or_of_an_epoch_that_is_over_is_not_published(lakes: Lake) -> None:
    for floor, epoch in ((8, 1), (100, 2)):
        claim = await lakes.claim(FIRST)
        assert claim is not None
        written = lakes.written(FIRST, lakes.write(claim, table(FIRST, 1)))
        await lakes.final_up_to(floor, epoch=epoch)
        assert isinstance(await lakes.versions.publish(claim, written), Lost)
        await lakes.versions.abandon(claim)
        await lakes.final_up_to(100)
    assert await lakes.versions.current() == []


async def test_partitions_of_one_dataset_never_overlap(lakes: Lake) -> None:
    await lakes.publish(FIRST)
    claim = await lakes.claim(Span(5, 14))
    assert claim is not None
    files = lakes.write(claim, table(Span(5, 14), 2))
    assert isinstance(await lakes.versions.publish(claim, lakes.written(Span(5, 14), files)), Lost)


async def test_a_reader_that_has_pinned_finishes_on_the_old_version(lakes: Lake) -> None:
    old = await lakes.publish(FIRST)
    async with lakes.versions.pinned(holder="test", keep_s=60):
        seen = await lakes.versions.current()
        new = await lakes.publish(FIRST, replaces=old)
        found = await gc.find(lakes.versions, lakes.storage, keep_s=0)
        assert found.is_empty
        await lakes.publish(FIRST, replaces=new)
        assert rows(lakes, seen, FIRST) == expected(FIRST, 1)
    found = await gc.find(lakes.versions, lakes.storage, keep_s=0)
    assert [one.version for one in found.versions] == [old.version, new.version]


async def test_what_was_replaced_a_short_while_ago_stays_and_a_dead_reader_keeps_nothing(
    lakes: Lake,
) -> None:
    old = await lakes.publish(FIRST)
    async with lakes.versions.pinned(holder="dead", keep_s=0.0):
        await lakes.publish(FIRST, replaces=old)
        assert (await gc.find(lakes.versions, lakes.storage, keep_s=3600)).is_empty
        found = await gc.find(lakes.versions, lakes.storage, keep_s=0)
        assert [one.version for one in found.versions] == [old.version]


async def test_a_reader_in_a_loop_during_200_publishes_sees_only_whole_versions(
    lakes: Lake,
) -> None:
    current = {FIRST: await lakes.publish(FIRST), SECOND: await lakes.publish(SECOND)}
    done, looked = asyncio.Event(), asyncio.Event()
    seen: list[tuple[int, int]] = []

    async def reader() -> None:
        other = lake(lakes.place)
        while not done.is_set():
            async with other.versions.pinned(holder="loop", keep_s=60):
                versions = await other.versions.current()
                # Between looking and reading pointers move, and garbage goes.
                looked.set()
                found = await asyncio.to_thread(rows, other, versions, Span(0, 19))
            stamps = [stamp for _, stamp in found]
            assert found == expected(FIRST, stamps[0]) + expected(SECOND, stamps[-1])
            seen.append((stamps[0], stamps[-1]))

    async def publisher() -> None:
        for number in range(200):
            span = SECOND if number % 2 else FIRST
            current[span] = await lakes.publish(span, replaces=current[span])
            garbage = await gc.find(lakes.versions, lakes.storage, keep_s=0)
            await gc.remove(lakes.versions, lakes.storage, garbage)
            if number % 10 == 0:
                # As slow as the reader, so that it looks many times.
                looked.clear()
                await looked.wait()
        done.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(reader())
        group.create_task(publisher())
    assert len(seen) >= 20 and seen == sorted(seen), "never back to what was replaced"
    await gc.remove(
        lakes.versions, lakes.storage, await gc.find(lakes.versions, lakes.storage, keep_s=0)
    )
    assert len({one.path.rpartition("/")[0] for one in lakes.storage.files()}) == 2


async def test_a_file_that_is_gone_is_told_as_such(lakes: Lake) -> None:
    version = await lakes.publish(FIRST)
    lakes.storage.remove(version.location)
    with pytest.raises(errors.FilesRemoved):
        rows(lakes, [version], FIRST)


async def test_a_write_that_fails_leaves_the_partition_to_the_next_one(lakes: Lake) -> None:
    def write(claim: Claim) -> Written:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        await publish.publish(lakes.versions, target(FIRST), write, worker="test", lease_s=60)
    assert (await lakes.publish(FIRST)).last == BlockRef(9, hash_of(9))


async def test_an_operator_below_the_floor_takes_pointers_away_and_the_files_stay(
    place: Place,
) -> None:
    journal = Journal(first=0).finalize(29).commit("-".join(f"a{number}" for number in range(40)))
    worker = Worker(place, journal)
    await worker.follow()
    made = lake(place)
    for first in (0, 10, 20):
        await made.publish(Span(first, first + 9))
    journal.unwind(35).commit("b36-b37-b38")
    await worker.follow()
    assert len(await made.versions.current()) == 3, "what is final stays through forks"
    seen = await made.versions.current()
    journal.unwind(14, by_operator=True)
    await worker.follow()
    assert [one.span for one in await made.versions.current()] == [FIRST]
    assert rows(made, seen, Span(20, 29)) == expected(Span(20, 29), 3)
    found = await gc.find(made.versions, made.storage, keep_s=0)
    assert [one.version for one in found.versions] == [one.version for one in seen[1:]]


async def test_the_command_shows_what_is_there_and_removes_what_nobody_needs_when_told(
    lakes: Lake, tmp_path: Path
) -> None:
    old = await lakes.publish(FIRST)
    await lakes.publish(FIRST, replaces=old)
    config = {
        "data_dir": str(lakes.place.folder),
        "chains": [{"name": lakes.place.name}],
        "lake": {"retired_keep_s": 0},
    }
    (tmp_path / "unfork.yaml").write_text(json.dumps(config))
    env = {"DB_RAW_URL": lakes.place.dsn, "DB_APP_URL": lakes.place.dsn}

    async def unfork(*arguments: str) -> tuple[int, dict[str, Any]]:
        def run() -> tuple[int, dict[str, Any]]:
            context = Context(
                config_file=None, log_level="warning", is_debug=False, output=output.make(True)
            )
            given = ["--config", str(tmp_path / "unfork.yaml"), "lake", *arguments, "--json"]
            result = CliRunner().invoke(cli, given, obj=context, env=env, standalone_mode=False)
            assert result.exception is None, result.exception
            return result.return_value or 0, json.loads(result.stdout)

        return await asyncio.to_thread(run)

    code, said = await unfork("status")
    assert (code, await unfork()) == (0, (0, said))
    shown = said["datasets"][0]
    assert shown["spans"] == [{"first": 0, "last": 9}]
    assert (shown["dataset"], shown["partitions"], shown["rows"]) == ("toys", 1, 30)
    assert (shown["to_remove"], shown["writing"], shown["unlinked"]) == (1, 0, None)
    for arguments, expected_code, removed in (
        (("gc", "--dry-run"), 0, False),
        (("gc",), 1, False),
        (("gc", "--yes"), 0, True),
    ):
        code, said = await unfork(*arguments)
        assert (code, said["removed"]) == (expected_code, removed)
        assert [one["location"] for one in said["versions"]] == [old.location]
    assert not list(lakes.storage.files(old.location))
    assert (await unfork("gc"))[1] == {
        "chain": lakes.place.name,
        "removed": False,
        "versions": [],
        "strays": [],
    }
