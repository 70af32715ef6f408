"""Owns the look at a chain's jobs that several commands share: catalog, state, plan, and the rest.

It reads and changes nothing. The state is of one moment; what is told besides is read right after.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from unfork import wiring
from unfork.chain.block import BlockRef
from unfork.cli import simulated
from unfork.config.load import Loaded
from unfork.config.tree import Chain, Config
from unfork.errors import Misconfigured
from unfork.hot.reader import HotReader
from unfork.jobs import catalog, report
from unfork.jobs.catalog import Catalog
from unfork.jobs.plan import plan
from unfork.jobs.report import Extras, JobReport
from unfork.jobs.run import Plan
from unfork.jobs.spec import JobSpec
from unfork.jobs.survey import Surveyed
from unfork.jobs.work import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A chain's jobs at one moment."""

    chain: Chain
    catalog: Catalog
    surveyed: Surveyed
    plan: Plan
    #: How work is cut into runs.
    limits: Limits
    extras: Extras
    #: The last block of the raw store; workers apply it to the app side.
    position: BlockRef | None

    @property
    def reports(self) -> tuple[JobReport, ...]:
        """What people are told about each job."""
        head = None if self.position is None else self.position.number
        return report.jobs(self.catalog, self.surveyed.state, self.plan, self.extras, head=head)


async def look(
    config: Config,
    jobs: Catalog,
    where: wiring.Urls,
    chain: Chain,
    *,
    columns: Mapping[str, str] | None = None,
) -> Look:
    """Looks at one chain; raises SchemaOutdated where migrations are pending.

    `columns` are the hashes of what jobs return, where somebody asked Spark.
    """
    async with wiring.database(config, where.raw) as raw:
        held = await HotReader(chain, raw, wiring.payloads(config, chain)).state()
    async with wiring.database(config, where.app) as app:
        # A simulated chain has a node while it is followed, which is when its jobs are computed.
        has_calls = bool(chain.source.urls) or simulated.is_simulated(chain)
        survey = wiring.survey(chain, app, jobs, has_calls=has_calls)
        await survey.require()
        for job, schema_hash in (columns or {}).items():
            survey.learn(job, schema_hash)
        surveyed = await survey.take()
        extras = await report.extras(chain.name, app)
    return Look(
        chain=chain,
        catalog=jobs,
        surveyed=surveyed,
        plan=plan(jobs.lineage, surveyed.state, wiring.limits(config)),
        limits=wiring.limits(config),
        extras=extras,
        position=None if held is None else held.position,
    )


def read_jobs(loaded: Loaded) -> Catalog:
    """The jobs of the configuration, checked; code of the project is read, never run."""
    return catalog.read(loaded)


def one_job(jobs: Catalog, name: str) -> JobSpec:
    """The job that a person named."""
    known = {spec.name: spec for spec in jobs.specs if not (spec.is_source or spec.is_compaction)}
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(known) or 'none'}"
        raise Misconfigured(f"no job is called `{name}`; {hint}")
    return known[name]
