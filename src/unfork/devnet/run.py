"""Owns the life of a devnet: a tree that moves at its own pace, served and announced.

One step moves the tree and tells its clients; the loop around it keeps the beat, so that a slow
step is not followed by a longer pause.
"""

from __future__ import annotations

from collections.abc import Callable

from unfork.clock import Clock
from unfork.devnet.server import Server
from unfork.devnet.tree import Movement, Tree


def step(tree: Tree, server: Server) -> Movement:
    """One movement of the head, announced."""
    movement = tree.advance()
    server.announce(movement)
    return movement


async def run(
    tree: Tree,
    server: Server,
    *,
    block_time_ms: int,
    until_block: int | None = None,
    clock: Clock | None = None,
    moving: Callable[[], None] | None = None,
    moved: Callable[[Movement], None] | None = None,
) -> None:
    """Moves until the head has reached a block, or for ever; cancel it to stop.

    `moving` is called before every movement, `moved` hears of it after the clients have.
    """
    clock = clock or Clock()
    pause_s = block_time_ms / 1000
    due = clock.now() + pause_s
    while until_block is None or tree.head.number < until_block:
        await clock.sleep(max(0.0, due - clock.now()))
        if moving is not None:
            moving()
        movement = step(tree, server)
        if moved is not None:
            moved(movement)
        # A beat that was missed is not made up for: clients would get a burst instead of a chain.
        due = max(due + pause_s, clock.now())
