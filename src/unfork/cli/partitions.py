"""Owns `unfork partitions`: what each partition takes on disk, and will take when it is full."""

from __future__ import annotations

from typing import Any

import click

from unfork.cli import output, tools
from unfork.cli.context import (
    Context,
    as_json,
    chain_option,
    database_option,
    finish,
    flags_for,
    one_chain,
)
from unfork.hot.partitions import Size


@click.command()
@chain_option
@database_option
@as_json
@click.pass_obj
def command(context: Context, chain: str | None, db: str | None) -> None:
    """Show every partition of a chain with its bytes, and the bytes expected when it is full.

    Rows are as the last ANALYZE counted them. Where fewer than a thousand blocks are held the
    expectation is a guess of one row a block.
    """
    config = context.load(flags_for(chain, db))
    known = one_chain(config, chain)
    with tools.databases(config) as where:

        async def work() -> list[Size]:
            if chain is None:
                await tools.require_any(config, where)
            async with tools.reader(config, where, known) as reader:
                return await reader.partitions()

        found = finish(work())
    rows = (
        (
            size.partition.table,
            str(size.partition.span),
            size.partition.rows,
            output.size(size.bytes),
            output.size(size.bytes_full),
        )
        for size in found
    )
    context.output.result(
        {"chain": known.name, "partitions": [_document(size) for size in found]},
        output.table(("table", "span", "rows", "bytes", "bytes when full"), rows),
    )


def _document(size: Size) -> dict[str, Any]:
    part = size.partition
    return {
        "table": part.table,
        "name": part.name,
        "span": part.span,
        "rows": part.rows,
        "bytes": size.bytes,
        "bytes_when_full": size.bytes_full,
    }
