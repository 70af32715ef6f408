"""Owns `unfork init`: a starter project, complete, commented and never written over another."""

from __future__ import annotations

from pathlib import Path

import click

from unfork.cli.context import Context, as_json
from unfork.config import render
from unfork.errors import Misconfigured

GITIGNORE = """\
# What unfork keeps here by default: the embedded Postgres, payloads, the devnet's place.
.unfork/
# Secrets.
.env
"""


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path("."))
@as_json
@click.pass_obj
def command(context: Context, folder: Path) -> None:
    """Write a commented starter project: unfork.yaml, .env.example, .gitignore."""
    files = {
        "unfork.yaml": render.starter(),
        ".env.example": render.dotenv(),
        ".gitignore": GITIGNORE,
    }
    existing = [name for name in files if (folder / name).exists()]
    if existing:
        raise Misconfigured(
            f"{', '.join(str(folder / name) for name in existing)} already exists; "
            "nothing was written. Choose another folder, or move it away first",
            existing=existing,
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    place = "" if folder == Path(".") else f"cd {folder} && "
    context.output.result(
        {"folder": str(folder.resolve()), "files": list(files)},
        *(f"wrote {folder / name}" for name in files),
        f"next: {place}unfork doctor && unfork up",
    )
