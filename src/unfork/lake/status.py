"""Owns what people are told about a lake: what it holds, and whether the pieces fit together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from unfork.chain import span as spans
from unfork.chain.span import Span
from unfork.lake.versions import Version, Versions


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetStatus:
    """What the lake holds of one dataset."""

    dataset: str
    #: The blocks it holds, as the fewest spans.
    spans: tuple[Span, ...]
    #: Current versions, and what is in them.
    versions: int
    rows: int
    bytes: int
    #: Versions that are being written now.
    writing: int
    #: Versions that garbage collection will remove, once it may.
    waiting: int
    #: The partition from which on hashes do not link to the one below; None where all do.
    unlinked: str | None


async def read(versions: Versions) -> list[DatasetStatus]:
    """What the lake of a chain holds, by dataset."""
    current = await versions.current(with_files=False)
    counts: dict[str, dict[str, int]] = {}
    for row in await versions.states():
        counts.setdefault(row["dataset"], {})[row["state"]] = row["versions"]
    found = []
    for dataset in sorted(counts):
        own = [version for version in current if version.dataset == dataset]
        broken = unlinked(own)
        found.append(
            DatasetStatus(
                dataset=dataset,
                spans=spans.merge(version.span for version in own),
                versions=len(own),
                rows=sum(version.rows for version in own),
                bytes=sum(version.size for version in own),
                writing=counts[dataset].get("writing", 0),
                waiting=counts[dataset].get("retired", 0) + counts[dataset].get("abandoned", 0),
                unlinked=None if broken is None else broken.key,
            )
        )
    return found


def unlinked(versions: Sequence[Version]) -> Version | None:
    """The first version, of one dataset by block, that does not link to the one it follows."""
    for below, above in itertools.pairwise(versions):
        if below.span.last + 1 == above.span.first and above.parent_hash != below.last.hash:
            return above
    return None
