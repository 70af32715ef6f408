"""Owns `unfork status`: where every chain stands. Its JSON is stable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from unfork import wiring
from unfork.app.indexing_errors import IndexingErrors
from unfork.cli import jobs, looking, output, tools
from unfork.cli.context import Context, as_json, chain_option, database_option, finish, flags_for
from unfork.config.tree import Chain, Config
from unfork.errors import SchemaOutdated
from unfork.hot import overview
from unfork.hot.overview import Overview
from unfork.hot.state import ChainState
from unfork.jobs.catalog import Catalog
from unfork.jobs.report import JobReport

#: What a person sees of each chain.
COLUMNS = (
    "chain",
    "status",
    "first",
    "position",
    "confirmed",
    "floor",
    "head",
    "behind",
    "forks kept",
    "errors",
    "size",
)
#: Open errors that are shown.
ERRORS_SHOWN = 5
#: Open errors that are counted.
ERRORS_MAX = 1000


@click.command()
@chain_option
@database_option
@as_json
@click.pass_obj
def command(context: Context, chain: str | None, db: str | None) -> None:
    """Show where every chain and its jobs stand: position, floor, head, watermarks, failures."""
    loaded = context.loaded(flags_for(chain, db))
    config, catalog = loaded.config, looking.read_jobs(loaded)
    chains = [known for known in config.chains if chain in (None, known.name)]
    with tools.databases(config) as where:

        async def work() -> list[tuple[dict[str, Any], tuple[JobReport, ...]]]:
            return [await _document(config, catalog, where, known) for known in chains]

        found = finish(work())
    documents = [document for document, _ in found]
    tables = [
        part
        for document, reports in found
        if reports
        for part in (
            "",
            f"jobs of {document['chain']}",
            jobs.table(reports),
            *jobs.details(reports),
            *_tasks(document),
        )
    ]
    context.output.result({"chains": documents}, _table(documents), *_errors(documents), *tables)


async def _document(
    config: Config, catalog: Catalog, where: wiring.Urls, chain: Chain
) -> tuple[dict[str, Any], tuple[JobReport, ...]]:
    """One chain as plain values, every key always there; and its jobs."""
    found: Overview | None = None
    reports: tuple[JobReport, ...] = ()
    tasks: Sequence[Mapping[str, Any]] = ()
    status = "empty"
    errors: list[dict[str, Any]] = []
    try:
        async with wiring.database(config, where.raw) as raw:
            found = await overview.read(raw, chain)
        async with wiring.database(config, where.app) as app:
            book = IndexingErrors(chain.name, app, wiring.payloads(config, chain))
            errors = await book.unresolved(limit=ERRORS_MAX) if found is not None else []
        if found is not None:
            look = await looking.look(config, catalog, where, chain)
            reports, tasks = look.reports, look.extras.tasks
    except SchemaOutdated:
        status = "not migrated"
    if found is not None:
        status = "written" if found.writer is not None else "at rest"
    state = None if found is None else found.state
    position = None if state is None else state.position
    head = None if state is None else state.head
    document = {
        "chain": chain.name,
        "status": status,
        "chain_id": state and state.chain_id,
        "first": state and state.first,
        "position": position,
        "floor": state and state.floor,
        "confirmed": _confirmed(config, state),
        "head": head,
        "head_at": state and state.head_at,
        "behind": max(0, head.number - position.number) if head and position else None,
        "seq": state and state.seq,
        "epoch": state and state.epoch,
        "orphaned": found
        and {
            "forks": found.orphaned.forks,
            "blocks": found.orphaned.blocks,
            "depth_max": found.orphaned.depth_max,
            "last_at": found.orphaned.last_at,
        },
        "errors": {
            "open": len(errors),
            "latest": [_error(row) for row in errors[:ERRORS_SHOWN]],
        },
        "writer": found
        and found.writer
        and f"{found.writer.application_name} (backend {found.writer.pid} on {found.writer.host})",
        "bytes": found and found.bytes,
        "jobs": [one.document() for one in reports],
        "schedules": [_task(config, row) for row in tasks],
    }
    return document, reports


def _confirmed(config: Config, state: ChainState | None) -> int | None:
    """The highest block with enough others on top, or that is final."""
    if state is None or state.position is None or state.first is None:
        return None
    number = state.position.number - config.sync.confirmations
    number = number if state.floor is None else max(number, state.floor.number)
    return number if number >= state.first else None


def _task(config: Config, row: Mapping[str, Any]) -> dict[str, Any]:
    """What became of a scheduled task, and when it runs."""
    names = ("task", "moment", "status", "attempt", "result", "error", "finished_at")
    crons = [one.cron for one in config.schedules if one.task == row["task"]]
    return {**{name: row[name] for name in names}, "cron": crons}


def _error(row: dict[str, Any]) -> dict[str, Any]:
    names = ("worker_name", "block_number", "severity", "message", "occurrences", "last_seen_at")
    return {name: row[name] for name in names}


def _table(documents: list[dict[str, Any]]) -> Any:
    rows = (
        (
            known["chain"],
            known["status"],
            known["first"],
            known["position"] and known["position"].number,
            known["confirmed"],
            *(known[name] and known[name].number for name in ("floor", "head")),
            known["behind"],
            known["orphaned"] and known["orphaned"]["forks"],
            known["errors"]["open"],
            output.size(known["bytes"]) if known["bytes"] is not None else None,
        )
        for known in documents
    )
    return output.table(COLUMNS, rows)


def _tasks(document: dict[str, Any]) -> list[str]:
    return [
        f"scheduled {task['task']} of {task['moment']:%Y-%m-%d %H:%M}: {task['status'].lower()}"
        + (f" ({task['error']})" if task["error"] else "")
        for task in document["schedules"]
        if task["cron"]
    ]


def _errors(documents: list[dict[str, Any]]) -> list[str]:
    return [
        f"{known['chain']} block {error['block_number']} {error['severity']} "
        f"({error['occurrences']} times): {error['message']}"
        for known in documents
        for error in known["errors"]["latest"]
    ]
