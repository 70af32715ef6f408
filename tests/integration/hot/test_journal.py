"""Goal: the journal tells a follower everything, in order and without gaps; spans have scopes."""

from __future__ import annotations

from tests.batches import WHOLE, batch, ref
from tests.places import Place
from unfork.chain.span import Span
from unfork.datasets.scope import Scope
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.tree import Tree
from unfork.hot import journal, schema

LOGS = Scope(kind="logs", addresses=(b"\x01" * 20,))


async def test_every_commit_and_unwind_is_one_entry_with_its_blocks(any_place: Place) -> None:
    tree = Tree(Knobs())
    tree.extend(9)
    store = any_place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(number) for number in range(6)]))
    await store.commit(batch(*[tree.at(number) for number in range(6, 10)]))
    old_tip = ref(tree.head)
    orphaned = [ref(tree.at(number)) for number in (8, 9)]
    tree.fork(depth=2, length=3, style=Style.REPLACED)
    await store.unwind(ref(tree.at(7)), tip=ref(tree.head))
    await store.commit(batch(*[tree.at(number) for number in (8, 9, 10)]))

    entries = await any_place.reader().journal(after=0)
    assert [(entry.seq, entry.kind, str(entry.span)) for entry in entries] == [
        (1, "commit", "0..5"),
        (2, "commit", "6..9"),
        (3, "unwind", "8..9"),
        (4, "commit", "8..10"),
    ]
    assert entries[0].parent_hash is None
    assert entries[1].parent_hash == tree.at(5).hash
    assert entries[2].ref == ref(tree.at(7))
    assert entries[2].fork == {
        "old_tip": {"number": 9, "hash": "0x" + old_tip.hash.hex()},
        "new_tip": {"number": 10, "hash": "0x" + tree.head.hash.hex()},
    }
    queries = schema.bound(any_place.name)
    async with any_place.database().session() as session:
        brought = await journal.refs(session, queries, entries[1])
        assert brought == [ref(tree.at(6)), ref(tree.at(7)), *orphaned]
    assert [entry.seq for entry in await any_place.reader().journal(after=2, limit=1)] == [3]


async def test_spans_of_one_scope_are_joined_and_clipped_by_an_unwind(any_place: Place) -> None:
    async def spans() -> list[tuple[int, int, str]]:
        rows = await any_place.rows("SELECT first, last, scope FROM {raw}.spans ORDER BY first")
        return [(row["first"], row["last"], row["scope"]["kind"]) for row in rows]

    tree = Tree(Knobs())
    tree.extend(12)
    store = any_place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    for first, last, scope in ((0, 2, WHOLE), (3, 5, WHOLE), (6, 8, LOGS), (9, 9, LOGS)):
        blocks = [tree.at(number) for number in range(first, last + 1)]
        await store.commit(batch(*blocks, scope=scope))
    await store.commit(batch(tree.at(10), scope=WHOLE))
    assert await spans() == [(0, 5, "all"), (6, 9, "logs"), (10, 10, "all")]
    await store.unwind(ref(tree.at(7)))
    assert await spans() == [(0, 5, "all"), (6, 7, "logs")]
    await store.commit(batch(tree.at(8), scope=LOGS))
    assert await spans() == [(0, 5, "all"), (6, 8, "logs")]
    await store.unwind(None)
    assert await spans() == []
    assert await any_place.reader().refs(Span(0, 100)) == []
