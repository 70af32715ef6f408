"""Proves that log filters select exactly what their definition says, by range and by hash.

Method: random logs over few addresses and topics, so that filters hit often, and random filters in
every notation a client may use; the answer is compared with a filter written as the definition
reads, over the rendered logs instead of the values.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.devnet.asking import ask
from tests.unit.devnet.handmade import HandmadeChain, block, executed, topic, transaction
from unfork.devnet import render
from unfork.devnet.render import data
from unfork.devnet.rpc import Rpc
from unfork.proof.receipt import Log

ADDRESSES = [bytes([number]) * 20 for number in range(3)]
TOPICS = [topic(number) for number in range(3)]

addresses = st.sampled_from(ADDRESSES)
topics = st.sampled_from(TOPICS)
logs = st.builds(
    Log,
    address=addresses,
    topics=st.lists(topics, max_size=4).map(tuple),
    data=st.binary(max_size=3),
)
transactions = st.lists(st.lists(logs, max_size=3), max_size=3)
chains = st.lists(transactions, min_size=1, max_size=4)

address_filters = st.one_of(
    st.none(), addresses.map(data), st.lists(addresses.map(data), max_size=2)
)
positions = st.one_of(
    st.none(), topics.map(data), st.lists(st.one_of(st.none(), topics.map(data)), max_size=2)
)
topic_filters = st.one_of(st.none(), st.lists(positions, max_size=4))


@settings(max_examples=200, deadline=None)
@given(chains, address_filters, topic_filters, st.data())
def test_a_filter_selects_what_brute_force_selects(
    content: list[list[list[Log]]], address: Any, wanted: Any, draw: st.DataObject
) -> None:
    chain = _chain(content)
    rpc = Rpc(chain)
    first = draw.draw(st.integers(0, chain.head.number))
    last = draw.draw(st.integers(first, chain.head.number + 2))
    criteria = {"address": address, "topics": wanted}

    ranged = ask(rpc, "eth_getLogs", criteria | {"fromBlock": hex(first), "toBlock": hex(last)})
    hashed = ask(rpc, "eth_getLogs", criteria | {"blockHash": data(chain.path[first].hash)})

    every = [log for held in chain.path[first : last + 1] for log in render.logs(held)]
    assert ranged == [log for log in every if _passes(log, address, wanted)]
    own = render.logs(chain.path[first])
    assert hashed == [log for log in own if _passes(log, address, wanted)]


def _chain(content: list[list[list[Log]]]) -> HandmadeChain:
    path = [block(None)]
    for number, held in enumerate(content):
        path.append(
            block(
                path[-1],
                *(
                    executed(transaction(2, nonce=1000 * number + index), *own)
                    for index, own in enumerate(held)
                ),
            )
        )
    return HandmadeChain(*path)


def _passes(log: dict[str, Any], address: Any, wanted: Any) -> bool:
    """The definition: an address among those asked for, and each position open or among its own."""
    asked = [] if address is None else [address] if isinstance(address, str) else address
    if asked and log["address"] not in asked:
        return False
    for position, value in enumerate(wanted or []):
        if position >= len(log["topics"]):
            return False
        values = value if isinstance(value, list) else [value]
        if values and None not in values and log["topics"][position] not in values:
            return False
    return True
