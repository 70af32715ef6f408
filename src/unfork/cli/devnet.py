"""Owns `unfork devnet`: the simulated chain alone, a node that forks, and fails on demand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from unfork.cli.context import Context, as_json, run, until_told
from unfork.config.load import Flag
from unfork.config.tree import FORK_LENGTHS, FORK_STYLES, Config
from unfork.devnet import faults
from unfork.devnet.faults import Faults

if TYPE_CHECKING:
    from unfork.devnet.live import Live

#: Turns of a seeded schedule of faults: ten thousand requests, then the node is well.
TURNS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """What the node is asked to do wrong."""

    #: Faults that are switched on from the first request.
    named: tuple[str, ...]
    #: Seed of a schedule of faults, None for no schedule.
    seed: int | None
    #: Chance per occasion, None for what is usual.
    rate: float | None

    def faults(self, seed: int) -> Faults:
        """The faults themselves; `seed` is for those without a schedule of their own."""
        made = Faults(seed)
        if self.seed is not None and self.rate is None:
            made = faults.seeded(self.seed, turns=TURNS)
        elif self.seed is not None and self.rate is not None:
            made = faults.seeded(self.seed, turns=TURNS, rate=self.rate)
        for name in self.named:
            rate = 1.0 if self.rate is None else self.rate
            made.switch_on(replace(faults.NAMED[name], rate=rate))
        return made


@click.command()
@click.option(
    "--port", type=click.IntRange(0, 65_535), help="Port to listen on; 0 takes a free one."
)
@click.option("--seed", type=int, help="Same seed, same chain.")
@click.option("--block-time-ms", type=click.IntRange(0), help="Milliseconds between blocks.")
@click.option("--fork-rate", type=click.FloatRange(0, 1), help="Chance of a fork at each step.")
@click.option("--fork-depth-max", type=click.IntRange(1), help="Blocks a fork replaces at most.")
@click.option(
    "--fork-styles",
    type=click.Choice(FORK_STYLES),
    multiple=True,
    help="What forks do with transactions; may be repeated, all of them when left out.",
)
@click.option(
    "--fork-lengths",
    type=click.Choice(FORK_LENGTHS),
    multiple=True,
    help="How high the head is after a fork; may be repeated, all of them when left out.",
)
@click.option("--density", type=click.IntRange(0), help="Transactions in a block, on average.")
@click.option(
    "--finality-lag",
    type=click.IntRange(1),
    help="Blocks between the head and the finalized block.",
)
@click.option("--proven/--unproven", default=None, help="Whether hashes and roots are real ones.")
@click.option("--hostile/--tame", default=None, help="Whether awkward values are mixed in.")
@click.option(
    "--fault",
    "named",
    type=click.Choice(sorted(faults.NAMED)),
    multiple=True,
    metavar="NAME",
    help=f"Misbehave from the start; may be repeated: {', '.join(sorted(faults.NAMED))}.",
)
@click.option(
    "--fault-seed",
    type=int,
    metavar="N",
    help="Misbehave by a seeded schedule: another fault every 50 requests, 10,000 in all.",
)
@click.option(
    "--fault-rate",
    type=click.FloatRange(0, 1),
    help="Chance per occasion; 1 for a fault by name, 0.12 in a schedule when left out.",
)
@click.option("--blocks", type=click.IntRange(1), help="Grow no further than this block.")
@as_json
@click.pass_obj
def command(
    context: Context,
    /,
    blocks: int | None,
    named: tuple[str, ...],
    fault_seed: int | None,
    fault_rate: float | None,
    **settings: Any,
) -> None:
    """Serve a simulated chain that forks, over JSON-RPC, until told to stop.

    HTTP and WebSocket share a port of the loopback. With --blocks the chain stands still once it
    has grown that far, and is served on. Without --fault and --fault-seed it answers well.
    """
    flags = [
        Flag(
            path=("devnet", name),
            value=list(value) if isinstance(value, tuple) else value,
            flag="--" + name.replace("_", "-"),
        )
        for name, value in settings.items()
        if value is not None and value != ()
    ]
    config = context.load(flags)
    wrong = Wrong(named=named, seed=fault_seed, rate=fault_rate)
    run(lambda stopping: _serve(context, config, wrong, blocks, stopping))


async def _serve(
    context: Context, config: Config, wrong: Wrong, blocks: int | None, stopping: asyncio.Event
) -> None:
    from unfork.devnet.live import Live

    live = await Live.start(config.devnet, faults=wrong.faults(config.devnet.seed))
    try:
        document = {**_document(live), "faults": {"named": wrong.named, "seed": wrong.seed}}
        context.output.result(document, f"devnet at {live.server.url_http} (and ws://)")
        moving = asyncio.create_task(live.run(until_block=blocks))
        await until_told(stopping, moving)
    finally:
        await live.close()


def _document(live: Live) -> dict[str, Any]:
    return {
        "http": live.server.url_http,
        "ws": live.server.url_ws,
        "chain_id": live.tree.knobs.chain_id,
        "seed": live.tree.knobs.seed,
    }
