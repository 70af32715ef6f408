"""Owns the survey: the state that plans are made from, read from the app database.

Everything comes from one statement, so it is of one moment: a plan never sees the refs of one fork
and the watermarks of another. What a job would compute with now is not in the database; it comes
from the catalog, once, when the process has loaded the code that it will run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from unfork.app import generations
from unfork.app import schema as app_schema
from unfork.app import state as app_state
from unfork.app.state import Follower
from unfork.chain.advance import Day
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.config import tree
from unfork.database.database import Database
from unfork.datasets.scope import Scope
from unfork.jobs import fingerprint, schema
from unfork.jobs.catalog import Catalog
from unfork.jobs.state import (
    Fingerprint,
    Generation,
    Kind,
    Lease,
    Outdated,
    State,
    Status,
    Version,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """A state, and what carrying out a plan made from it needs besides."""

    state: State
    #: The builds it speaks of as the app side knows them, by id.
    builds: Mapping[int, generations.Generation]


class Survey:
    """Reads the state of one chain's jobs."""

    def __init__(
        self,
        chain: str,
        database: Database,
        *,
        held: Iterable[str],
        fingerprints: Mapping[str, Fingerprint],
        has_calls: bool = True,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """`held` names the raw datasets that there are, `has_calls` says whether contracts can be
        read; `now` is for tests that bring a time.
        """
        self._chain = chain
        self._queries = schema.bound(chain)
        self._database = database
        self._held = frozenset(held)
        self._has_calls = has_calls
        self._now = now
        #: The versions of the last survey by their row: of ten thousand, few have changed since.
        self._versions: dict[tuple[Any, ...], Version] = {}
        #: What each job would compute with now.
        self.fingerprints: dict[str, Fingerprint] = dict(fingerprints)

    def learn(self, job: str, schema_hash: str) -> None:
        """Notes the columns that a job returns, once somebody asked Spark for them."""
        self.fingerprints[job] = replace(self.fingerprints[job], schema_hash=schema_hash)

    async def require(self) -> None:
        """Raises SchemaOutdated where the app side lacks migrations."""
        async with self._database.session() as session:
            await app_schema.migrations(self._chain).require(session)

    async def take(self) -> Surveyed:
        """The state now, in one round trip."""
        now = None if self._now is None else self._now()
        async with self._database.session() as session:
            row = await session.row(self._queries["survey"], now=now)
        assert row is not None
        return self._surveyed(row)

    def _surveyed(self, row: Mapping[str, Any]) -> Surveyed:
        follower = app_state.from_row(row)
        rows = [_build(one) for one in row["builds"]]
        builds = {build.id: build for build in generations.read(rows)}
        versions: dict[int, list[Version]] = defaultdict(list)
        known, self._versions = self._versions, {}
        for one in map(tuple, row["versions"]):
            version = self._versions[one] = known.get(one) or _version(one)
            versions[one[0]].append(version)
        state = State(
            now=row["now"],
            first=follower.first,
            head=follower.position,
            floor=follower.floor,
            refs=tuple(BlockRef(number, bytes.fromhex(hash)) for number, hash in row["refs"]),
            days=tuple(
                Day(date.fromisoformat(day), first, last) for day, first, last in row["days"]
            ),
            held=self._held,
            has_calls=self._has_calls,
            generations=tuple(
                _generation(build, follower, tuple(versions[build.id])) for build in builds.values()
            ),
            outdated=tuple(_outdated(one) for one in row["outdated"]),
            leases=tuple(_lease(one) for one in row["leases"]),
            paused=frozenset(row["paused"]),
            fingerprints=dict(self.fingerprints),
        )
        return Surveyed(state=state, builds=builds)


def fingerprints(catalog: Catalog) -> dict[str, Fingerprint]:
    """What each job of a catalog would compute with, its columns not known yet."""
    return {
        spec.name: Fingerprint(
            fingerprint.config_hash(spec, catalog.folder),
            checks_hash=fingerprint.checks_hash(spec),
        )
        for spec in catalog.lineage.order
        if spec.is_planned
    }


def held(chain: tree.Chain) -> frozenset[str]:
    """The raw datasets that a chain's scope fetches."""
    return frozenset(Scope(kind=chain.scope.kind, traces=chain.traces).datasets)


def _build(row: dict[str, Any]) -> dict[str, Any]:
    """A row of builds as the app side reads it."""
    return {**row, "cursor_hash": _bytes(row["cursor_hash"])}


def _generation(
    build: generations.Generation, follower: Follower, versions: tuple[Version, ...]
) -> Generation:
    return Generation(
        id=build.id,
        dataset=build.dataset.name,
        number=build.number,
        first=build.first,
        config_hash=build.config_hash,
        schema_hash=build.schema_hash,
        is_served=build.state == "served",
        watermark=build.watermark,
        history_floor=_undone_above(build, follower),
        versions=versions,
    )


def _undone_above(build: generations.Generation, follower: Follower) -> int | None:
    """The block up to which changes of a build cannot be undone, None where all can."""
    floors = [follower.history_floor, build.history_floor]
    floors.append(None if follower.floor is None else follower.floor.number)
    lowest = max((floor for floor in floors if floor is not None), default=-1)
    return lowest if lowest >= build.first else None


def _version(row: tuple[Any, ...]) -> Version:
    _, key, first, last, last_hash, config_hash, is_valid, rows, at = row
    return Version(
        key=key,
        first=first,
        last=last,
        last_hash=_bytes(last_hash),
        config_hash=config_hash,
        is_valid=is_valid,
        rows=rows,
        at=datetime.fromisoformat(at),
    )


def _outdated(row: list[Any]) -> Outdated:
    id, generation, first, last, reason, dataset = row
    return Outdated(
        id=id, generation=generation, span=Span(first, last), reason=reason, dataset=dataset
    )


def _lease(row: list[Any]) -> Lease:
    id, generation, kind, first, last, status, attempt, not_before, config_hash, last_hash = row
    return Lease(
        id=id,
        generation=generation,
        kind=Kind(kind),
        span=Span(first, last),
        status=Status(status),
        attempt=attempt,
        not_before=None if not_before is None else datetime.fromisoformat(not_before),
        config_hash=config_hash,
        last_hash=_bytes(last_hash),
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
