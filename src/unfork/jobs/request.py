"""Owns a person's request for a backfill: put on record, so that whoever works carries it out.

A request is a row like any other reason to compute again, or a build beside the served one. So it
survives every process, is planned and leased like everything else, and a fork in the middle of it
changes nothing about it. Asking twice is asking once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import assert_never

from unfork import telemetry
from unfork.app import invalidations
from unfork.app import schema as app_schema
from unfork.app.generations import Generation, Generations
from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.database.session import Session
from unfork.datasets.derivation import Mode
from unfork.jobs import held, schema
from unfork.jobs.backfill import Anew, InPlace, Nothing, Proposal
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import State
from unfork.jobs.steps import Declare
from unfork.jobs.survey import Surveyed

log = telemetry.logger(__name__)

#: Higher than any block.
NUMBER_MAX = 2**62

#: The reason that invalidations of a person's request carry.
MANUAL: invalidations.Reason = "manual"


class Requests:
    """The requests for one chain's datasets."""

    def __init__(
        self, chain: str, database: Database, *, declare: Declare, lock_timeout_ms: int = 500
    ) -> None:
        self._queries = schema.bound(chain)
        self._app = app_schema.bound(chain)
        self._database = database
        self._declare = declare
        self._generations = Generations(chain, database, lock_timeout_ms=lock_timeout_ms)

    async def put(self, spec: JobSpec, proposal: Proposal, surveyed: Surveyed) -> bool:
        """Records what was proposed from this state; False where all of it was asked for already.

        Nothing is recorded either where another build is served meanwhile: ask again.
        """
        served = _served(spec, surveyed.builds)
        match proposal:
            case Nothing():
                return False
            case Anew():
                return await self._anew(spec, served, surveyed.state)
            case InPlace(spans=parts):
                assert served is not None
                return await self._in_place(served, parts)
            case _:
                assert_never(proposal)

    async def _anew(self, spec: JobSpec, served: Generation | None, state: State) -> bool:
        known = {build.id for build in await self._generations.all()}
        assert state.first is not None
        made = await self._generations.build(
            await self._declare(spec.name),
            config_hash=state.fingerprints[spec.name].config_hash,
            first=state.first,
            beside=None if served is None else served.id,
        )
        return made.id not in known

    async def _in_place(self, served: Generation, parts: Sequence[Span]) -> bool:
        async with self._database.session() as session:
            async with session.transaction(self._queries["held_patience"]):
                now = await held.lock(session, self._queries, served, with_dependents=False)
                if now.state != "served":
                    return False
                wanted = await self._not_asked(session, now, parts)
                if not wanted:
                    return False
                outdated = [(now.id, span) for span in await self._marked(session, now, wanted)]
                until = max(now.next - 1, wanted[-1].last)
                await invalidations.record(
                    session,
                    self._app,
                    dataset=now.dataset.name,
                    span=Span(wanted[0].first, wanted[-1].last),
                    outdated=outdated,
                    reason=MANUAL,
                    event={
                        "job": now.dataset.job,
                        "asked": [[span.first, span.last] for span in wanted],
                        "until": until,
                    },
                )
        telemetry.event(log, "backfill_asked", dataset=now.dataset.name, blocks=len(wanted))
        return True

    async def _not_asked(
        self, session: Session, build: Generation, parts: Sequence[Span]
    ) -> tuple[Span, ...]:
        """What of it no unfinished request asks for.

        Such a request is gone on with, not begun again: what it has done stays done, and blocks
        that came after it were computed as they should be anyway.
        """
        asked: list[Span] = []
        for row in await session.rows(self._queries["requests_open"], generation_id=build.id):
            asked += [Span(first, last) for first, last in row["asked"]]
            asked.append(Span(row["until"] + 1, NUMBER_MAX))
        return spans.subtract(parts, asked)

    async def _marked(
        self, session: Session, build: Generation, wanted: Sequence[Span]
    ) -> Sequence[Span]:
        """The blocks to do again; of a dataset in partitions, their versions are marked too."""
        if build.dataset.mode is Mode.CURSOR:
            return wanted
        marked = await session.rows(
            self._app["invalidations_versions"],
            generations=[build.id],
            firsts=[span.first for span in wanted],
            lasts=[span.last for span in wanted],
            only_valid=False,
        )
        await session.run(self._app["invalidations_fall"], generations=[build.id])
        return [Span(row["first_number"], row["last_number"]) for row in marked]


def _served(spec: JobSpec, builds: Mapping[int, Generation]) -> Generation | None:
    found = [b for b in builds.values() if b.dataset.name == spec.output and b.state == "served"]
    return found[0] if found else None
