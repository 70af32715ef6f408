"""Owns `unfork sql`: one question in Spark SQL over the datasets of a chain."""

from __future__ import annotations

import click

from unfork.cli.context import Context, as_json, chain_option, database_option


@click.command()
@click.argument("statement")
@chain_option
@database_option
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Rows of the answer at most.",
)
@as_json
@click.pass_obj
def command(
    context: Context, statement: str, chain: str | None, db: str | None, limit: int
) -> None:
    """Answer a question in Spark SQL; every dataset is a view of its name, hot and cold as one.

    Raw datasets are all read at one block; what jobs write stands at its watermark. Bytes are shown
    as 0x hex; in a question they are written X'…'.
    """
    from unfork.cli import querying

    with querying.asking(context, chain, db) as asking:
        document, table = asking.ask(statement, limit)
    context.output.result(document, table)
