"""Goal: decoded events are what the chain's logs say, through forks, and what is malformed is told.

Method: the whole engine over a devnet of awkward values; each dataset is compared with eth-abi and
plain Python over the whole chain (tests/decoding.py), each log that does not decode with an entry
of indexing_errors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests import decoding
from tests.decoding import argument, event
from tests.engines import Engine, engine
from tests.sparks import Chain
from unfork.devnet.orders import Style

ERC20 = event(
    "Transfer",
    argument("from", "address", indexed=True),
    argument("to", "address", indexed=True),
    argument("value", "uint256"),
)
ERC721 = event(
    "Transfer",
    argument("from", "address", indexed=True),
    argument("to", "address", indexed=True),
    argument("tokenId", "uint256", indexed=True),
)
BATCH = event(
    "TransferBatch",
    argument("operator", "address", indexed=True),
    argument("from", "address", indexed=True),
    argument("to", "address", indexed=True),
    argument("ids", "uint256[]"),
    argument("values", "uint256[]"),
)
NOTE = event("Note", argument("text", "string"))


def written(made: Chain, name: str, *events: dict[str, Any]) -> str:
    """An ABI file in the project's folder."""
    (made.file.parent / name).write_text(json.dumps(events))
    return name


async def check(
    made: Engine, dataset: str, entry: dict[str, Any], names: Sequence[str], **how: Any
) -> decoding.Expected:
    """Compares a dataset, and what is told of its job, with the chain."""
    wanted = decoding.expected(entry, made.blocks, names=names, **how)
    assert await made.rows(dataset, "block_number, log_index") == wanted.rows
    assert await refused(made, dataset) == wanted.refused
    return wanted


async def refused(made: Engine, job: str) -> list[tuple[int, int]]:
    """Block number and log index of what is told of a job."""
    rows = await made.chain.place.app_rows(
        "SELECT * FROM {app}.indexing_errors WHERE NOT resolved AND worker_name = %(job)s",
        job=job,
    )
    assert all(row["severity"] == "WARN" for row in rows)
    return sorted((row["block_number"], int(row["message"].split()[1])) for row in rows)


async def test_events_of_a_hostile_chain_are_decoded_through_forks(chain: Chain) -> None:
    tokens = written(chain, "erc20.json", ERC20)
    nfts = written(chain, "erc721.json", ERC721)
    rest = written(chain, "rest.json", BATCH, NOTE)
    config = {
        "jobs": [],
        "decode": [
            {"name": "erc20", "abi": tokens},
            {"name": "erc721", "abi": nfts, "addresses": "any"},
            {"name": "rest", "abi": rest},
        ],
    }
    async with engine(chain, config=config) as made:
        await made.grow(14)
        await made.settle()
        for style, depth, length in (
            (Style.REDEPLOYED, 6, 8),
            (Style.REPLACED, 3, 2),
            (Style.MOVED, 5, 6),
        ):
            await made.fork(depth=depth, length=length, style=style)
            await made.settle()
            fungible = await check(made, "erc20_transfer", ERC20, ("from_", "to_", "value"))
            unique = await check(made, "erc721_transfer", ERC721, ("from_", "to_", "token_id"))
            assert fungible.rows and unique.rows
            names = ("operator", "from_", "to_", "ids", "values")
            assert (await check(made, "rest_transfer_batch", BATCH, names)).rows
            assert (await check(made, "rest_note", NOTE, ("text",))).rows
