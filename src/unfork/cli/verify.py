"""Owns `unfork verify`: proves stored blocks from their own rows. Its JSON is stable."""

from __future__ import annotations

from collections.abc import Sequence

import click

from unfork import wiring
from unfork.chain.span import Span
from unfork.cli import progress, tools
from unfork.cli.context import (
    Context,
    as_json,
    chain_option,
    database_option,
    finish,
    flags_for,
    refuse_unknown_jobs,
)
from unfork.config.branch import NUMBER_MAX
from unfork.config.tree import Chain, Config
from unfork.database.database import Database
from unfork.errors import Misconfigured
from unfork.hot import overview, owner, schema
from unfork.verify import blocks
from unfork.verify.report import Report


@click.command()
@chain_option
@database_option
@click.option("--from", "first", type=click.IntRange(0), metavar="N", help="The first block.")
@click.option("--to", "last", type=click.IntRange(0), metavar="N", help="The last block.")
@click.option("--lake", "with_lake", is_flag=True, help="Verify the lake instead, with Spark.")
@as_json
@click.pass_obj
def command(
    context: Context,
    chain: str | None,
    db: str | None,
    first: int | None,
    last: int | None,
    with_lake: bool,
) -> int:
    """Prove stored blocks: header hash, roots, bloom, parent links, lookups, payloads.

    With --lake: files, rows, links and blocks of cold storage, and that the hot tables agree.

    Changes nothing and may run beside the follower. Exits with 1 when something fails its proof;
    what a node did not give, and every column that no block commits to, is named as not proven.
    """
    if first is not None and last is not None and first > last:
        raise click.UsageError("--from must not exceed --to")
    if with_lake:
        return _verify_lake(context, chain, db, first, last)
    config = context.load(flags_for(chain, db))
    chains = [known for known in config.chains if chain in (None, known.name)]
    with tools.databases(config) as where:

        async def work() -> list[Report]:
            if chain is None:
                await tools.require_any(config, where)
            return [await verified(config, where, known, first, last) for known in chains]

        reports = finish(work())
    is_ok = all(report.ok for report in reports)
    context.output.result(
        {"ok": is_ok, "chains": [report.document() for report in reports]},
        *(line for report in reports for line in report.lines()),
        verdict(reports),
    )
    return 0 if is_ok else 1


def _verify_lake(
    context: Context, chain: str | None, db: str | None, first: int | None, last: int | None
) -> int:
    # Spark is large: whoever proves the hot tables alone never loads it.
    from unfork.cli import verifying

    loaded = context.loaded(flags_for(chain, db))
    refuse_unknown_jobs(loaded)
    chains = [known for known in loaded.config.chains if chain in (None, known.name)]
    span = None
    if first is not None or last is not None:
        span = Span(0 if first is None else first, NUMBER_MAX if last is None else last)
    with tools.databases(loaded.config) as where:
        if chain is None:
            finish(tools.require_any(loaded.config, where))
        found = finish(verifying.lakes(loaded, where, chains, span))
    is_ok = all(one.ok for one in found)
    context.output.result(
        {"ok": is_ok, "chains": [one.document() for one in found]},
        *(line for one in found for line in one.lines()),
        "nothing is wrong with the lake" if is_ok else "damage was found",
    )
    return 0 if is_ok else 1


def verdict(reports: Sequence[Report]) -> str:
    """What the reports say, in one sentence."""
    if not all(report.ok for report in reports):
        return "damage was found"
    if all(report.proven for report in reports):
        if any(report.unproven_columns for report in reports):
            return "every stored block is proven, but for columns that no block commits to (above)"
        return "every stored block is proven"
    return "nothing contradicts the stored blocks; what could not be proven stands above"


async def verified(
    config: Config,
    where: wiring.Urls,
    chain: Chain,
    first: int | None = None,
    last: int | None = None,
) -> Report:
    """The report on one chain, or on the part of it from one block to another."""
    async with wiring.database(config, where.raw) as pool:
        store = wiring.payloads(config, chain)
        async with pool.session() as session:
            await schema.migrations(chain.name).require(session)
            await owner.require(session, schema.bound(chain.name), store)
        span = None
        if first is not None or last is not None:
            span = await _held(pool, chain, first, last)
        with progress.bar(f"verifying {chain.name}") as show:
            return await blocks.verify(
                pool,
                chain.name,
                payloads=store,
                span=span,
                progress=lambda made: show(made.done, made.total),
            )


async def _held(pool: Database, chain: Chain, first: int | None, last: int | None) -> Span | None:
    """The blocks asked for, with the ends that were left open where the chain ends."""
    found = await overview.read(pool, chain)
    if found is None or found.state.position is None or found.state.first is None:
        return None
    first = found.state.first if first is None else first
    last = found.state.position.number if last is None else last
    if first > last:
        raise Misconfigured(f"{chain.name} holds blocks {found.state.first}..{last}, none of them")
    return Span(first, last)
