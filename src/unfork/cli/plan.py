"""Owns `unfork plan`: what would be computed next, where and why. Its JSON is stable."""

from __future__ import annotations

from typing import Any

import click

from unfork.cli import looking, tools
from unfork.cli.context import (
    Context,
    as_json,
    chain_option,
    database_option,
    finish,
    flags_for,
    one_chain,
)
from unfork.cli.looking import Look
from unfork.jobs import explain

#: Runs of the head that are shown one by one; the rest is counted.
SHOWN_MAX = 40


@click.command()
@chain_option
@database_option
@as_json
@click.pass_obj
def command(context: Context, chain: str | None, db: str | None) -> None:
    """Show the runs that are due, with the reason and the rows expected; changes nothing.

    A job without a run says why it has none. What a correction may set in motion further down is
    listed at most: a job whose rows come out equal ends it.
    """
    loaded = context.loaded(flags_for(chain, db))
    jobs = looking.read_jobs(loaded)
    known = one_chain(loaded.config, chain)
    with tools.databases(loaded.config) as where:
        found = finish(looking.look(loaded.config, jobs, where, known))
    context.output.result(document(found), *lines(found))


def document(found: Look) -> dict[str, Any]:
    """The plan as plain values; every key is always there."""
    state = found.surveyed.state
    follows = explain.follows(found.plan, found.catalog.lineage, state)
    return {
        "chain": found.chain.name,
        "position": found.position,
        "applied": state.head,
        "floor": state.floor,
        **explain.document(found.plan, follows),
    }


def lines(found: Look) -> list[str]:
    """The plan as a person reads it."""
    state = found.surveyed.state
    follows = explain.follows(found.plan, found.catalog.lineage, state)
    told = list(explain.lines(found.plan, follows))
    if len(told) > SHOWN_MAX:
        told = [*told[:SHOWN_MAX], f"and {len(told) - SHOWN_MAX:,} lines more; --json has them all"]
    if found.position != state.head:
        at = "none" if state.head is None else f"up to {state.head}"
        told.append(
            f"blocks of {found.chain.name} are applied {at}, the raw store holds "
            f"{found.position}; a worker applies the others first"
        )
    return told
