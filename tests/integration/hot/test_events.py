"""Proves what DENORMALIZE_EVENTS puts into a transaction: a cut summary of its logs, or nothing.

Method: a devnet chain is committed with and without the switch, and each row's document is compared
with the logs that the oracle expects of the transaction.
"""

from __future__ import annotations

from tests import batches
from tests.places import Place
from unfork.devnet.knobs import Knobs
from unfork.devnet.tree import Tree
from unfork.hot import events
from unfork.testing import oracle

DOCUMENTS = "SELECT block_number, transaction_index, events FROM {raw}.transactions"


async def commit(place: Place, *, denormalize_events: bool) -> Tree:
    tree = Tree(Knobs(seed=3, density=6))
    tree.extend(12)
    store = place.store(denormalize_events=denormalize_events)
    await store.open()
    await store.claim(chain_id=1337, start=0)
    blocks = [block for n in range(13) if (block := tree.at(n)) is not None]
    await store.commit(batches.batch(*blocks))
    await store.unwind(batches.ref(blocks[9]))
    return tree


async def test_a_transaction_carries_a_cut_summary_of_its_logs_where_asked_for(
    place: Place,
) -> None:
    tree = await commit(place, denormalize_events=True)

    found = {(r["block_number"], r["transaction_index"]): r for r in await place.rows(DOCUMENTS)}
    logs: dict[tuple[int, int], list[oracle.Row]] = {key: [] for key in found}
    for log in oracle.canonical_rows(tree, 0, 9)["logs"]:
        logs[log["block_number"], log["transaction_index"]].append(log)
    assert any(len(some) > 1 for some in logs.values())
    for key, some in logs.items():
        document = found[key]["events"]
        assert (document is None) == (not some)
        if document is not None:
            assert document["count"] == len(some)
            assert [one["log_index"] for one in document["first"]] == [
                log["log_index"] for log in some[: events.LISTED_MAX]
            ]
            assert document["first"][0]["address"] == "0x" + some[0]["address"].hex()


async def test_a_transaction_carries_none_by_default(place: Place) -> None:
    await commit(place, denormalize_events=False)

    assert {row["events"] for row in await place.rows(DOCUMENTS)} == {None}
