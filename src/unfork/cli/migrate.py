"""Owns `unfork migrate`: the step that changes schemas, taken by a person and never by a start."""

from __future__ import annotations

import click

from unfork import wiring
from unfork.cli.context import (
    Context,
    as_json,
    chain_option,
    database_option,
    finish,
    flags_for,
)


@click.command()
@chain_option
@database_option
@as_json
@click.pass_obj
def command(context: Context, chain: str | None, db: str | None) -> None:
    """Apply the migrations that are pending, to one chain or to all.

    Safe to repeat, and safe while others read.
    """
    config = context.load(flags_for(chain, db))
    chains = [known for known in config.chains if chain in (None, known.name)]
    with wiring.urls(config) as where:

        async def work() -> dict[str, list[str]]:
            return {known.name: await wiring.migrate(config, where, known) for known in chains}

        done = finish(work())
    lines = [f"{name}: {', '.join(files) or 'up to date'}" for name, files in done.items()]
    context.output.result({"chains": done}, *lines)
