"""Owns the composition: the one file that knows every concrete class and puts them together.

Everything else receives what it needs. Nothing here decides anything about data.

What only some commands put together is imported where it is made: HTTP clients, decoders and the
encoders of COPY take longer to load than most commands take to answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unfork.app import schema as app_schema
from unfork.app.indexing_errors import IndexingErrors
from unfork.chain.span import Span
from unfork.clock import Clock
from unfork.config import tree
from unfork.database.database import Database
from unfork.database.embedded import Embedded
from unfork.errors import ProofFailed
from unfork.hot import schema as raw_schema
from unfork.hot.payloads import PayloadStore
from unfork.jobs import survey as surveys
from unfork.jobs import thread
from unfork.jobs.catalog import Catalog
from unfork.jobs.survey import Survey
from unfork.jobs.work import Limits

if TYPE_CHECKING:
    from unfork.datasets.batch import Batch
    from unfork.hot.repair import Repair
    from unfork.hot.store import HotStore
    from unfork.ingest.follow import Event, Follower
    from unfork.lake.storage import Storage
    from unfork.lake.versions import Versions
    from unfork.sources.evm import EvmSource

#: Work that says what it found.
Work = Callable[[], Coroutine[Any, Any, Mapping[str, Any]]]

#: The name of raw ingestion in checkpoints and errors, as the seeds have it.
WORKER_NAME = "raw_ingester"


@dataclass(frozen=True, slots=True, kw_only=True)
class Urls:
    """Where the two databases are."""

    #: Raw chain data.
    raw: str
    #: Everything derived.
    app: str


@contextmanager
def urls(config: tree.Config) -> Iterator[Urls]:
    """The databases of the configuration; an embedded server runs while they are needed."""
    if config.database.raw_url is not None:
        raw = config.database.raw_url
        yield Urls(raw=raw, app=config.database.app_url or raw)
        return
    embedded = Embedded(Path(config.data_dir) / "postgres")
    raw = embedded.start()
    try:
        yield Urls(raw=raw, app=config.database.app_url or raw)
    finally:
        embedded.stop()


@asynccontextmanager
async def database(
    config: tree.Config, url: str, *, service: str = "tools", idle_s_max: float | None = None
) -> AsyncIterator[Database]:
    """A bounded pool for one service."""
    pool: tree.Pool = getattr(config.database.pools, service)
    made = Database(
        url,
        service=service,
        pool=pool,
        connect_timeout_s=config.database.connect_timeout_s,
        statement_timeout_s=config.database.statement_timeout_s,
        idle_s_max=idle_s_max,
    )
    try:
        yield made
    finally:
        await made.close()


def payloads(config: tree.Config, chain: tree.Chain) -> PayloadStore:
    """The payload store of a chain."""
    return PayloadStore.of(config, chain.name)


def lake(config: tree.Config, app: Database, chain: tree.Chain) -> tuple[Versions, Storage]:
    """The lake of a chain: its versions, and where their files are."""
    from unfork.lake.storage import Storage
    from unfork.lake.versions import Versions

    return Versions(chain.name, app_schema.name(chain.name), app), Storage.of(config)


def error_payloads(config: tree.Config, chain: tree.Chain) -> PayloadStore:
    """Where refused data goes: apart, because repair sweeps what no raw row refers to."""
    return PayloadStore.of(config, f"{chain.name}/errors")


def source(chain: tree.Chain) -> EvmSource:
    """The source of a chain."""
    from unfork.sources.evm import EvmSource

    return EvmSource(chain, clock=Clock(), random=random.Random())


@asynccontextmanager
async def repair(config: tree.Config, pool: Database, chain: tree.Chain) -> AsyncIterator[Repair]:
    """The reconciler of a chain, which asks the chain's source, if it has one, for what is gone."""
    from unfork.hot.repair import Repair

    asked = source(chain) if chain.source.urls else None

    async def fetch(number: int) -> Batch | None:
        assert asked is not None
        if number > (await asked.head()).latest.number:
            return None
        batches = [batch async for batch in asked.fetch(Span(number, number))]
        return batches[0] if batches else None

    try:
        yield Repair(
            chain.name,
            chain.family,
            pool,
            payloads(config, chain),
            sweep_grace_s=config.payloads.sweep_grace_s,
            fetch=None if asked is None else fetch,
        )
    finally:
        if asked is not None:
            await asked.close()


