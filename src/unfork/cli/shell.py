"""Owns `unfork shell`: questions in Spark SQL, one after another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from unfork.cli import output
from unfork.cli.context import Context, as_json, chain_option, database_option
from unfork.errors import UnforkError

#: What ends a shell beside the end of its input.
ENDS = ("exit", "quit", "\\q")


@click.command()
@chain_option
@database_option
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=100,
    show_default=True,
    help="Rows of each answer at most.",
)
@as_json
@click.pass_obj
def command(context: Context, chain: str | None, db: str | None, limit: int) -> None:
    """Answer questions in Spark SQL, each ended by a semicolon, until the input ends.

    Views are those of `unfork sql`, made anew for every question. `exit` ends it as well.
    """
    from unfork.cli import querying

    answers: list[dict[str, Any]] = []
    with querying.asking(context, chain, db) as asking:
        for statement in statements(is_person=sys.stdin.isatty()):
            try:
                document, table = asking.ask(statement, limit)
            except UnforkError as error:
                # A question that cannot be answered ends nothing.
                answers.append({"error": {"code": error.code, "message": error.message}})
                if not isinstance(context.output, output.JsonOutput):
                    context.output.error(error)
                continue
            answers.append(document)
            if not isinstance(context.output, output.JsonOutput):
                context.output.note(table)
    context.output.result({"answers": answers})


def statements(*, is_person: bool) -> Iterator[str]:
    """The statements of standard input, without their semicolons."""
    lines: list[str] = []
    while True:
        try:
            line = input("unfork> " if is_person and not lines else "") + "\n"
        except EOFError:
            break
        if not lines and line.strip().lower().rstrip(";") in ENDS:
            return
        lines.append(line)
        if line.rstrip().endswith(";"):
            yield from _one(lines)
            lines = []
    yield from _one(lines)


def _one(lines: list[str]) -> Iterator[str]:
    text = "".join(lines).strip().rstrip(";").strip()
    if text:
        yield text
