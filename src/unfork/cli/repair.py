"""Owns `unfork repair`: what does not fit beside the raw tables, reported, and mended when told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import click

from unfork import wiring
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
from unfork.hot import owner, schema
from unfork.hot.repair import Finding, Kind

#: Findings that are shown one by one; the rest is counted.
SHOWN_MAX = 20

MEANINGS: dict[Kind, str] = {
    "lookup_missing": "rows that no lookup finds; written again from the rows",
    "lookup_dangling": "lookup rows that find nothing; removed",
    "payload_missing": "payloads that are gone or damaged; fetched again from source.urls where "
    "that has the same values, else unwind below the block",
    "payload_unrecorded": "payloads in use without a record; recorded where they are sound",
    "payload_unused": "payloads that no row refers to any more; swept",
    "blob_stray": "blobs that a crash left behind; removed",
}


@click.command()
@chain_option
@database_option
@click.option("--mend", is_flag=True, help="Put right what can be; shows it first, then asks.")
@yes_option
@as_json
@click.pass_obj
def command(
    context: Context, chain: str | None, db: str | None, mend: bool, yes: bool
) -> int | None:
    """Compare lookups and payloads with the rows they belong to, and mend them when told.

    Works in bounded steps and may run beside the follower. A payload that is gone is fetched again
    where the chain has source.urls. Exits with 1 while something is left
    that does not fit; payloads waiting to be swept do not count.
    """
    config = context.load(flags_for(chain, db))
    known = one_chain(config, chain)
    with tools.databases(config) as where:
        if chain is None:
            finish(tools.require_any(config, where))
        found = finish(_repair(config, where, known, mend=False))
        if mend and found:
            context.output.note("\n".join(_lines(found)))
            if not yes and not context.output.confirm("Mend what can be mended?"):
                context.output.result(_document(known, found), "nothing was changed")
                return 1
            found = finish(_repair(config, where, known, mend=True))
    context.output.result(_document(known, found), *_lines(found))
    return 1 if any(_is_damage(finding) for finding in found) else 0


async def _repair(config: Config, where: wiring.Urls, chain: Chain, *, mend: bool) -> list[Finding]:
    async with wiring.database(config, where.raw) as pool:
        store = wiring.payloads(config, chain)
        async with pool.session() as session:
            await schema.migrations(chain.name).require(session)
            await owner.require(session, schema.bound(chain.name), store)
        async with wiring.repair(config, pool, chain) as repair:
            return [finding async for finding in repair.run(mend=mend)]


def _is_damage(finding: Finding) -> bool:
    """Whether something is wrong still; what merely waits to be swept is not."""
    return not finding.is_mended and finding.kind not in ("payload_unused", "blob_stray")


def _document(chain: Chain, found: Iterable[Finding]) -> dict[str, Any]:
    found = list(found)
    return {
        "chain": chain.name,
        "ok": not any(_is_damage(finding) for finding in found),
        "findings": [asdict(finding) for finding in found],
    }


def _lines(found: list[Finding]) -> list[str]:
    if not found:
        return ["everything fits"]
    lines = []
    for kind, meaning in MEANINGS.items():
        of_kind = [finding for finding in found if finding.kind == kind]
        if of_kind:
            count = sum(finding.count for finding in of_kind)
            lines.append(f"{kind}: {count:,} {meaning}")
            lines.extend(_line(finding) for finding in of_kind[:SHOWN_MAX])
            if len(of_kind) > SHOWN_MAX:
                lines.append(f"  and {len(of_kind) - SHOWN_MAX:,} places more")
    return lines


def _line(finding: Finding) -> str:
    at = "" if finding.block_number is None else f" block {finding.block_number}"
    state = "mended" if finding.is_mended else "found"
    return f"  {state}: {finding.subject}{at}, {finding.count:,}"