async def migrate(config: tree.Config, where: Urls, chain: tree.Chain) -> list[str]:
    """Applies what is pending to both schemas of a chain and returns its names."""
    done = []
    for url, migrations in (
        (where.raw, raw_schema.migrations(chain.name)),
        (where.app, app_schema.migrations(chain.name)),
    ):
        async with database(config, url) as pool, pool.session() as session:
            done += [f"{migrations.schema}/{name}" for name in await migrations.apply(session)]
    return done


def survey(
    chain: tree.Chain, app: Database, jobs: Catalog, *, has_calls: bool | None = None
) -> Survey:
    """The survey of a chain's jobs; `has_calls` where whoever looks knows of a node."""
    return Survey(
        chain.name,
        app,
        held=surveys.held(chain),
        fingerprints=surveys.fingerprints(jobs),
        has_calls=bool(chain.source.urls) if has_calls is None else has_calls,
    )


def limits(config: tree.Config) -> Limits:
    """How work is cut into runs."""
    planning = config.planning
    return Limits(
        range_size=planning.range_size,
        live_blocks_max=planning.live_blocks_max,
        runs_max=planning.runs_max,
    )


def scheduled(config: tree.Config, where: Urls, chain: tree.Chain) -> Mapping[str, Work]:
    """What `schedules:` may name, each as its command does it.

    Proving blocks takes the processor for long, so each has a thread and a loop of its own: a
    follower or a worker in the same process goes on meanwhile.
    """

    def apart(work: Work) -> Work:
        return lambda: thread.run(lambda: asyncio.run(work()))

    async def repaired() -> Mapping[str, Any]:
        async with database(config, where.raw) as pool:
            async with repair(config, pool, chain) as reconciler:
                found = [finding async for finding in reconciler.run(mend=True)]
        left = sum(finding.count for finding in found if not finding.is_mended)
        mended = sum(finding.count for finding in found if finding.is_mended)
        return {"mended": mended, "left": left}

    async def verified() -> Mapping[str, Any]:
        from unfork.verify import blocks

        async with database(config, where.raw) as pool:
            report = await blocks.verify(pool, chain.name, payloads=payloads(config, chain))
        if not report.ok:
            raise ProofFailed(
                f"{report.damaged_count:,} of {report.blocks:,} blocks of {chain.name} fail their "
                "proof; `unfork verify` lists them"
            )
        return {"blocks": report.blocks, "proven": report.proven}

    async def maintained() -> Mapping[str, Any]:
        from unfork.app import maintenance

        async with database(config, where.app) as pool:
            return await maintenance.prune(
                chain.name,
                pool,
                retired_keep_s=config.maintenance.retired_keep_s,
                record_keep_s=config.maintenance.record_keep_s,
            )

    return {
        "repair": apart(repaired),
        "verify": apart(verified),
        "maintenance": apart(maintained),
    }


@asynccontextmanager
async def store(config: tree.Config, where: Urls, chain: tree.Chain) -> AsyncIterator[HotStore]:
    """The hot store of a chain, not opened yet."""
    from unfork.hot.store import HotStore

    async with database(config, where.raw, service="ingest") as pool:
        made = HotStore(
            chain,
            pool,
            payloads(config, chain),
            inline_max_bytes=config.payloads.inline_max_bytes,
            denormalize_events=config.sync.denormalize_events,
            lock_timeout_ms=config.database.lock_timeout_ms,
            stream_keep_s=config.spark.stream_keep_s,
        )
        try:
            yield made
        finally:
            await made.close()


@asynccontextmanager
async def follower(
    config: tree.Config,
    where: Urls,
    chain: tree.Chain,
    *,
    listener: Callable[[Event], None] = lambda event: None,
    last: int | None = None,
) -> AsyncIterator[Follower]:
    """The follower of a chain, not started yet; with `last` it holds nothing above that block."""
    from unfork.ingest.follow import Follower, Policy

    async with (
        store(config, where, chain) as hot,
        database(config, where.app, service="ingest") as app,
    ):
        node = source(chain)
        made = Follower(
            store=hot,
            source=node,
            book=IndexingErrors(chain.name, app, error_payloads(config, chain)),
            policy=Policy(
                worker_name=WORKER_NAME,
                start=chain.start,
                last=last,
                depth_max=chain.reorg_depth_max,
                pause_s=chain.source.poll_interval_ms / 1000,
                backoff_s_max=chain.source.backoff_ms_max / 1000,
            ),
            listener=listener,
        )
        try:
            yield made
        finally:
            await made.close()
            await node.close()
