"""Owns how commands that look at a store reach it: the databases of a chain that exists."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from unfork import wiring
from unfork.config import tree
from unfork.errors import Misconfigured
from unfork.hot import overview
from unfork.hot.reader import HotReader


@contextmanager
def databases(config: tree.Config) -> Iterator[wiring.Urls]:
    """The databases, refused where they would have to be made first only to be found empty."""
    if config.database.raw_url is None and not (Path(config.data_dir) / "postgres").exists():
        raise Misconfigured(
            f"nothing is stored in {config.data_dir} yet: run `unfork up` or `unfork ingest` "
            "first, or say --db, DB_RAW_URL or --config for a database elsewhere"
        )
    with wiring.urls(config) as where:
        yield where


async def require_any(config: tree.Config, where: wiring.Urls) -> None:
    """Refuses a look at chains of which nothing is stored where others are, and names those.

    For commands that were not told a chain: the configuration, or the lack of one, may mean others
    than somebody stored here with `unfork ingest --chain`.
    """
    async with wiring.database(config, where.raw) as pool:
        held = await overview.chains(pool)
    meant = [chain.name for chain in config.chains]
    if held and not set(held) & set(meant):
        raise Misconfigured(
            f"nothing is stored of {', '.join(meant)}; say --chain with one that is there: "
            f"{', '.join(held)}"
        )


@asynccontextmanager
async def reader(
    config: tree.Config, where: wiring.Urls, chain: tree.Chain
) -> AsyncIterator[HotReader]:
    """A reader of one chain's raw tables."""
    async with wiring.database(config, where.raw) as pool:
        yield HotReader(chain, pool, wiring.payloads(config, chain))
