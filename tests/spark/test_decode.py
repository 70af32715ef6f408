"""Goal: decoded events are what the chain's logs say, through forks, and what is malformed is told.

Method: the whole engine over a devnet of awkward values; each dataset is compared with eth-abi and
plain Python over the whole chain (tests/decoding.py), each log that does not decode with an entry
of indexing_errors.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from eth_abi.abi import encode
from pyspark.sql import SparkSession

from tests import decoding
from tests.decoding import argument, event
from tests.engines import Engine, engine
from tests.spark.test_transforms import frame, log
from tests.sparks import Chain
from unfork.app import invalidations
from unfork.app import schema as app_schema
from unfork.chain.span import Span
from unfork.devnet import contracts, pools
from unfork.devnet.contracts import Standard
from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.jobs.decode import abi
from unfork.jobs.transforms import decode

EXAMPLES = Path(__file__).parents[2] / "examples"
#: What a test has of its own.
MINE = shutil.ignore_patterns("unfork.yaml", "tests")

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


def example(name: str) -> dict[str, Any]:
    """The configuration of an example, every value as text: addresses are no numbers."""
    text = (EXAMPLES / name / "unfork.yaml").read_text()
    loaded: dict[str, Any] = yaml.load(text, Loader=yaml.BaseLoader)
    return loaded


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


ADDED = event("FactoryAdded", argument("factory", "address", indexed=True))
CREATED = event(
    "PoolCreated",
    argument("by", "address", indexed=True),
    argument("pool", "address"),
    argument("number", "uint256"),
)
SWAPPED = event(
    "Swapped",
    argument("sender", "address", indexed=True),
    argument("amount0", "int256"),
    argument("amount1", "int256"),
    argument("price", "uint160"),
    argument("tick", "int24"),
    argument("exact", "bool"),
)
DESCRIBED = event(
    "Described",
    argument("by", "address", indexed=True),
    argument("label", "string", indexed=True),
    argument("title", "string"),
    argument("tags", "bytes32[]"),
    argument("notes", "tuple[]", argument("id", "uint256"), argument("text", "string")),
    argument("payload", "bytes"),
)
PING = event(
    "Ping", argument("n", "uint64", indexed=True), argument("who", "address"), anonymous=True
)


def announced(
    made: Engine, entry: dict[str, Any], name: str, addresses: Sequence[Any]
) -> list[tuple[int, bytes]]:
    """What an event announced, and from which block on; only by whom counted then himself."""
    found = []
    for row in decoding.expected(
        entry, made.blocks, names=[each["name"] for each in entry["inputs"]]
    ).rows:
        number = row["block_number"]
        if any(address == row["address"] and first <= number for first, address in addresses):
            found.append((number, row[name]))
    return found


async def check_pools(made: Engine) -> decoding.Expected:
    """Every dataset of pools; what the second one refused and holds."""
    registry = [(0, pools.REGISTRY)]
    factories = announced(made, ADDED, "factory", registry)
    known = announced(made, CREATED, "pool", factories)
    await check(made, "pool_factory_added", ADDED, ("factory",), announced=registry)
    names: tuple[str, ...] = ("by", "pool", "number")
    await check(made, "pool_pool_created", CREATED, names, announced=factories)
    names = ("sender", "amount0", "amount1", "price", "tick", "exact")
    await check(made, "pool_swapped", SWAPPED, names, announced=known)
    await check(made, "pool_ping", PING, ("n", "who"), announced=known)
    calls = [
        {
            "block_number": block.number,
            "block_hash": block.hash,
            "transaction_index": index,
            "from_address": executed.sender,
            "pool": executed.transaction.to,
        }
        for block in made.blocks
        for index, executed in enumerate(block.transactions)
        if any(a == executed.transaction.to and first <= block.number for first, a in known)
    ]
    assert await made.rows("pool_calls", "block_number, transaction_index") == calls != []
    names = ("by", "label_hash", "title", "tags", "notes", "payload")
    return await check(made, "pool_described", DESCRIBED, names, announced=known)


async def test_what_a_factory_of_factories_announced_is_exact_through_forks_and_corrections(
    chain: Chain,
) -> None:
    shutil.copytree(EXAMPLES / "02_factory", chain.file.parent, dirs_exist_ok=True, ignore=MINE)
    document = example("02_factory")
    # Runs at the head are read by the driver, the first one by tasks.
    config = {key: document[key] for key in ("jobs", "decode")}
    config["planning"] = {"live_blocks_max": 8}
    knobs = Knobs(seed=7, density=5, hostile=True, pools=3, finality_lag=20, block_time_s=7200)
    async with engine(chain, knobs, config=config) as made:
        await made.grow(26)
        await made.settle()
        first = await check_pools(made)
        assert first.rows and first.refused, "the devnet has both"
        for style, depth, length in ((Style.DROPPED, 7, 5), (Style.REPLACED, 4, 6)):
            await made.fork(depth=depth, length=length, style=style)
            await made.settle()
            await check_pools(made)
        await mend_an_announcement(made)
        await check_pools(made)
        told = await entries(made)
        await again(made, "pool_described")
        await made.settle()
        await check_pools(made)
        assert await entries(made) == told, "computing twice tells nothing twice"


async def mend_an_announcement(made: Engine) -> None:
    """Rows of a lookup are lost, others are computed without them, and then they come back."""
    whole = await made.rows("pool_swapped", "block_number, log_index")
    (build,) = await made.chain.place.app_rows(
        "SELECT table_name FROM {app}.generations WHERE dataset = 'pool_pool_created'"
    )
    table = build["table_name"]
    await made.chain.place.app_rows(f'DELETE FROM {{app}}."{table}" WHERE block_number < 14')
    await again(made, "pool_swapped")
    await made.settle()
    assert len(await made.rows("pool_swapped", "block_number, log_index")) < len(whole)
    await again(made, "pool_pool_created")
    await made.settle()
    assert await made.rows("pool_swapped", "block_number, log_index") == whole


async def again(made: Engine, dataset: str) -> None:
    """Has all blocks of a dataset done again, as a person asks for it."""
    place = made.chain.place
    (build,) = await place.app_rows(
        "SELECT id FROM {app}.generations WHERE dataset = %(dataset)s AND state = 'served'",
        dataset=dataset,
    )
    every = Span(0, made.tree.head.number)
    async with place.app_database().session() as session, session.transaction():
        await invalidations.record(
            session,
            app_schema.bound(place.name),
            dataset=dataset,
            span=every,
            outdated=[(build["id"], every)],
            reason="manual",
            event={},
        )


async def entries(made: Engine) -> list[dict[str, Any]]:
    """Everything that was ever told, without when."""
    return await made.chain.place.app_rows(
        "SELECT id, worker_name, block_number, transaction_id, message, raw_data, occurrences,"
        " resolved FROM {app}.indexing_errors ORDER BY id"
    )


async def test_the_example_decodes_a_chain_and_a_job_reads_what_was_decoded(chain: Chain) -> None:
    shutil.copytree(EXAMPLES / "01_decode", chain.file.parent, dirs_exist_ok=True, ignore=MINE)
    document = example("01_decode")
    knobs = Knobs(density=6, hostile=True, pools=int(document.pop("devnet")["pools"]))
    async with engine(chain, knobs, config=document) as made:
        await made.grow(20)
        await made.settle()
        names = ("sender", "amount0", "amount1", "price", "tick", "exact")
        swapped = await check(made, "pool_swapped", SWAPPED, names)
        assert swapped.refused, "any contract is decoded, and some log what is no event"
        large = [row["amount0"] for row in swapped.rows if row["amount0"] >= 2**200]
        held = await made.rows("large_swaps", "block_number, log_index")
        assert [row["amount0"] for row in held] == large != []


@pytest.mark.everywhere
def test_every_type_of_value_and_malformed_data_pass_through_any_spark(
    spark: SparkSession,
) -> None:
    types = [decoding.readable(one) for one in DESCRIBED["inputs"] if not one.get("indexed")]
    good = encode(types, [b"nul\0", [b"\1" * 32], [(2**256 - 1, b"\xff")], b"\x00\xff"])
    topics = (decoding.topic(DESCRIBED), bytes(12) + b"\xaa" * 20, b"\x09" * 32)
    dirty = (topics[0], b"\1" + topics[1][1:], topics[2])
    logs = [
        log(index, topics=held, data=data)
        for index, (held, data) in enumerate(
            [(topics, good), (topics, good[:-1]), (dirty, good), (topics[:2], good), (topics, b"")]
        )
    ]
    swap = [-(2**255), 2**255 - 1, 2**160 - 1, -(2**23), True]
    words = [one["type"] for one in SWAPPED["inputs"][1:]]
    known = (decoding.topic(SWAPPED), topics[1])
    logs.append(log(9, topics=known, data=encode(words, swap)))
    held = frame(spark, "logs", logs)
    rows = decode.events(held, config={"event": abi.event(DESCRIBED).document}).toArrow()
    assert rows.column("log_index").to_pylist() == [0, 1, 2, 4]
    told = rows.column("indexing_error").to_pylist()
    assert told[0] is None and all(told[1:])
    first = rows.to_pylist()[0]
    assert (first["title"], first["payload"]) == ("nul\\x00", b"\x00\xff")
    assert json.loads(first["notes"]) == [{"id": str(2**256 - 1), "text": "\\xff"}]
    (row,) = (
        decode.events(held, config={"event": abi.event(SWAPPED).document}).toArrow().to_pylist()
    )
    numbers = [int.from_bytes(row[name], "big", signed=True) for name in ("amount0", "amount1")]
    assert [*numbers, int.from_bytes(row["price"], "big"), row["tick"], row["exact"]] == swap


def created(made: Engine) -> dict[bytes | None, Standard]:
    """What was created on the chain, by address."""
    return {
        executed.contract_address: contracts.created_by(
            executed.transaction.input, executed.contract_address
        ).standard
        for block in made.blocks
        for executed in block.transactions
        if executed.contract_address
    }


async def test_tokens_that_share_a_topic_are_told_apart_also_where_a_fork_puts_one_for_the_other(
    chain: Chain,
) -> None:
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
            before = created(made)
            await made.fork(depth=depth, length=length, style=style)
            await made.settle()
            is_other = any(before.get(a, one) is not one for a, one in created(made).items())
            assert is_other or style is not Style.REDEPLOYED
            fungible = await check(made, "erc20_transfer", ERC20, ("from_", "to_", "value"))
            unique = await check(made, "erc721_transfer", ERC721, ("from_", "to_", "token_id"))
            places = [{(r["block_number"], r["log_index"]) for r in fungible.rows}]
            places += [{(r["block_number"], r["log_index"]) for r in unique.rows}]
            assert all(places) and places[0].isdisjoint(places[1])
            names = ("operator", "from_", "to_", "ids", "values")
            assert (await check(made, "rest_transfer_batch", BATCH, names)).rows
            assert (await check(made, "rest_note", NOTE, ("text",))).rows
