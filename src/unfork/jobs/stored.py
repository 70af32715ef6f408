"""Owns the question what of derived data is stored, and still is what would be computed now.

It is asked by whoever reads beside the workers: an app side that has not followed a fork yet holds
blocks that the raw store holds no longer, and a build may be of other code than there is now.
"""

from __future__ import annotations

from unfork.chain.span import Span
from unfork.datasets.derivation import Mode
from unfork.jobs.lineage import Lineage
from unfork.jobs.spark.place import Place
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import Generation, State
from unfork.jobs.view import View


class Stored:
    """The served builds of one chain, at one moment."""

    def __init__(self, place: Place, lineage: Lineage, state: State | None) -> None:
        """`state` is the survey's; None where nothing was ever computed."""
        is_empty = state is None or state.head is None or state.first is None
        self._view = None if is_empty or state is None else View(lineage, state)
        self._place = place
        self._lineage = lineage
        self._last_shared: int | None = None

    def up_to(self, name: str) -> int | None:
        """The last block that the served build of a dataset includes, None where there is none."""
        view = self._view
        readable = None if view is None else view.readable(name)
        if view is None or readable is None or view.served(name) is None:
            return None
        last, shared = readable.last, self._shared(view)
        if last > shared:
            # A fork that no worker has followed yet: what cannot be cut is not what it was.
            last = shared if readable.is_cuttable else -1
        return last if last >= view.first else None

    def holds(self, name: str, span: Span) -> bool:
        """Whether a dataset can be read over a span, as it would be computed now."""
        last = self.up_to(name)
        if last is None or self._view is None:
            return False
        writer, served = self._lineage.writer(name), self._view.served(name)
        assert writer is not None and served is not None
        if not self._is_of_now(writer, served) or span.first < served.first:
            return False
        if self._has_hole(name, span):
            return False
        if writer.is_state:
            return last == span.last
        if writer.partitioning is not None:
            return span.last == last or _ends_versions(served, span, last)
        return span.last <= last

    def covered(self, spec: JobSpec, span: Span) -> Span | None:
        """The blocks of a span whose rows the served build holds, of whatever code."""
        last = self.up_to(spec.output)
        if last is None or self._view is None or self._has_hole(spec.output, span):
            return None
        served = self._view.served(spec.output)
        assert served is not None
        if spec.mode is Mode.CURSOR:
            first, last = max(span.first, served.first), min(span.last, last)
            return Span(first, last) if first <= last else None
        is_whole = spec.mode is Mode.PARTITION and _ends_versions(served, span, last)
        return span if is_whole or span.last == last else None

    def _is_of_now(self, writer: JobSpec, served: Generation) -> bool:
        """Whether all of a build was computed with what its job says now."""
        assert self._view is not None
        now = self._view.state.fingerprints.get(writer.name)
        hashes = {version.config_hash for version in served.versions} or {served.config_hash}
        is_same = now is not None and hashes == {now.config_hash}
        return is_same and now is not None and now.schema_hash in (None, served.schema_hash)

    def _has_hole(self, name: str, span: Span) -> bool:
        """Whether blocks of a span are to be computed again first."""
        readable = None if self._view is None else self._view.readable(name)
        return readable is None or any(hole.overlaps(span) for hole in readable.holes)

    def _shared(self, view: View) -> int:
        """The last block that the app side knows and the raw store still holds."""
        if self._last_shared is None:
            self._last_shared = view.refs_first - 1
            with self._place.raw() as connection, connection.one_state(None):
                for ref in reversed(view.state.refs):
                    row = connection.row(self._place.queries["read_ref"], ref.number)
                    if row is not None and row["hash"] == ref.hash:
                        self._last_shared = ref.number
                        break
        return self._last_shared


def _ends_versions(served: Generation, span: Span, last: int) -> bool:
    """Whether stored partitions hold exactly these blocks."""
    firsts = {version.first for version in served.versions}
    lasts = {version.last for version in served.versions}
    return span.last <= last and span.first in firsts and span.last in lasts
