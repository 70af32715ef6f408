"""Goal: repair finds every mismatch of lookups and payloads, mends what can be mended, and is safe
beside a running follower. Method: damage done by hand, and a follower that commits meanwhile."""

from __future__ import annotations

import asyncio
import contextlib

from tests.batches import batch, ref
from tests.integration.hot.test_store import require_exact
from tests.places import Place
from unfork import errors
from unfork.datasets.batch import Batch
from unfork.devnet.block import Block
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot import repair as repair_module
from unfork.hot.repair import Fetch, Finding, Repair
from unfork.hot.store import HotStore


def repair(place: Place, *, grace_s: float = 0, fetch: Fetch | None = None) -> Repair:
    return Repair(
        place.name,
        "evm",
        place.database(),
        place.payloads(),
        sweep_grace_s=grace_s,
        fetch=fetch,
    )


async def findings(place: Place, *, mend: bool, grace_s: float = 0) -> list[Finding]:
    return [one async for one in repair(place, grace_s=grace_s).run(mend=mend)]


async def filled(place: Place, tree: Tree) -> HotStore:
    tree.extend(30)
    store = place.store(inline_max_bytes=100)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(number) for number in range(31)]))
    return store


async def test_a_sound_store_has_nothing_to_tell(any_place: Place) -> None:
    await filled(any_place, Tree(Knobs(density=4, hostile=True)))
    assert await findings(any_place, mend=True) == []


async def test_lookups_are_made_to_fit_their_rows_again(any_place: Place) -> None:
    tree = Tree(Knobs(density=4))
    await filled(any_place, tree)
    await any_place.rows("DELETE FROM {raw}.tx_lookup WHERE block_number = 7")
    await any_place.rows("UPDATE {raw}.tx_lookup SET timestamp = now() WHERE block_number = 9")
    await any_place.rows("UPDATE {raw}.block_lookup SET block_number = 99 WHERE block_number = 3")
    await any_place.rows("INSERT INTO {raw}.block_lookup VALUES ('\\x01', 12, now())")
    await any_place.rows("INSERT INTO {raw}.tx_lookup VALUES ('\\x01', 500, 0, now())")
    told = await findings(any_place, mend=False)
    assert {(one.kind, one.subject, one.block_number) for one in told} == {
        ("lookup_missing", "tx_lookup", 7),
        ("lookup_missing", "tx_lookup", 9),
        ("lookup_dangling", "tx_lookup", 9),
        ("lookup_dangling", "tx_lookup", 500),
        ("lookup_missing", "block_lookup", 3),
        ("lookup_dangling", "block_lookup", 99),
        ("lookup_dangling", "block_lookup", 12),
    }
    assert not any(one.is_mended for one in told)
    mended = await findings(any_place, mend=True)
    assert mended and all(one.is_mended for one in mended)
    assert await findings(any_place, mend=False) == []
    await require_exact(any_place, tree, 0, 30)


async def test_payloads_that_are_gone_or_damaged_are_named_with_their_blocks(
    any_place: Place,
) -> None:
    await filled(any_place, Tree(Knobs(density=4)))
    (row,) = await any_place.rows(
        "SELECT payload_ref FROM {raw}.transactions WHERE payload_ref IS NOT NULL LIMIT 1"
    )
    path = any_place.folder / "payloads" / row["payload_ref"]
    for damage in (lambda: path.write_bytes(b"cut"), path.unlink):
        damage()
        told = await findings(any_place, mend=True)
        assert {one.kind for one in told} == {"payload_missing"}
        assert all(one.block_number is not None and not one.is_mended for one in told)


async def test_payloads_that_are_gone_or_damaged_are_fetched_again_where_the_source_has_them(
    any_place: Place,
) -> None:
    tree = Tree(Knobs(density=4))
    await filled(any_place, tree)
    rows = await any_place.rows(
        "SELECT DISTINCT payload_ref FROM {raw}.transactions WHERE payload_ref IS NOT NULL LIMIT 2"
    )
    gone, damaged = (any_place.folder / "payloads" / row["payload_ref"] for row in rows)
    asked: list[int] = []

    async def fetch(number: int) -> Batch | None:
        asked.append(number)
        return batch(chain.at(number))

    async def mended(mend: bool) -> list[bool]:
        run = repair(any_place, fetch=fetch).run(mend=mend)
        return [one.is_mended async for one in run if one.kind == "payload_missing"]

    gone.unlink()
    damaged.write_bytes(b"cut")
    chain = Tree(Knobs(seed=2, density=4))
    chain.extend(30)
    assert await mended(False) == [False, False] and not asked, "looking asks nobody"
    assert await mended(True) == [False, False], "another chain has other values"
    chain = tree
    assert await mended(True) == [True, True]
    assert await mended(False) == []
    await require_exact(any_place, tree, 0, 30)


