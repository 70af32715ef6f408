"""Owns `unfork reset`: forgets one chain, after showing what that means and asking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from unfork import wiring
from unfork.app import reset as app_reset
from unfork.app import schema as app_schema
from unfork.cli import output, tools
from unfork.cli.context import (
    Context,
    as_json,
    database_option,
    finish,
    flags_for,
    one_chain,
    yes_option,
)
from unfork.cli.simulated import is_simulated, place
from unfork.config.tree import Chain, Config
from unfork.hot import reset

#: Seconds to wait for a follower that is just ending.
WRITER_WAIT_S = 5.0


@click.command()
@click.option("--chain", required=True, metavar="NAME", help="The chain to forget.")
@database_option
@yes_option
@as_json
@click.pass_obj
def command(context: Context, chain: str, db: str | None, yes: bool) -> int | None:
    """Drop and recreate the two schemas of one chain; shows what will be lost, then asks.

    The chain's payloads go with them. Stop the follower first.
    """
    config = context.load(flags_for(chain, db))
    known = one_chain(config, chain)
    with tools.databases(config) as where:
        plan = _document(finish(_preview(config, where, known)), known)
        context.output.note(_text(plan))
        if not yes and not context.output.confirm("Drop and recreate them?"):
            context.output.result({**plan, "done": False}, "nothing was changed")
            return 1
        finish(_reset(config, where, known))
    if is_simulated(known):
        Path(place(config)).unlink(missing_ok=True)
    context.output.result({**plan, "done": True}, f"chain {chain} is empty")
    return None


async def _preview(config: Config, where: wiring.Urls, chain: Chain) -> reset.Loss:
    async with wiring.database(config, where.raw) as pool:
        return await reset.preview(chain.name, pool)


def _document(loss: reset.Loss, chain: Chain) -> dict[str, Any]:
    return {
        "chain": chain.name,
        "schemas": [loss.schema, app_schema.name(chain.name)],
        "first": loss.state and loss.state.first,
        "position": loss.state and loss.state.position,
        "bytes": loss.bytes,
    }


def _text(plan: dict[str, Any]) -> str:
    text = f"schemas {' and '.join(plan['schemas'])} go with everything in them"
    if plan["position"] is not None:
        text += f": blocks {plan['first']}..{plan['position'].number}, {output.size(plan['bytes'])}"
    return f"{text}; so do the chain's payloads"


async def _reset(config: Config, where: wiring.Urls, chain: Chain) -> None:
    """Raw first, since its writer lock says whether a follower runs; safe to repeat."""
    async with wiring.database(config, where.raw) as pool:
        store = wiring.payloads(config, chain)
        await reset.reset(chain.name, pool, store, lock_wait_s=WRITER_WAIT_S)
    async with wiring.database(config, where.app) as pool:
        await app_reset.reset(chain.name, pool)
