"""Owns following one chain from a command: prepare its schemas, run the follower, say why it ended.

A database without the chain's schemas is migrated first; one that has them but lacks migrations is
refused, because migrating is a step of its own that an operator takes. A database that is not there
yet is waited for, as it is later on: whoever starts a machine starts both at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Literal, TypeVar

from unfork import telemetry, wiring
from unfork.app import schema as app_schema
from unfork.cli.context import unless_told
from unfork.cli.progress import Tally
from unfork.config import tree
from unfork.database.migrate import Migrations
from unfork.errors import ConfigInvalid, DatabaseUnavailable
from unfork.hot import overview
from unfork.hot import schema as raw_schema
from unfork.ingest.ending import UntilBlock, UntilIdle
from unfork.ingest.follow import Event, Follower, State
from unfork.ingest.outage import Backoff

log = telemetry.logger(__name__)

_T = TypeVar("_T")

Reason = Literal["until_block", "until_idle", "stopped"]


async def follow(
    config: tree.Config,
    where: wiring.Urls,
    chain: tree.Chain,
    tally: Tally,
    stopping: asyncio.Event,
    *,
    until_block: int | None = None,
    until_idle_s: float | None = None,
) -> Reason:
    """Follows a chain until its end condition holds or it is told to stop; returns which it was."""
    if not chain.source.urls:
        raise ConfigInvalid(
            f"chain {chain.name} has no source: set source.urls in unfork.yaml, or say --source"
        )
    begun = await unless_told(stopping, _patiently(chain, partial(_begun, config, where, chain)))
    if begun is None:
        return "stopped"
    chain = begun
    idle = None if until_idle_s is None else UntilIdle(until_idle_s)
    listener = _both(tally.heard, None if idle is None else idle.heard)
    app = asyncio.create_task(_app_prepared(config, where, chain))
    async with wiring.follower(
        config, where, chain, listener=listener, last=until_block
    ) as follower:
        ended = asyncio.Event()
        passing = asyncio.create_task(_pass_on(stopping, ended))
        watching = None if idle is None else asyncio.create_task(idle.watch(follower, ended))
        reached = UntilBlock(until_block) if until_block is not None else _never
        try:
            await follower.run(_noting(tally, reached), ended)
        finally:
            for task in filter(None, (passing, watching, app)):
                task.cancel()
        return _reason(follower, stopping, until_block)


async def prepare(config: tree.Config, where: wiring.Urls, chain: tree.Chain) -> None:
    """Makes the chain's schemas where the databases have nothing of them."""
    await _made(config, where.raw, raw_schema.migrations(chain.name))
    await _made(config, where.app, app_schema.migrations(chain.name))


async def _begun(config: tree.Config, where: wiring.Urls, chain: tree.Chain) -> tree.Chain:
    """The chain as it was begun, its raw schema made."""
    await _made(config, where.raw, raw_schema.migrations(chain.name))
    if where.app == where.raw:
        await _made(config, where.app, app_schema.migrations(chain.name))
    return await _as_begun(config, where, chain)


async def _app_prepared(config: tree.Config, where: wiring.Urls, chain: tree.Chain) -> None:
    """Makes the app schema beside the follower: ingestion does not wait for that database (I7)."""
    work = partial(_made, config, where.app, app_schema.migrations(chain.name))
    await _patiently(chain, work)


async def _made(config: tree.Config, url: str, migrations: Migrations) -> None:
    """Makes a schema where the database has nothing of it."""
    async with wiring.database(config, url) as pool, pool.session() as session:
        if await migrations.is_new(session):
            await migrations.apply(session)


async def _patiently(chain: tree.Chain, work: Callable[[], Awaitable[_T]]) -> _T:
    """Does something, again and again for as long as its database is away."""
    backoff = Backoff(limit_s=chain.source.backoff_ms_max / 1000)
    while True:
        try:
            return await work()
        except DatabaseUnavailable as error:
            delay_s = backoff.next()
            level = logging.WARNING if backoff.worth_telling() else logging.DEBUG
            telemetry.event(
                log, "waiting", level=level, code=error.code, reason=error.message, delay_s=delay_s
            )
            await asyncio.sleep(delay_s)


async def _as_begun(config: tree.Config, where: wiring.Urls, chain: tree.Chain) -> tree.Chain:
    """The chain with the first block it was begun with, unless somebody says another."""
    if "start" in chain.model_fields_set:
        return chain
    async with wiring.database(config, where.raw) as pool:
        known = await overview.read(pool, chain)
    if known is None or known.state.first is None:
        return chain
    return chain.model_copy(update={"start": known.state.first})


def _reason(follower: Follower, stopping: asyncio.Event, until_block: int | None) -> Reason:
    if until_block is not None and UntilBlock(until_block)(follower.state):
        return "until_block"
    return "stopped" if stopping.is_set() else "until_idle"


def _noting(tally: Tally, until: Callable[[State], bool]) -> Callable[[State], bool]:
    """Shows where the follower stands before its first event, too."""

    def noted(state: State) -> bool:
        tally.position, tally.floor = state.position, state.floor
        tally.head = state.head or tally.head
        tally.started.set()
        return until(state)

    return noted


def _both(
    first: Callable[[Event], None], second: Callable[[Event], None] | None
) -> Callable[[Event], None]:
    def heard(event: Event) -> None:
        first(event)
        if second is not None:
            second(event)

    return heard


async def _pass_on(told: asyncio.Event, to: asyncio.Event) -> None:
    await told.wait()
    to.set()


def _never(state: State) -> bool:
    return False
