"""Owns a devnet in time: it takes one step per block time, announces it, and remembers its place.

A tree is a pure function of its knobs and the steps taken, so its place is a number. Kept in a
file, it lets the next process take the same steps and go on with the very same chain. The file is
written before a step is shown; if a crash of the machine loses the last writes, the same steps are
taken again and give the same blocks.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from unfork import errors
from unfork.config import tree as configuration
from unfork.config.tree import FORK_LENGTHS, FORK_STYLES
from unfork.devnet import run
from unfork.devnet.faults import Faults
from unfork.devnet.knobs import Knobs
from unfork.devnet.rpc import Rpc
from unfork.devnet.server import Server, serve
from unfork.devnet.tree import Movement, Tree

#: Steps taken between two pauses while a place is found again, so that signals are heard.
CATCH_UP_STEPS = 50
#: Blocks held in memory; older ones are built again when somebody asks.
KEEP_BLOCKS = 4096


@dataclass(slots=True, kw_only=True)
class Live:
    """A devnet that serves and moves."""

    tree: Tree
    server: Server
    #: Milliseconds between two steps.
    block_time_ms: int
    #: Where the place is kept, None where it is not.
    place: Path | None
    #: Steps taken since block 0.
    steps: int = 0
    #: Forks made by this process, by how many blocks they replaced.
    forks: Counter[int] = field(default_factory=Counter)

    @classmethod
    async def start(
        cls,
        config: configuration.Devnet,
        *,
        place: Path | None = None,
        host: str = "127.0.0.1",
        faults: Faults | None = None,
    ) -> Self:
        """A devnet at the place it had before, listening."""
        knobs = replace(Knobs.of(config), keep_blocks=KEEP_BLOCKS)
        tree = Tree(knobs)
        steps = 0
        if place is not None and place.exists():
            steps = await _taken_again(tree, place)
        try:
            server = await serve(Rpc(tree, faults), host=host, port=config.port)
        except OSError as error:
            raise errors.Misconfigured(
                f"the devnet cannot listen on port {config.port}: {error.strerror}; set "
                "devnet.port to another one (0 takes a free one)"
            ) from None
        return cls(
            tree=tree, server=server, block_time_ms=config.block_time_ms, place=place, steps=steps
        )

    async def run(self, *, until_block: int | None = None) -> None:
        """Moves at its pace until the head has reached a block, or for ever; cancel it to stop."""
        await run.run(
            self.tree,
            self.server,
            block_time_ms=self.block_time_ms,
            until_block=until_block,
            moving=self._moving,
            moved=self._moved,
        )

    def step(self) -> None:
        """Moves once and tells everyone."""
        self._moving()
        self._moved(run.step(self.tree, self.server))

    async def close(self) -> None:
        """Stops listening; safe to repeat."""
        await self.server.close()

    def _moving(self) -> None:
        """Writes the place that the next step leads to."""
        self.steps += 1
        if self.place is None:
            return
        self.place.parent.mkdir(parents=True, exist_ok=True)
        document = {
            "chain": _name(self.tree.knobs),
            "steps": self.steps,
            # Where the step starts from: shows whether taking the steps again led to this chain.
            "from": self.tree.head.hash.hex(),
        }
        # Written beside and renamed, so that a reader never meets half a file.
        beside = self.place.with_suffix(".new")
        beside.write_text(json.dumps(document))
        beside.replace(self.place)

    def _moved(self, movement: Movement) -> None:
        if movement.removed:
            self.forks[len(movement.removed)] += 1


async def _taken_again(tree: Tree, place: Path) -> int:
    """Takes the remembered steps; a place that does not belong to this very chain is refused."""
    try:
        document = json.loads(place.read_text())
        name, steps = str(document["chain"]), int(document["steps"])
        start = bytes.fromhex(document["from"])
    except (ValueError, KeyError, TypeError):
        raise errors.Misconfigured(f"{place} is damaged; {_ANEW}") from None
    if name != _name(tree.knobs):
        raise errors.Misconfigured(
            f"{place} belongs to a devnet with other settings than `devnet:` has now; {_ANEW}, "
            "or put the settings back"
        )
    for step in range(steps):
        if step == steps - 1 and tree.head.hash != start:
            raise errors.Misconfigured(
                f"{place} belongs to a devnet of another release, which made other blocks; {_ANEW}"
            )
        tree.advance()
        if step % CATCH_UP_STEPS == 0:
            await asyncio.sleep(0)
    return steps


_ANEW = "start anew with `unfork reset --chain devnet`"


def _name(knobs: Knobs) -> str:
    """Names everything that shapes the chain, forks included."""
    shaping: tuple[object, ...] = (
        knobs.content_key,
        knobs.fork_rate,
        knobs.fork_depth_max,
        knobs.finality_lag,
    )
    # Named only where they say something, so that places of older releases keep their names.
    styles, lengths = sorted(set(knobs.fork_styles)), sorted(set(knobs.fork_lengths))
    if (styles, lengths) != (sorted(FORK_STYLES), sorted(FORK_LENGTHS)):
        shaping += (styles, lengths)
    return hashlib.sha256(repr(shaping).encode()).hexdigest()[:16]