async def test_a_source_that_is_away_leaves_the_payload_named(any_place: Place) -> None:
    await filled(any_place, Tree(Knobs(density=4)))
    (row,) = await any_place.rows(
        "SELECT payload_ref FROM {raw}.transactions WHERE payload_ref IS NOT NULL LIMIT 1"
    )
    (any_place.folder / "payloads" / row["payload_ref"]).unlink()

    async def fetch(number: int) -> Batch | None:
        raise errors.SourceUnavailable

    told = [one async for one in repair(any_place, fetch=fetch).run(mend=True)]
    assert [(one.kind, one.is_mended) for one in told] == [("payload_missing", False)]


async def test_payloads_without_a_record_get_one(any_place: Place) -> None:
    await filled(any_place, Tree(Knobs(density=4)))
    before = await any_place.rows("SELECT hash, ref, size FROM {raw}.payloads ORDER BY hash")
    assert before
    await any_place.rows("DELETE FROM {raw}.payloads")
    told = await findings(any_place, mend=True, grace_s=1000)
    assert {(one.kind, one.is_mended) for one in told} == {("payload_unrecorded", True)}
    after = await any_place.rows("SELECT hash, ref, size FROM {raw}.payloads ORDER BY hash")
    assert after == before


async def test_what_nobody_uses_is_swept_after_its_grace_and_not_before(any_place: Place) -> None:
    await filled(any_place, Tree(Knobs(density=4)))
    store = any_place.payloads()
    stored = await store.put([b"used no more", b"never committed"])
    await any_place.rows(
        "INSERT INTO {raw}.payloads (hash, ref, size) VALUES (%(hash)s, %(ref)s, 12)",
        hash=stored[0].hash,
        ref=stored[0].ref,
    )
    litter = any_place.folder / "payloads" / stored[1].ref[:2] / "writing-abc"
    litter.write_bytes(b"half")
    assert await findings(any_place, mend=True, grace_s=1000) == []
    told = await findings(any_place, mend=False)
    assert {one.kind for one in told} == {"payload_unused", "blob_stray"}
    assert await store.missing(stored) == []
    await findings(any_place, mend=True)
    assert await store.missing(stored) == stored
    assert not litter.exists()
    assert await findings(any_place, mend=False) == []


async def test_orphaned_rows_keep_their_payloads(any_place: Place) -> None:
    tree = Tree(Knobs(density=6))
    store = await filled(any_place, tree)
    before = await any_place.rows("SELECT hash FROM {raw}.payloads ORDER BY hash")
    await store.unwind(None)
    assert await findings(any_place, mend=True) == []
    assert await any_place.rows("SELECT hash FROM {raw}.payloads ORDER BY hash") == before


async def test_repair_beside_a_follower_leaves_everything_exact(any_place: Place) -> None:
    tree = Tree(Knobs(density=4, seed=5))
    store = await filled(any_place, tree)
    done = asyncio.Event()

    async def commit(*blocks: Block | None) -> None:
        # Without any grace a sweep may take a payload from under its writer, who tries again then.
        while True:
            with contextlib.suppress(errors.Retryable):
                await store.commit(batch(*blocks))
                return

    async def follow() -> None:
        for step in range(12):
            if step % 3 == 2:
                tree.fork(depth=4, length=5, style=Style.MOVED)
                head = tree.head.number
                await store.unwind(ref(tree.at(head - 5)))
                await commit(*[tree.at(n) for n in range(head - 4, head + 1)])
            else:
                tree.extend(1)
                await commit(tree.head)
        done.set()

    async def spoil_and_mend() -> None:
        while not done.is_set():
            await any_place.rows("DELETE FROM {raw}.tx_lookup WHERE block_number > 20")
            await findings(any_place, mend=True)

    await asyncio.gather(follow(), spoil_and_mend())
    await findings(any_place, mend=True)
    assert await findings(any_place, mend=False) == []
    await require_exact(any_place, tree, 0, tree.head.number)


async def test_windows_and_steps_are_bounded(any_place: Place) -> None:
    tree = Tree(Knobs(density=4))
    await filled(any_place, tree)
    await any_place.rows("DELETE FROM {raw}.tx_lookup")
    await any_place.rows("DELETE FROM {raw}.block_lookup")
    heard: list[str] = []
    small = Repair(
        any_place.name,
        "evm",
        any_place.database(probe=heard.append),
        any_place.payloads(),
        sweep_grace_s=0,
    )
    before = (repair_module.BLOCKS_AT_ONCE, repair_module.ITEMS_AT_ONCE)
    repair_module.BLOCKS_AT_ONCE, repair_module.ITEMS_AT_ONCE = 10, 4
    try:
        mended = [one async for one in small.run(mend=True)]
    finally:
        repair_module.BLOCKS_AT_ONCE, repair_module.ITEMS_AT_ONCE = before
    assert len(mended) > 31
    assert heard.count("before repair_lookup_fill_block_lookup") == 10
    await require_exact(any_place, tree, 0, 30)
