"""Owns the command `unfork`: options that come before a command's name, and how it ends.

Commands are loaded when they are called, so that `unfork --help` does not wait for libraries it has
no use for. Every error of ours ends as a message with its code, a hint and its own exit code; a
traceback is shown only under `--debug`.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

import click

import unfork
from unfork import telemetry
from unfork.cli import output
from unfork.cli.context import Context, listen
from unfork.errors import Interrupted, Misconfigured, UnforkError

#: The commands, in the order in which help lists them.
COMMANDS = (
    "up",
    "ingest",
    "work",
    "status",
    "plan",
    "jobs",
    "datasets",
    "backfill",
    "verify",
    "sql",
    "shell",
    "export",
    "migrate",
    "unwind",
    "repair",
    "reset",
    "partitions",
    "lake",
    "devnet",
    "doctor",
    "init",
)

LEVELS = ("debug", "info", "warning", "error")


class Commands(click.Group):
    """The commands, each in the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found = importlib.import_module(f"unfork.cli.{cmd_name}").command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(unfork.__version__, prog_name="unfork")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The configuration file; else unfork.yaml here or above.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="warning",
    show_default=True,
    help="How much is told on standard error.",
)
@click.option("--log-json", is_flag=True, help="Log lines as JSON.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(
    ctx: click.Context, config: Path | None, log_level: str, log_json: bool, debug: bool
) -> None:
    """Keeps tables of chain data equal to the canonical chain, through any fork."""
    level = "DEBUG" if debug else log_level.upper()
    telemetry.configure(level=level, as_json=log_json)
    context = ctx.ensure_object(Context)
    context.config_file = config
    context.is_debug = debug


def main() -> None:
    """Runs one command and exits with the code that says how it went."""
    listen()
    # A command line that cannot be understood still says whether a script reads the answer.
    as_json = "--json" in sys.argv[1:]
    context = Context(
        config_file=None, log_level="warning", is_debug=False, output=output.make(as_json)
    )
    sys.exit(_exit_code(context))


def _exit_code(context: Context) -> int:
    try:
        result = cli.main(standalone_mode=False, obj=context, prog_name="unfork")
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as help_text:
        help_text.show()
        return 0
    except click.ClickException as error:
        if isinstance(context.output, output.JsonOutput):
            context.output.error(_understood(error))
        else:
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        if isinstance(context.output, output.JsonOutput):
            context.output.error(Interrupted())
        else:
            click.echo("interrupted", err=True)
        return Interrupted.exit_code
    except UnforkError as error:
        if context.is_debug:
            traceback.print_exc()
        context.output.error(error)
        return error.exit_code
    except Exception as error:
        if context.is_debug:
            raise
        unexpected = UnforkError(
            f"unexpected {type(error).__name__}; this is a bug in unfork: run it again with "
            "--debug (before the command's name) and report what it shows"
        )
        context.output.error(unexpected)
        return unexpected.exit_code


def _understood(error: click.ClickException) -> UnforkError:
    """The same error as a script reads it."""
    kind = Misconfigured if error.exit_code == Misconfigured.exit_code else UnforkError
    return kind(error.format_message())
