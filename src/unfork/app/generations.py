"""Owns the builds of derived datasets: one is served, another may be built beside it, then swapped.

A changed schema, or any change to a dataset whose rows gather several blocks, cannot be mended in
place: two versions of a rule would be mixed in one table. So a new build gets a table of its own
and follows the chain like the served one, until one transaction puts it in its place.

Invariants: a dataset has at most one served and one building generation; what is read under its
name is one of them as a whole; a retired one takes no more rows.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from unfork import errors, telemetry
from unfork.app import derived, invalidations, schema, state, tables
from unfork.app.derived import DerivedDataset
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database import migrate
from unfork.database.database import Database
from unfork.database.queries import Queries
from unfork.database.session import Session

log = telemetry.logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One build of a dataset, as it was at one moment."""

    id: int
    #: What it is, as it was declared when it was made.
    dataset: DerivedDataset
    #: Its place among the builds of the dataset, from 1.
    number: int
    #: The table that holds its rows.
    table: str
    #: What its rows are computed with.
    config_hash: str
    schema_hash: str
    #: The first block it is computed from.
    first: int
    state: Literal["building", "served", "retired"]
    #: The last block up to which it is complete; None while nothing is.
    watermark: BlockRef | None
    #: Changes of blocks at or below this left no history.
    history_floor: int | None

    @property
    def next(self) -> int:
        """The first block that it does not include yet."""
        return self.first if self.watermark is None else self.watermark.number + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as the database knows it."""

    name: str
    dataset: str
    inputs: tuple[str, ...]
    is_paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NotReady:
    """A build has not come as far as the one it is to replace; nothing was changed."""

    #: Where the build stands.
    building: BlockRef | None
    #: Where the served one stands.
    served: BlockRef | None


class Generations:
    """The builds of one chain's datasets."""

    def __init__(self, chain: str, database: Database, *, lock_timeout_ms: int = 500) -> None:
        self._schema = schema.name(chain)
        self._queries = schema.bound(chain)
        self._database = database
        self._lock_timeout_ms = lock_timeout_ms

    async def all(self) -> list[Generation]:
        """Every build there is, in the order they were made."""
        async with self._database.session() as session:
            return read(await session.rows(self._queries["generations_all"]))

    async def served(self, dataset: str) -> Generation | None:
        """The build that is read under a dataset's name."""
        every = await self.all()
        found = [one for one in every if one.dataset.name == dataset and one.state == "served"]
        return found[0] if found else None

    async def register(
        self, dataset: DerivedDataset, *, config_hash: str, first: int
    ) -> Generation:
        """The served build of a dataset; makes job, table and view where there are none.

        An existing build is returned as it is, also where it was made with another schema or
        configuration: what follows from that is the caller's decision. Safe to repeat.
        """
        async with self._database.session() as session, self._changing(session):
            await self._record_job(session, dataset)
            for known in await self._lock(session, dataset.name):
                if known.state == "served":
                    return known
            made = await make(
                session,
                self._queries,
                self._schema,
                dataset,
                config_hash=config_hash,
                first=first,
                state="served",
            )
        telemetry.event(log, "generation_made", dataset=dataset.name, generation=made.number)
        return made

    async def build(
        self,
        dataset: DerivedDataset,
        *,
        config_hash: str,
        first: int,
        beside: int | None = None,
        broken: int | None = None,
    ) -> Generation:
        """A build beside the served one; an unfinished one for something else is given up.

        So is the unfinished one that is `broken`, though it is for the same.

        Safe to repeat: the same declaration and configuration give the same build. With `beside`
        nothing is made where another build than that one is served meanwhile; it is returned.
        """
        async with self._database.session() as session, self._changing(session):
            await self._record_job(session, dataset)
            every = await self._lock(session, dataset.name)
            for known in every:
                if beside is not None and known.state == "served" and known.id != beside:
                    return known
            for known in every:
                if known.state != "building":
                    continue
                made_with = (known.schema_hash, known.config_hash, known.first)
                is_same = made_with == (dataset.schema_hash, config_hash, first)
                if is_same and known.id != broken:
                    return known
                await session.run(self._queries["generations_state"], id=known.id, state="retired")
            made = await make(
                session,
                self._queries,
                self._schema,
                dataset,
                config_hash=config_hash,
                first=first,
                state="building",
            )
        telemetry.event(log, "generation_building", dataset=dataset.name, generation=made.number)
        return made

    async def swap(
        self, dataset: str, *, generation: int | None = None, behind_max: int = 0
    ) -> Generation | NotReady:
        """Serves the build of a dataset instead of the served one, in one transaction.

        It must have come as far, but for `behind_max` blocks. What reads the dataset is
        invalidated. Safe to repeat: without a build, or where it is not the `generation` that is
        meant, the served one is returned.
        """
        async with self._database.session() as session, self._changing(session):
            # Every build is locked: those that read this one are about to be invalidated.
            every = read(await session.rows(self._queries["generations_lock_all"]))
            by_state = {one.state: one for one in every if one.dataset.name == dataset}
            served, building = by_state.get("served"), by_state.get("building")
            assert served is not None, f"{dataset} was never registered"
            if building is None or generation not in (None, building.id):
                return served
            if building.next + behind_max < served.next:
                return NotReady(building=building.watermark, served=served.watermark)
            for one, state_now in ((served, "retired"), (building, "served")):
                await session.run(self._queries["generations_state"], id=one.id, state=state_now)
            drop = self._queries.of("generations_drop_view", dataset, dataset=dataset)
            await session.run(drop)
            view = tables.view(self._queries, building.dataset, building.table, building.id)
            await session.run(view)
            same = served.schema_hash == building.schema_hash
            await invalidations.cascade(
                session,
                self._queries,
                dataset=dataset,
                spans=[Span(served.first, max(served.next, building.next, served.first))],
                reason="correction" if same else "schema_change",
                event={"generation": building.number},
            )
        telemetry.event(log, "generation_served", dataset=dataset, generation=building.number)
        return building

    async def abandon(self, dataset: str, *, generation: int | None = None) -> bool:
        """Gives up the build of a dataset, or that `generation` of it; whether there was one."""
        async with self._database.session() as session, self._changing(session):
            for known in await self._lock(session, dataset):
                if known.state == "building" and generation in (None, known.id):
                    query = self._queries["generations_state"]
                    await session.run(query, id=known.id, state="retired")
                    return True
        return False

    async def go_on(
        self, generation: Generation, *, config_hash: str, dataset: DerivedDataset | None = None
    ) -> None:
        """Lets a build go on with another configuration; its versions tell from which block on.

        `dataset` is what is declared now, where that changed; the columns must not have.
        """
        declared = dataset or generation.dataset
        assert declared.schema_hash == generation.schema_hash, "two schemas are never mixed"
        async with self._database.session() as session, self._changing(session):
            await self._record_job(session, declared)
            await session.run(
                self._queries["generations_declare"],
                id=generation.id,
                config_hash=config_hash,
                declaration=json.dumps(declared.document()),
            )

    async def drop_retired(self, *, keep_s: float) -> list[str]:
        """Removes the tables of builds retired that long ago, and returns their names."""
        dropped = []
        async with self._database.session() as session:
            found = await session.rows(self._queries["generations_retired"], keep_s=keep_s)
            for row in found:
                table = row["table_name"]
                async with self._changing(session):
                    await session.run(self._queries.made("generations_drop_table", table=table))
                    await session.run(self._queries["generations_forget"], id=row["id"])
                dropped.append(table)
        return dropped

    async def jobs(self) -> list[Job]:
        """Every job there is, declared still or not."""
        async with self._database.session() as session:
            rows = await session.rows(self._queries["generations_jobs"])
        return [
            Job(
                name=row["job"],
                dataset=row["dataset"],
                inputs=tuple(row["inputs"]),
                is_paused=row["is_paused"],
            )
            for row in rows
        ]

    async def note(self, jobs: Iterable[Job]) -> None:
        """Records jobs that have no build yet, so that they can be paused before they begin."""
        async with self._database.session() as session:
            for job in jobs:
                await session.run(
                    self._queries["generations_note"],
                    job=job.name,
                    dataset=job.dataset,
                    inputs=list(job.inputs),
                )

    async def pause(self, job: str | None, *, is_paused: bool = True) -> list[str]:
        """Pauses a job (all of them with None) or lets it go on; returns the jobs meant."""
        async with self._database.session() as session:
            query = self._queries["generations_pause"]
            rows = await session.rows(query, job=job, is_paused=is_paused)
        return [row["job"] for row in rows]

    @asynccontextmanager
    async def _changing(self, session: Session) -> AsyncIterator[None]:
        """A transaction in which nobody else changes which builds there are."""
        key = migrate.advisory_key("generations", self._schema)
        async with session.transaction():
            await session.run(self._queries["generations_turn"], key=key)
            # A view that is being read cannot be replaced; waiting long would stop new readers.
            timeout = f"{self._lock_timeout_ms}ms"
            await session.run(self._queries["generations_patience"], timeout=timeout)
            yield

    async def _lock(self, session: Session, dataset: str) -> list[Generation]:
        return read(await session.rows(self._queries["generations_lock"], dataset=dataset))

    async def _record_job(self, session: Session, dataset: DerivedDataset) -> None:
        writer = await session.row(self._queries["generations_writer"], dataset=dataset.name)
        if writer is not None and writer["job"] != dataset.job:
            raise errors.ConfigInvalid(
                f"dataset `{dataset.name}` is written by job `{writer['job']}`, not by "
                f"`{dataset.job}`; one job writes a dataset"
            )
        await session.run(
            self._queries["generations_job"],
            job=dataset.job,
            dataset=dataset.name,
            inputs=list(dataset.inputs),
        )


