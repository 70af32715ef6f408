"""Goal: a chain that geth made is proven from the rows the store holds of it.

Method: geth's own answers through the source's decoder into Postgres, then `verify`. Receipts were
recorded for blocks 1 and 54 only: what the others lack must be unproven, or missed.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from tests import recorded
from tests.places import Place
from unfork.chain.block import BlockRef, Head
from unfork.chain.span import Span
from unfork.datasets.batch import Batch
from unfork.datasets.scope import Scope
from unfork.proof.finding import Check
from unfork.sources import answers, decode
from unfork.sources.decode import Whole
from unfork.verify import blocks

pytestmark = pytest.mark.postgres


async def test_every_stored_block_of_the_geth_chain_is_proven(any_place: Place) -> None:
    chain = json.loads((recorded.folder() / "geth-chain.json").read_bytes())
    told = [chain["blocks"][name] for name in chain["canonical"]]
    wholes = [
        Whole(
            block=msgspec.convert(answer, answers.Block),
            receipts=msgspec.convert(answer["receipts"], list[answers.Receipt])
            if answer.get("receipts") is not None
            else None,
        )
        for answer in told
    ]
    refs = tuple(BlockRef(at, bytes.fromhex(answer["hash"][2:])) for at, answer in enumerate(told))
    store = any_place.store()
    await store.open()
    await store.claim(chain_id=1, start=0)
    for first, last in ((0, 0), (1, 1), (2, 53), (54, 54)):
        await store.commit(
            Batch(
                parent=refs[first - 1] if first else None,
                refs=refs[first : last + 1],
                tables=decode.tables(wholes[first : last + 1], Scope()),
                head=Head(latest=refs[-1], finalized=None),
            )
        )
    report = await blocks.verify(
        any_place.database(), any_place.name, payloads=any_place.payloads()
    )
    assert (report.blocks, report.span, report.problems) == (55, Span(0, 54), ())
    for check in (
        *(Check.CONTIGUITY, Check.PARENT_LINK, Check.HEADER_HASH, Check.PLACEMENT),
        *(Check.TRANSACTION_COUNT, Check.TRANSACTION_HASHES, Check.TRANSACTIONS_ROOT),
        *(Check.WITHDRAWALS_ROOT, Check.LOOKUPS, Check.PAYLOADS, Check.TRANSACTION_FIELDS),
    ):
        assert report.checks[check].proven == 55, (check, report.lines())
    # Blocks 0 (empty), 1 and 54 have receipts; of the others none was recorded.
    counts = report.checks[Check.RECEIPTS_ROOT]
    assert (counts.proven, counts.failed, counts.unproven) == (3, 0, 52)
    # Logs that were never stored are missed by the bloom, in exactly the blocks that had some.
    silent = "0x" + "00" * 256
    lost = [
        at
        for at, answer in enumerate(told)
        if answer["logsBloom"] != silent and answer.get("receipts") is None
    ]
    assert [damage.ref.number for damage in report.damaged] == lost
    checks = {finding.check for damage in report.damaged for finding in damage.findings}
    assert checks == {Check.LOGS_BLOOM}
