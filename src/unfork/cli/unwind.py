"""Owns `unfork unwind`: an operator's word, the only one that lowers a floor.

It shows what would be removed, asks, and then goes down in steps, each a transaction: interrupted,
it has gone part of the way, and the same command goes on from there. The rows go to the orphaned
tables like those of any fork.
"""

from __future__ import annotations

from typing import Any

import click

from unfork import wiring
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.cli import tools
from unfork.cli.context import (
    Context,
    as_json,
    chain_option,
    database_option,
    finish,
    flags_for,
    one_chain,
    yes_option,
)
from unfork.config.tree import Chain, Config
from unfork.errors import Misconfigured
from unfork.hot import overview
from unfork.hot.reader import HotReader
from unfork.hot.state import ChainState


@click.command()
@chain_option
@click.option(
    "--to",
    "number",
    type=click.IntRange(-1),
    required=True,
    metavar="N",
    help="The last block to keep; one below the first block held removes everything.",
)
@database_option
@yes_option
@as_json
@click.pass_obj
def command(
    context: Context, chain: str | None, number: int, db: str | None, yes: bool
) -> int | None:
    """Remove every block above N, also final ones; shows what it will do, then asks.

    Stop the follower first. Going below the floor starts a new epoch.
    """
    config = context.load(flags_for(chain, db))
    known = one_chain(config, chain)
    with tools.databases(config) as where:
        if chain is None:
            finish(tools.require_any(config, where))
        plan = finish(_plan(config, where, known, number))
        if plan["blocks"] == 0:
            context.output.result(
                {**plan, "done": False, "after": plan["position"]},
                "nothing stands above that block",
            )
            return None
        context.output.note(_text(plan))
        if not yes and not context.output.confirm("Remove them?"):
            context.output.result(
                {**plan, "done": False, "after": plan["position"]}, "nothing was changed"
            )
            return 1
        state = finish(_unwind(config, where, known, number))
    context.output.result(
        {**plan, "done": True, "after": state.position, "epoch": state.epoch},
        f"unwound; the position is {state.position or 'before the first block'}, "
        f"the epoch {state.epoch}",
    )
    return None


async def _plan(config: Config, where: wiring.Urls, chain: Chain, number: int) -> dict[str, Any]:
    async with wiring.database(config, where.raw) as pool:
        found = await overview.read(pool, chain)
        if found is None or found.state.position is None or found.state.first is None:
            raise Misconfigured(f"chain {chain.name} holds no block, so none can be removed")
        state, position = found.state, found.state.position
        if number < found.state.first - 1:
            raise Misconfigured(
                f"chain {chain.name} begins at block {state.first}; to remove everything, say "
                f"--to {found.state.first - 1}"
            )
        reader = HotReader(chain, pool, wiring.payloads(config, chain))
        rows = await reader.rows_above(number)
    floor = state.floor
    return {
        "chain": chain.name,
        "to": number,
        "position": position,
        "floor": floor,
        "blocks": rows["blocks"],
        "rows": rows,
        "below_floor": floor is not None and number < floor.number,
        "writer": found.writer is not None,
    }


def _text(plan: dict[str, Any]) -> Any:
    lines = [
        f"{plan['chain']}: {plan['blocks']:,} blocks go, {plan['to'] + 1}..{plan['position']}",
        *(f"  {count:>12,} rows of {table}" for table, count in plan["rows"].items()),
    ]
    if plan["below_floor"]:
        lines.append(f"  final blocks are among them: the floor is {plan['floor']}; a new epoch")
    if plan["writer"]:
        lines.append("  a follower is running: stop it first, or this will be refused")
    return "\n".join(lines)


async def _unwind(config: Config, where: wiring.Urls, chain: Chain, number: int) -> ChainState:
    async with wiring.store(config, where, chain) as store:
        state = await store.open()
        to: BlockRef | None = None
        if state.first is not None and number >= state.first:
            held = await store.refs(Span(number, number))
            if not held:
                raise Misconfigured(f"chain {chain.name} does not hold block {number}")
            to = held[0]
        return await store.unwind(to, operator=True)
