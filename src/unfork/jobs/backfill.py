"""Owns the proposal of a backfill: what a person's wish means for a dataset, and what it costs.

Rows are done again in place where that never mixes what must not be mixed: the build was made with
the job's code and columns of now, or goes on through a change anyway (`on_change: continue`); its
blocks do not depend on each other, or can be undone; and old rows do not stay beside the new ones.
Otherwise the dataset is built anew beside the served build, which stays until the swap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.datasets.derivation import Mode, Strategy
from unfork.jobs.partition import Grid
from unfork.jobs.spec import JobSpec, OnChange
from unfork.jobs.state import Fingerprint, Generation, Outdated, State, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """Do these blocks again where they are: an invalidation of reason `manual`."""

    spans: tuple[Span, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anew:
    """Build the dataset anew from its first block, and swap."""

    spans: tuple[Span, ...]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nothing:
    """There is nothing to do."""

    why: str


Proposal = InPlace | Anew | Nothing


def propose(spec: JobSpec, state: State, wanted: Sequence[Span] | None) -> Proposal:
    """What it takes to compute blocks of a job's dataset again; None wants all of them."""
    served = _served(spec, state)
    if served is None or served.is_empty:
        return Nothing(why="nothing of it was computed yet; a worker begins by itself")
    whole = Span(served.first, _last(served))
    if wanted is not None and not wanted:
        return Nothing(why="no block of it was computed with other code or settings")
    fingerprint = state.fingerprints[spec.name]
    obstacle = _obstacle(spec, served, fingerprint)
    if obstacle is not None:
        return Anew(spans=(whole,), why=obstacle)
    asked = [whole] if wanted is None else wanted
    inside = spans.merge(part for span in asked if (part := spans.intersect(span, whole)))
    if not inside:
        return Nothing(why=f"it ends at block {whole.last}")
    if spec.is_serial:
        floor = served.history_floor
        if floor is not None and inside[0].first <= floor:
            why = f"blocks up to {floor} cannot be undone any more"
            return Anew(spans=(whole,), why=why)
        inside = (Span(inside[0].first, whole.last),)
        return InPlace(spans=inside, why="undone from the first block on and computed again")
    if spec.mode is Mode.FULL:
        return InPlace(spans=(whole,), why="computed again as a whole")
    if spec.partitioning is not None:
        grid = Grid(spec.partitioning, first=whole.first, last=whole.last, days=state.days)
        wide = (grid.widen(span) for span in inside)
        inside = spans.merge(span for span in wide if span is not None)
        return InPlace(spans=inside, why="computed again a partition at a time")
    return InPlace(spans=inside, why="computed again in place")


def stale_spans(spec: JobSpec, state: State) -> tuple[Span, ...]:
    """The blocks of a job's dataset that were computed with other code or settings."""
    served = _served(spec, state)
    if served is None or served.is_empty:
        return ()
    now = state.fingerprints[spec.name].config_hash
    old = [v for v in served.versions if v.config_hash != now]
    if not served.versions and served.config_hash != now:
        return (Span(served.first, _last(served)),)
    return spans.merge(Span(version.first, version.last) for version in old)


def applied(spec: JobSpec, state: State, proposal: Proposal) -> State:
    """The state as it will be once the proposal is put on record, to plan and to count by."""
    served = _served(spec, state)
    match proposal:
        case InPlace(spans=parts):
            assert served is not None
            rows = [
                Outdated(
                    id=-1 - index,
                    generation=served.id,
                    span=span,
                    reason="manual",
                    dataset=spec.output,
                )
                for index, span in enumerate(parts)
            ]
            versions = tuple(
                dataclasses.replace(
                    version,
                    is_valid=version.is_valid
                    and (spec.mode is Mode.CURSOR or not _touches(version, parts)),
                )
                for version in served.versions
            )
            marked = dataclasses.replace(served, versions=versions)
            generations = [marked if one is served else one for one in state.generations]
            outdated = (*state.outdated, *rows)
            return dataclasses.replace(state, generations=tuple(generations), outdated=outdated)
        case Anew():
            assert served is not None and state.first is not None
            wanted = state.fingerprints[spec.name]
            if any(_is_begun(one, spec, wanted) for one in state.generations):
                return state
            others = [one for one in state.generations if _is_other(one, spec)]
            building = Generation(
                id=-1,
                dataset=spec.output,
                number=served.number + 1,
                first=state.first,
                config_hash=wanted.config_hash,
                schema_hash=wanted.schema_hash or served.schema_hash,
                is_served=False,
                watermark=None,
            )
            return dataclasses.replace(state, generations=(*others, building))
        case Nothing():
            return state


def left(spec: JobSpec, state: State) -> int:
    """Blocks that are still to be computed of what was asked for; 0 once all of it is served."""
    if state.head is None:
        return 0
    known = Span(0, state.head.number)
    for one in state.generations:
        if one.dataset == spec.output and not one.is_served:
            done = spans.merge(Span(v.first, v.last) for v in one.versions if v.is_valid)
            if one.watermark is not None:
                done = spans.merge([*done, Span(one.first, max(one.first, one.next - 1))])
            whole = spans.intersect(Span(one.first, max(one.first, known.last)), known)
            # What is complete and waits for its swap is not done yet.
            return max(1, sum(map(len, spans.subtract([whole] if whole else [], done))))
    served = _served(spec, state)
    asked = [
        inside
        for row in state.outdated
        if served is not None and row.generation == served.id and row.reason == "manual"
        if (inside := spans.intersect(row.span, known)) is not None
    ]
    return sum(map(len, spans.merge(asked)))


def _touches(version: Version, parts: Sequence[Span]) -> bool:
    return any(part.overlaps(Span(version.first, version.last)) for part in parts)


def _is_begun(one: Generation, spec: JobSpec, wanted: Fingerprint) -> bool:
    """Whether a build is the one that is wanted, already begun."""
    is_same_schema = wanted.schema_hash in (None, one.schema_hash)
    is_beside = one.dataset == spec.output and not one.is_served
    return is_beside and is_same_schema and one.config_hash == wanted.config_hash


def _is_other(one: Generation, spec: JobSpec) -> bool:
    """Whether a build stays where another one is begun for a job."""
    return one.dataset != spec.output or one.is_served


def _obstacle(spec: JobSpec, served: Generation, fingerprint: Fingerprint) -> str | None:
    """Why a served build cannot be mended in place, None where it can."""
    if fingerprint.schema_hash not in (None, served.schema_hash):
        return "its columns changed, and two schemas are never mixed"
    is_old = any(v.config_hash != fingerprint.config_hash for v in served.versions)
    if spec.strategy is Strategy.APPEND and is_old:
        return "its code or settings changed, and append would leave the old rows beside the new"
    if served.config_hash == fingerprint.config_hash:
        return None
    if spec.is_serial:
        return "its code or settings changed, and its rows gather several blocks"
    if spec.on_change is OnChange.STOP:
        return "its code or settings changed, and the old rows are served until all are new"
    return None


def _served(spec: JobSpec, state: State) -> Generation | None:
    found = [g for g in state.generations if g.dataset == spec.output and g.is_served]
    return found[0] if found else None


def _last(served: Generation) -> int:
    ends = [version.last for version in served.versions[-1:]]
    return max([served.next - 1, *ends])