async def replace(session: Session, queries: Queries, schema: str, old: Generation) -> Generation:
    """Puts an empty build in the place of one that can no longer be mended."""
    await session.run(queries["generations_state"], id=old.id, state="retired")
    assert old.state != "retired"
    new = await make(
        session,
        queries,
        schema,
        old.dataset,
        config_hash=old.config_hash,
        first=old.first,
        state=old.state,
    )
    telemetry.event(log, "generation_replaced", dataset=old.dataset.name, generation=new.number)
    return new


async def make(
    session: Session,
    queries: Queries,
    schema: str,
    dataset: DerivedDataset,
    *,
    config_hash: str,
    first: int,
    state: Literal["building", "served"],
) -> Generation:
    """Makes a build with its table and its watermark; a served one is read under its name."""
    row = await session.row(
        queries["generations_insert"],
        dataset=dataset.name,
        job=dataset.job,
        declaration=json.dumps(dataset.document()),
        config_hash=config_hash,
        schema_hash=dataset.schema_hash,
        first=first,
        state=state,
    )
    assert row is not None
    nothing = {"cursor_value": None, "cursor_hash": None, "history_floor": None}
    made = _generation({**row, **nothing})
    await _require_free(session, queries, schema, dataset, made.table)
    column = dataset.number_column
    await session.run(
        queries["generations_cursor"], id=made.id, job=dataset.job, cursor_column=column
    )
    for statement in tables.create(queries, dataset, made.table):
        await session.run(statement)
    if state == "served":
        await session.run(queries.of("generations_drop_view", dataset.name, dataset=dataset.name))
        await session.run(tables.view(queries, dataset, made.table, made.id))
    return made


async def _require_free(
    session: Session, queries: Queries, schema: str, dataset: DerivedDataset, table: str
) -> None:
    """Raises unless table and view may be called so: they share a schema with our own tables."""
    names = [table, dataset.name]
    for taken in await session.rows(queries["generations_names"], schema=schema, names=names):
        if taken["dataset"] != dataset.name:
            raise errors.ConfigInvalid(
                f"dataset `{dataset.name}` of job `{dataset.job}`: {schema} has something else "
                f"that is called {taken['name']}; choose another name"
            )


def read(rows: Sequence[Mapping[str, Any]]) -> list[Generation]:
    """Reads builds with their watermarks."""
    return [_generation(row) for row in rows]


def _generation(row: Mapping[str, Any]) -> Generation:
    return Generation(
        id=row["id"],
        dataset=derived.from_document(row["declaration"]),
        number=row["generation"],
        table=row["table_name"],
        config_hash=row["config_hash"],
        schema_hash=row["schema_hash"],
        first=row["first_number"],
        state=row["state"],
        watermark=state.ref(row["cursor_value"], row["cursor_hash"]),
        history_floor=row["history_floor"],
    )
