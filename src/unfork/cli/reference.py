"""Owns the documentation pages that are made from code, so that they cannot differ from it.

`make docs` writes them; a test compares what is written with what would be.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from unfork.cli import dataset_page
from unfork.cli.main import COMMANDS, cli
from unfork.config import render

COMMANDS_HEAD = """\
# Commands

Every command takes `--json`: standard output then holds exactly one JSON document, an error
included, and everything else goes to standard error. Exit codes are listed in
[errors.md](errors.md#exit-codes). What is said here of `ingest`, `status` and `verify` is stable:
scripts may rely on it.

This page is written by `make docs` from the commands themselves.
"""


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {
        "cli.md": commands(),
        "configuration.md": render.reference(),
        "datasets.md": dataset_page.page(),
    }


def commands() -> str:
    """docs/cli.md: what each command's own help says."""
    parts = [COMMANDS_HEAD, _section("unfork", cli, None)]
    with click.Context(cli, info_name="unfork") as parent:
        for name in COMMANDS:
            command = cli.get_command(parent, name)
            assert command is not None
            parts.append(_section(f"unfork {name}", command, parent))
            parts += _verbs(name, command, parent)
    return "\n".join(parts)


def _verbs(name: str, command: click.Command, above: click.Context) -> list[str]:
    """The sections of a command's own verbs, where it has any."""
    if not isinstance(command, click.Group):
        return []
    with click.Context(command, info_name=name, parent=above) as parent:
        return [
            _section(f"unfork {name} {verb}", command.commands[verb], parent)
            for verb in command.list_commands(parent)
        ]


def _section(title: str, command: click.Command, parent: click.Context | None) -> str:
    context = click.Context(
        command, info_name=title.split()[-1], parent=parent, max_content_width=96
    )
    context.terminal_width = 96
    return f"## {title}\n\n```\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    for page, text in pages().items():
        Path(sys.argv[1], page).write_text(text)
