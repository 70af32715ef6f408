"""Owns `unfork lake`: what is in cold storage, and the removal of what nobody needs there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import click

from unfork import wiring
from unfork.app import schema
from unfork.cli import output, tools
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
from unfork.config import tree
from unfork.hot import schema as raw_schema
from unfork.jobs import lake_repair
from unfork.jobs.lake_repair import Finding
from unfork.lake import gc, status
from unfork.lake.gc import Found
from unfork.lake.status import DatasetStatus
from unfork.lake.storage import Storage
from unfork.lake.versions import Versions

Result = TypeVar("Result")

#: Folders that are shown one by one; the rest is counted.
SHOWN_MAX = 20


@click.group(invoke_without_command=True)
@chain_option
@database_option
@as_json
@click.pass_context
def command(ctx: click.Context, chain: str | None, db: str | None) -> None:
    """Show cold storage: the spans that it holds of each dataset, with rows and bytes.

    Without a verb it does what `unfork lake status` does.
    """
    if ctx.invoked_subcommand is None:
        _show(ctx.find_object(Context), chain, db)


@command.command("status")
@chain_option
@database_option
@as_json
@click.pass_obj
def status_command(context: Context, chain: str | None, db: str | None) -> None:
    """Show the spans that cold storage holds of each dataset, with rows and bytes.

    What waits to be removed by `unfork lake gc` is counted apart.
    """
    _show(context, chain, db)


@command.command("gc")
@chain_option
@database_option
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@yes_option
@as_json
@click.pass_obj
def gc_command(
    context: Context, chain: str | None, db: str | None, dry_run: bool, yes: bool
) -> int:
    """Remove files that no pointer names and no reader needs; shows them first, then asks.

    Those are versions that were replaced longer ago than lake.retired_keep_s, what crashed runs
    left behind, and folders of versions that no record names. May run beside everything else.
    """
    config, known = _chosen(context, chain, db)
    keep_s = config.lake.retired_keep_s

    async def look(versions: Versions, storage: Storage) -> Found:
        return await gc.find(versions, storage, keep_s=keep_s)

    found = _with_lake(config, known, look)
    if found.is_empty or dry_run:
        context.output.result(_garbage(known, found, is_removed=False), *_lines(found))
        return 0
    context.output.note("\n".join(_lines(found)))
    if not yes and not context.output.confirm("Remove them?"):
        context.output.result(_garbage(known, found, is_removed=False), "nothing was changed")
        return 1

    async def clear(versions: Versions, storage: Storage) -> None:
        await gc.remove(versions, storage, found)

    _with_lake(config, known, clear)
    context.output.result(_garbage(known, found, is_removed=True), "removed")
    return 0


@command.command("repair")
@chain_option
@database_option
@yes_option
@as_json
@click.pass_obj
def repair_command(context: Context, chain: str | None, db: str | None, yes: bool) -> int:
    """Take pointers away from versions that are not of the chain; shows them first, then asks.

    A fork that came after blocks were compacted leaves such versions. Their blocks are read from
    the hot tables then, and compacted again by the workers. Exits with 1 while something is left
    that does not fit.
    """
    config, known = _chosen(context, chain, db)
    found = _unfit(config, known)
    can_be_mended = [one for one in found if one.is_mendable]
    mended = 0
    if can_be_mended:
        context.output.note("\n".join(_findings(found)))
        if not yes and not context.output.confirm("Take their pointers away?"):
            context.output.result(_repaired(known, found, mended), "nothing was changed")
            return 1

        async def mend(versions: Versions, storage: Storage) -> int:
            return await lake_repair.mend(versions, found)

        mended = _with_lake(config, known, mend)
    left = [one for one in found if not one.is_mendable]
    lines = [f"{mended:,} versions have no pointer any more"] if mended else []
    context.output.result(
        _repaired(known, found, mended), *lines, *(_findings(left) if left or not found else [])
    )
    return 1 if left else 0


def _unfit(config: tree.Config, chain: tree.Chain) -> list[Finding]:
    """The versions that do not fit the chain."""

    async def done(where: wiring.Urls) -> list[Finding]:
        async with (
            wiring.database(config, where.raw) as raw,
            wiring.database(config, where.app) as app,
        ):
            async with raw.session() as session:
                await raw_schema.migrations(chain.name).require(session)
            async with app.session() as session:
                await schema.migrations(chain.name).require(session)
            return await lake_repair.find(raw, chain.name, wiring.lake(config, app, chain)[0])

    with tools.databases(config) as where:
        return finish(done(where))


def _repaired(chain: tree.Chain, found: Sequence[Finding], mended: int) -> dict[str, Any]:
    return {
        "chain": chain.name,
        "ok": all(one.is_mendable for one in found) and (mended > 0 or not found),
        "mended": mended,
        "findings": [
            {
                "dataset": one.dataset,
                "partition": one.key,
                "span": one.span,
                "why": one.why,
                "mendable": one.is_mendable,
            }
            for one in found
        ],
    }


def _findings(found: Sequence[Finding]) -> list[str]:
    if not found:
        return ["everything in the lake fits the chain"]
    lines = []
    for one in found[:SHOWN_MAX]:
        gone = "" if one.is_mendable else "; no hot table holds its blocks: fetch them again"
        lines.append(f"  {one.dataset} {one.key}: {one.why}{gone}")
    if len(found) > SHOWN_MAX:
        lines.append(f"  and {len(found) - SHOWN_MAX:,} more")
    return lines


def _chosen(context: Context, chain: str | None, db: str | None) -> tuple[tree.Config, tree.Chain]:
    config = context.load(flags_for(chain, db))
    return config, one_chain(config, chain)


def _with_lake(
    config: tree.Config,
    chain: tree.Chain,
    work: Callable[[Versions, Storage], Awaitable[Result]],
) -> Result:
    """What the work returns, done with the lake of a chain."""

    async def done(where: wiring.Urls) -> Result:
        async with wiring.database(config, where.app) as pool:
            async with pool.session() as session:
                await schema.migrations(chain.name).require(session)
            return await work(*wiring.lake(config, pool, chain))

    with tools.databases(config) as where:
        return finish(done(where))


def _show(context: Context | None, chain: str | None, db: str | None) -> None:
    assert context is not None
    config, known = _chosen(context, chain, db)

    async def look(versions: Versions, storage: Storage) -> list[DatasetStatus]:
        return await status.read(versions)

    found = _with_lake(config, known, look)
    context.output.result(
        {"chain": known.name, "datasets": [_document(one) for one in found]}, *_table(found)
    )


def _table(found: Sequence[DatasetStatus]) -> list[Any]:
    if not found:
        return ["nothing is in the lake yet"]
    rows = (
        (
            one.dataset,
            ", ".join(str(span) for span in one.spans) or "-",
            one.versions,
            one.rows,
            output.size(one.bytes),
            one.writing,
            one.waiting,
        )
        for one in found
    )
    columns = ("dataset", "blocks", "partitions", "rows", "bytes", "being written", "to remove")
    return [output.table(columns, rows)]


def _document(one: DatasetStatus) -> dict[str, Any]:
    return {
        "dataset": one.dataset,
        "spans": list(one.spans),
        "partitions": one.versions,
        "rows": one.rows,
        "bytes": one.bytes,
        "writing": one.writing,
        "to_remove": one.waiting,
        "unlinked": one.unlinked,
    }


def _garbage(chain: tree.Chain, found: Found, *, is_removed: bool) -> dict[str, Any]:
    return {
        "chain": chain.name,
        "removed": is_removed,
        "versions": [
            {
                "location": one.location,
                "why": "abandoned" if one.is_abandoned else "replaced",
                "bytes": one.size,
            }
            for one in found.versions
        ],
        "strays": [
            {"location": one.location, "files": one.files, "bytes": one.bytes}
            for one in found.strays
        ],
    }


def _lines(found: Found) -> list[str]:
    if found.is_empty:
        return ["there is nothing to remove"]
    lines = []
    for one in found.versions:
        what = "a run left it behind" if one.is_abandoned else "replaced"
        size = "" if one.size is None else f", {output.size(one.size)}"
        lines.append(f"  {one.location}: {what}{size}")
    lines += [
        f"  {one.location}: no version names it, {output.size(one.bytes)}" for one in found.strays
    ]
    left = len(lines) - SHOWN_MAX
    return lines[:SHOWN_MAX] + ([f"  and {left:,} more"] if left > 0 else [])
