"""Owns `unfork datasets`: every dataset of a chain, and what its readers may rely on."""

from __future__ import annotations

from typing import Any

import click

from unfork.cli import looking, output, tools
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

COLUMNS = (
    "dataset",
    "written by",
    "read by",
    "mode",
    "build",
    "watermark",
    "lag",
    "partitions",
    "rows",
    "size",
    "to do again",
)


@click.command()
@chain_option
@database_option
@as_json
@click.pass_obj
def command(context: Context, chain: str | None, db: str | None) -> None:
    """Show every dataset: its job and readers, watermark, builds, size, what is stale and why."""
    loaded = context.loaded(flags_for(chain, db))
    jobs = looking.read_jobs(loaded)
    known = one_chain(loaded.config, chain)
    with tools.databases(loaded.config) as where:
        found = finish(looking.look(loaded.config, jobs, where, known))
    documents = [*_raw(found), *_derived(found)]
    context.output.result(
        {"chain": known.name, "datasets": documents}, _table(documents), *_lines(documents)
    )


def _raw(found: Look) -> list[dict[str, Any]]:
    """The raw datasets that the chain's scope fetches."""
    return [
        {
            "dataset": name,
            "kind": "raw",
            "job": None,
            "readers": _readers(found, name),
            "mode": None,
            "generation": None,
            "watermark": found.position,
            "lag": None if found.position is None else 0,
            "partitions": None,
            "rows": None,
            "bytes": None,
            "stale": [],
            "builds": [],
        }
        for name in sorted(found.surveyed.state.held)
    ]


def _derived(found: Look) -> list[dict[str, Any]]:
    """What jobs write, in the order of the file."""
    served = {one.dataset: one for one in found.surveyed.state.generations if one.is_served}
    documents = []
    for one in found.reports:
        builds = [dict(row) for row in found.extras.sizes if row["dataset"] == one.dataset]
        if one.standing == "source":
            continue
        whole = one.document()
        now = served.get(one.dataset)
        documents.append(
            {
                "dataset": one.dataset,
                "kind": "derived",
                "job": one.job,
                "readers": _readers(found, one.dataset),
                "mode": one.mode,
                "generation": one.generation,
                "watermark": one.watermark,
                "lag": one.lag,
                "partitions": None if now is None else len(now.versions),
                "rows": one.rows,
                "bytes": sum(row["bytes"] for row in builds if row["state"] == "served") or None,
                "stale": whole["stale"],
                "builds": builds,
            }
        )
    return documents


def _readers(found: Look, dataset: str) -> list[str]:
    return [spec.name for spec in found.catalog.lineage.readers(dataset)]


def _table(documents: list[dict[str, Any]]) -> Any:
    rows = (
        (
            one["dataset"],
            one["job"] or "ingestion",
            ", ".join(one["readers"]) or None,
            one["mode"],
            one["generation"],
            one["watermark"] and one["watermark"].number,
            one["lag"],
            one["partitions"],
            one["rows"],
            None if one["bytes"] is None else output.size(one["bytes"]),
            sum(len(part["span"]) for part in one["stale"]) or None,
        )
        for one in documents
    )
    return output.table(COLUMNS, rows)


def _lines(documents: list[dict[str, Any]]) -> list[str]:
    lines = []
    for one in documents:
        lines += [
            f"{one['dataset']} {part['span']} ({part['partitions']} parts): {part['why']}"
            for part in one["stale"]
        ]
        lines += [
            f"{one['dataset']}: build {row['generation']} is {row['state']}, "
            f"{output.size(row['bytes'])}"
            for row in one["builds"]
            if row["state"] != "served"
        ]
    return lines
