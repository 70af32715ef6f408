"""Owns `unfork export`: a span of a dataset as Parquet or CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from unfork.chain.span import Span
from unfork.cli.context import Context, as_json, chain_option, database_option
from unfork.cli.jobs import SPAN
from unfork.errors import Misconfigured

if TYPE_CHECKING:
    from unfork.jobs import export


@click.command()
@click.argument("dataset")
@click.option("--to", "target", required=True, help="A new folder, or a URL that Spark reaches.")
@click.option("--span", type=SPAN, help="The blocks; all there are when left out.")
@click.option("--columns", help="Names with commas between; all when left out.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["parquet", "csv"]),
    default="parquet",
    show_default=True,
    help="What is written.",
)
@chain_option
@database_option
@as_json
@click.pass_obj
def command(
    context: Context,
    dataset: str,
    target: str,
    span: Span | None,
    columns: str | None,
    format_name: export.Format,
    chain: str | None,
    db: str | None,
) -> None:
    """Write rows of a dataset, hot and cold as one, into a new folder of Parquet or CSV files.

    In CSV bytes are 0x hex and numbers of any size are digits; in Parquet they are bytes.
    """
    from unfork.cli import querying
    from unfork.jobs import export, views

    url = target if ":" in target else str(Path(target).absolute())
    if ":" not in target and Path(target).exists():
        raise Misconfigured(f"{target} exists; an export needs a new folder")
    given: dict[str, Any] = {"columns": columns}
    if span is not None:
        given |= {"first": span.first, "last": span.last}
    with querying.asking(context, chain, db) as asking:

        def work() -> None:
            frame = views.frame(asking.spark, asking.place, dataset, config=asking.config, **given)
            export.write(frame, url, format=format_name)

        querying.told(work)
    context.output.result(
        {"dataset": dataset, "to": target, "format": format_name, "span": span},
        f"{dataset} is in {target}",
    )
