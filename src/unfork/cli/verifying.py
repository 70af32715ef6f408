"""Owns the verification of lakes from a command: Spark, the lake of each chain, a progress bar."""

from __future__ import annotations

from collections.abc import Sequence

from unfork import wiring
from unfork.app import schema as app_schema
from unfork.chain.span import Span
from unfork.cli import progress
from unfork.config.load import Loaded
from unfork.config.tree import Chain
from unfork.hot import schema as raw_schema
from unfork.jobs import session, thread
from unfork.jobs.spark.place import Place
from unfork.verify import lake
from unfork.verify.lake import Report


async def lakes(
    loaded: Loaded, where: wiring.Urls, chains: Sequence[Chain], span: Span | None
) -> list[Report]:
    """The reports on the lakes of some chains, or on the versions that hold blocks of a span."""
    config = loaded.config
    opening = session.opened(config)
    spark = await thread.run(opening.__enter__)
    try:
        found = []
        for chain in chains:
            async with (
                wiring.database(config, where.raw) as raw,
                wiring.database(config, where.app) as app,
            ):
                for pool, migrations in (
                    (raw, raw_schema.migrations(chain.name)),
                    (app, app_schema.migrations(chain.name)),
                ):
                    async with pool.session() as connected:
                        await migrations.require(connected)
                with progress.bar(f"verifying the lake of {chain.name}") as show:
                    found.append(
                        await lake.verify(
                            spark,
                            Place(config=config, chain=chain),
                            raw,
                            wiring.lake(config, app, chain)[0],
                            config=None if loaded.file is None else str(loaded.file.resolve()),
                            span=span,
                            progress=show,
                        )
                    )
        return found
    finally:
        await thread.run(lambda: opening.__exit__(None, None, None))
