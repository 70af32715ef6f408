"""Owns a devnet in a process of its own that does as it is told, line by line.

A benchmark wants blocks when it says so, and a node that shares no processor time, no event loop
and no garbage collector with what is measured. Orders come as JSON lines on standard input; each is
answered by one JSON line. Moments are those of the monotonic clock, which all processes of a
machine share.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from unfork.devnet.knobs import Knobs
from unfork.devnet.orders import Style
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import Server, serve
from unfork.devnet.tree import Movement, Tree

#: Blocks made before requests get a turn, so that growing does not hold answers up.
BLOCKS_A_TURN = 20


async def main() -> None:
    """Serves until standard input ends."""
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    knobs = Knobs(**json.loads(await orders.readline()))
    tree = Tree(knobs)
    server = await serve(Rpc(tree))
    _say({"http": server.url_http, "ws": server.url_ws})
    async for text in orders:
        order: dict[str, Any] = json.loads(text)
        match order.pop("do"):
            case "extend":
                _say(_announce(server, tree.extend(**order)))
            case "fork":
                _say(_announce(server, tree.fork(style=Style.MOVED, **order)))
            case "grow":
                _say(await _grow(server, tree, **order))
    await server.close()


def _announce(server: Server, movement: Movement) -> dict[str, Any]:
    """Tells subscribers; the moment is the one before the first of them hears of it."""
    at = time.monotonic()
    server.announce(movement)
    transactions = movement.head.transactions
    return {
        "at": at,
        "number": movement.head.number,
        "hash": movement.head.hash.hex(),
        "transactions": len(transactions),
        "logs": sum(len(each.logs) for each in transactions),
    }


async def _grow(server: Server, tree: Tree, *, to: int) -> dict[str, Any]:
    """Many blocks, announced as one: whoever follows is behind and has to catch up."""
    while tree.head.number < to:
        tree.extend(min(BLOCKS_A_TURN, to - tree.head.number))
        await asyncio.sleep(0)
    return _announce(server, Movement(removed=(), added=(tree.head,), head=tree.head))


def _say(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
