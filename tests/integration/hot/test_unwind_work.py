"""Goal: the work of an unwind grows with the rows it touches, not with those it leaves (I10).

Method: Postgres counts the pages that the store's own statements touch, in a store and in one that
holds ten times the blocks. Pages, unlike seconds, do not depend on what else the machine does.
"""

from __future__ import annotations

from tests.batches import batch
from tests.places import Place
from unfork.database.queries import Query
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot import lookups, schema

UNWOUND = 8


def statements(place: Place) -> list[Query]:
    """What an unwind runs over the tables."""
    queries = schema.bound(place.name)
    return [
        *(
            queries.of(
                "unwind_rows",
                dataset.name,
                table=dataset.name,
                orphaned=f"orphaned_{dataset.name}",
                number=dataset.number_column,
                columns=schema.columns(dataset),
            )
            for dataset in evm.DATASETS
        ),
        *(queries.of("unwind_lookup", one.table, table=one.table) for one in lookups.LOOKUPS),
    ]


async def pages(place: Place, tree: Tree, blocks: int) -> int:
    """Pages touched by taking the last blocks off a chain that is `blocks` long."""
    await place.wipe()
    store = place.store()
    await store.open()
    await store.claim(chain_id=1337, start=0)
    await store.commit(batch(*[tree.at(number) for number in range(blocks)]))
    touched = 0
    async with place.database().session() as session:
        await session.run(Query("vacuum", f'VACUUM (ANALYZE) "{place.raw}".transactions'))
        await session.run(Query("begin", "BEGIN; SET LOCAL enable_seqscan = off"))
        for query in statements(place):
            text = query.text.split("\n", 1)[1].rstrip(";")
            row = await session.row(
                Query("explain", f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}"),
                target=blocks - UNWOUND - 1,
                position=blocks - 1,
                seq=10**6,
            )
            assert row is not None
            plan = row["QUERY PLAN"][0]["Plan"]
            touched += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        await session.run(Query("end", "ROLLBACK"))
    return touched


async def test_ten_times_the_blocks_held_touch_no_more_pages(any_place: Place) -> None:
    tree = Tree(Knobs(density=6))
    tree.extend(399)
    few = [await pages(any_place, tree, 40) for _ in range(2)][-1]
    many = await pages(any_place, tree, 400)
    assert few > 100, "hardly anything was unwound"
    # The last blocks hold other rows than those of the short chain, so not exactly as many.
    assert many < 1.3 * few
