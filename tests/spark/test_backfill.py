"""Goal: a backfill that is asked for is carried out to the end, exact, whatever happens to it.

Method: the real engine on Spark over a devnet; the command's own work, twice at once, told to stop
in the middle, with forks and ordinary workers beside it; the oracle knows only the chain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from tests.engines import Engine, engine
from tests.sparks import Chain
from unfork import wiring
from unfork.app.derived import DerivedDataset
from unfork.chain.span import Span
from unfork.cli import backfill as command
from unfork.jobs import backfill
from unfork.jobs.request import Requests
from unfork.jobs.survey import Survey

pytestmark = pytest.mark.postgres

#: Runs of a few blocks, so that a backfill has many.
SMALL = {"planning": {"range_size": 8, "live_blocks_max": 8}}


def surveying(made: Engine) -> Survey:
    """A survey that knows the columns."""
    chain = made.computing.loaded.config.chains[0]
    survey = wiring.survey(chain, made.chain.place.app_database(), made.computing.catalog)
    for job, dataset in made.computing.declarations.datasets.items():
        survey.learn(job, dataset.schema_hash)
    return survey


async def ask(made: Engine, job: str, wanted: Sequence[Span] | None = None) -> bool:
    """Puts a backfill on record."""

    async def declare(name: str) -> DerivedDataset:
        return made.computing.declarations.datasets[name]

    place, spec = made.chain.place, made.computing.catalog.lineage.jobs[job]
    surveyed = await surveying(made).take()
    requests = Requests(place.name, place.app_database(), declare=declare, lock_timeout_ms=5000)
    return await requests.put(spec, backfill.propose(spec, surveyed.state, wanted), surveyed)


async def carry_out(made: Engine, job: str, stopping: asyncio.Event | None = None) -> int:
    """What the command does once everything is on record."""
    place = made.chain.place
    return await command.carry_out(
        made.computing,
        wiring.Urls(raw=place.dsn, app=place.app_dsn or place.dsn),
        made.computing.loaded.config.chains[0],
        made.computing.catalog.lineage.jobs[job],
        stopping or asyncio.Event(),
    )


async def generation(made: Engine, dataset: str) -> int:
    rows = await made.chain.place.app_rows(
        "SELECT dataset, generation FROM {app}.generations WHERE state = 'served'"
    )
    return next(row["generation"] for row in rows if row["dataset"] == dataset)


async def test_a_backfill_in_place_runs_to_its_end_beside_another_and_beside_forks(
    chain: Chain,
) -> None:
    async with engine(chain, config=SMALL) as made:
        await made.grow(18)
        await made.settle()
        assert await ask(made, "token_transfers")
        assert not await ask(made, "token_transfers")
        working = [asyncio.create_task(carry_out(made, "token_transfers")) for _ in range(2)]
        await made.fork(depth=3, length=5)
        assert await asyncio.gather(*working) == [0, 0]
        await made.settle()
        await made.check()
        rows = await chain.place.app_rows(
            "SELECT count(*) AS count FROM {app}.invalidation_spans WHERE processed_at IS NULL"
        )
        assert rows[0]["count"] == 0


async def test_a_dataset_that_is_built_anew_goes_on_where_it_was_stopped(chain: Chain) -> None:
    async with engine(chain, config=SMALL) as made:
        await made.grow(26)
        await made.settle()
        assert await ask(made, "token_balances", [Span(0, 0)])
        stopping = asyncio.Event()
        stopping.set()
        assert await carry_out(made, "token_balances", stopping) > 0
        assert await generation(made, "token_balances") == 1
        await made.check()
        await made.fork(depth=2, length=3)
        assert not await ask(made, "token_balances", [Span(0, 0)])
        assert await carry_out(made, "token_balances") == 0
        assert await generation(made, "token_balances") == 2
        await made.settle()
        await made.check()


async def test_a_backfill_that_nobody_can_carry_out_says_why_instead_of_waiting(
    chain: Chain,
) -> None:
    async with engine(chain, config=SMALL) as made:
        await made.grow(6)
        await made.settle()
        assert await ask(made, "token_transfers")
        await chain.place.app_rows("UPDATE {app}.jobs SET is_paused = true")
        with pytest.raises(command.Misconfigured, match="unfork jobs resume token_transfers"):
            await carry_out(made, "token_transfers")
