"""Owns what every command shares: its options, its configuration and how long work is run.

A command that works until it is told to stop gets an event that SIGINT and SIGTERM set; the second
signal interrupts it where it stands, for people who are in a hurry. Any other work is interrupted
by the first.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from unfork.cli import output
from unfork.config import load, tree
from unfork.config.draft import Problem
from unfork.errors import ConfigInvalid, Interrupted
from unfork.jobs.builtin import unknown

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])

#: The chain there is where nobody configures one: the devnet, with all it has to show.
SIMULATED: dict[str, Any] = {"name": "devnet", "traces": True}


@dataclass(slots=True, kw_only=True)
class Context:
    """What the options before the command's name said."""

    config_file: Path | None
    log_level: str
    is_debug: bool
    #: Set by the command's own --json, before anything can go wrong in it.
    output: output.Output

    def loaded(self, flags: Sequence[load.Flag] = ()) -> load.Loaded:
        """The configuration of this run with where each key was written; it names a chain."""
        return load.load(self.config_file, flags=flags, fallback=SIMULATED)

    def load(self, flags: Sequence[load.Flag] = ()) -> tree.Config:
        """The configuration of this run, for commands that leave jobs alone; it names a chain.

        A job that nobody knows is refused here as well: nobody should learn of it days later.
        """
        loaded = self.loaded(flags)
        refuse_unknown_jobs(loaded)
        return loaded.config


def refuse_unknown_jobs(loaded: load.Loaded) -> None:
    """ConfigInvalid where a job that only has a name is none of the built-in ones."""
    found = ((index, unknown(job)) for index, job in enumerate(loaded.config.jobs))
    problems = [
        Problem(loaded.where(("jobs", index, "name")), what)
        for index, what in found
        if what is not None
    ]
    if problems:
        raise load.refusal(problems)


def as_json(command: Command) -> Command:
    """Adds `--json`; the command finds its output in the context."""

    def choose(context: click.Context, parameter: click.Parameter, value: bool) -> bool:
        if value:
            known = context.ensure_object(Context)
            if not isinstance(known.output, output.JsonOutput):
                known.output = output.make(True)
        return value

    return click.option(
        "--json",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=choose,
        help="Answer with one JSON document on standard output.",
    )(command)


def chain_option(command: Command) -> Command:
    """Adds `--chain NAME`, needed only where several chains are configured."""
    return click.option("--chain", metavar="NAME", help="The chain; needed where there are many.")(
        command
    )


def database_option(command: Command) -> Command:
    """Adds `--db URL`."""
    return click.option(
        "--db", metavar="URL", help="Postgres to use instead of the configured or embedded one."
    )(command)


def yes_option(command: Command) -> Command:
    """Adds `--yes`."""
    return click.option("--yes", is_flag=True, help="Do it without asking.")(command)


def flags_for(chain: str | None, db: str | None) -> list[load.Flag]:
    """The flags that most commands take, as the loader wants them."""
    flags = []
    if db is not None:
        flags.append(load.Flag(path=("database", "raw_url"), value=db, flag="--db"))
        flags.append(load.Flag(path=("database", "app_url"), value=db, flag="--db"))
    if chain is not None:
        flags.append(load.Flag(path=("chains", chain, "name"), value=chain, flag="--chain"))
    return flags


def one_chain(config: tree.Config, name: str | None) -> tree.Chain:
    """The chain a command is about."""
    chains = [chain for chain in config.chains if name in (None, chain.name)]
    if not chains:
        raise ConfigInvalid("`chains:` is empty; leave it out for the simulated chain")
    if len(chains) > 1:
        names = ", ".join(chain.name for chain in chains)
        raise ConfigInvalid(f"several chains are configured; say --chain with one of {names}")
    return chains[0]


async def unless_told(stopping: asyncio.Event, work: Coroutine[Any, Any, Result]) -> Result | None:
    """The result of the work, or None where the signal came first and ended it."""
    told = asyncio.create_task(stopping.wait())
    working = asyncio.create_task(work)
    try:
        await asyncio.wait({told, working}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (told, working):
            task.cancel()
        await asyncio.gather(told, working, return_exceptions=True)


async def until_told(stopping: asyncio.Event, *tasks: asyncio.Task[None]) -> None:
    """Waits for the signal, then ends the tasks; one that fails before is not waited out."""
    told = asyncio.create_task(stopping.wait())
    pending: set[asyncio.Task[Any]] = {told, *tasks}
    try:
        while not told.done():
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in (told, *tasks):
            task.cancel()
        await asyncio.gather(told, *tasks, return_exceptions=True)


def run(work: Callable[[asyncio.Event], Awaitable[Result]]) -> Result:
    """Runs work to its end; it is handed the event that a signal sets.

    The second signal cancels the work where it stands, the third ends the process.
    """

    async def supervised() -> Result:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        working = asyncio.current_task()
        assert working is not None

        def told() -> None:
            if working.cancelling():
                os._exit(Interrupted.exit_code)
            if stopping.is_set():
                working.cancel()
            stopping.set()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told)
        return await work(stopping)

    try:
        return asyncio.run(supervised())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        listen()


def finish(work: Coroutine[Any, Any, Result]) -> Result:
    """Runs work that has an end of its own; a signal interrupts it."""
    return asyncio.run(work)


def listen() -> None:
    """Makes SIGTERM interrupt like Ctrl-C, so that an embedded server is never left behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
