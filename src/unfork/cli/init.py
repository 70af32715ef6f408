"""Owns `unfork init`: a starter project, complete, commented and never written over another."""

from __future__ import annotations

from pathlib import Path

import click

from unfork.cli import starter
from unfork.cli.context import Context, as_json
from unfork.config import render
from unfork.errors import Misconfigured

GITIGNORE = """\
# What unfork keeps here by default: the embedded Postgres, payloads, the devnet's place.
.unfork/
# Secrets.
.env
# What Python and its tests leave.
__pycache__/
.pytest_cache/
"""


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), default=Path("."))
@click.option(
    "--abi",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The JSON ABI of a contract; the project decodes its events.",
)
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="0x…",
    help="The contract's address; may be repeated. Any contract when left out.",
)
@click.option("--name", help="What the names of its datasets begin with; else the ABI file's.")
@as_json
@click.pass_obj
def command(
    context: Context,
    folder: Path,
    abi: Path | None,
    addresses: tuple[str, ...],
    name: str | None,
) -> None:
    """Write a commented starter project: unfork.yaml, .env.example, .gitignore.

    With --abi it decodes a contract's events, and has a SQL job over one of them, its test and a
    README. Nothing that is there is written over.
    """
    if abi is None:
        if addresses or name is not None:
            raise click.UsageError("--address and --name go with --abi")
        files = {"unfork.yaml": render.starter(), ".env.example": render.dotenv()}
    else:
        files = starter.files(starter.read(abi, addresses, name))
    files[".gitignore"] = GITIGNORE
    existing = [name for name in files if (folder / name).exists()]
    if existing:
        raise Misconfigured(
            f"{', '.join(str(folder / name) for name in existing)} already exists; "
            "nothing was written. Choose another folder, or move it away first",
            existing=existing,
        )
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    place = "" if folder == Path(".") else f"cd {folder} && "
    context.output.result(
        {"folder": str(folder.resolve()), "files": list(files)},
        *(f"wrote {folder / name}" for name in files),
        f"next: {place}unfork doctor && unfork up",
    )
