"""Owns the comparison of the lake with the chain: which versions are of another fork.

A version is tied to the chain by the hashes of its first and its last block, and to the partition
below by the hash of its parent. What a fork has left behind is found by them alone, without reading
a file. Repair takes its pointers away: those blocks are read from the hot tables then, until they
are compacted again. Blocks that no hot table holds any more are only reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from unfork.chain import span as spans
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.database.database import Database
from unfork.hot import schema as raw_schema
from unfork.lake.versions import Version, Versions

#: Blocks asked for in one statement.
AT_ONCE = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A version that is not of the chain, or does not link to the one below it."""

    dataset: str
    key: str
    span: Span
    version: int
    why: str
    #: Whether the hot tables hold its blocks, so that it can be compacted again.
    is_mendable: bool


async def find(raw: Database, chain: str, versions: Versions) -> list[Finding]:
    """Every version from the first one on that does not fit, by dataset and block."""
    current = await versions.current(with_files=False)
    numbers = {one.span.first for one in current} | {one.span.last for one in current}
    hashes = await _hashes(raw, chain, sorted(numbers))
    found = []
    for dataset in sorted({one.dataset for one in current}):
        own = [one for one in current if one.dataset == dataset]
        found += _unfit(own, hashes)
    return found


async def mend(versions: Versions, found: Sequence[Finding]) -> int:
    """Takes the pointers away from what can be compacted again; safe to repeat."""
    return await versions.retire([one.version for one in found if one.is_mendable])


def _unfit(versions: Sequence[Version], hashes: dict[int, bytes]) -> list[Finding]:
    """The versions of one dataset that do not fit; all above the first of them are doubtful."""
    found: list[Finding] = []
    below: Version | None = None
    for version in versions:
        why = _why(version, below, hashes)
        if why is None and found:
            why = f"it stands on partition {found[0].key}"
        if why is not None:
            found.append(
                Finding(
                    dataset=version.dataset,
                    key=version.key,
                    span=version.span,
                    version=version.version,
                    why=why,
                    is_mendable={version.span.first, version.span.last} <= hashes.keys(),
                )
            )
        below = version
    return found


def _why(version: Version, below: Version | None, hashes: dict[int, bytes]) -> str | None:
    """Why a version does not fit, None where it does as far as can be told."""
    for ref in (BlockRef(version.span.first, version.first_hash), version.last):
        known = hashes.get(ref.number)
        if known is not None and known != ref.hash:
            return f"it holds block {ref}, the chain has 0x{known.hex()[:10]} there"
    is_next = below is not None and below.span.last + 1 == version.span.first
    if below is not None and is_next and below.last.hash != version.parent_hash:
        return f"it does not link to partition {below.key}"
    return None


async def _hashes(raw: Database, chain: str, numbers: Sequence[int]) -> dict[int, bytes]:
    """The hashes of blocks that the raw store holds."""
    queries, found = raw_schema.bound(chain), {}
    for piece in spans.split(Span(0, len(numbers) - 1), AT_ONCE) if numbers else ():
        async with raw.session() as session:
            some = list(numbers[piece.first : piece.last + 1])
            for row in await session.rows(queries["chain_refs"], numbers=some):
                found[row["number"]] = row["hash"]
    return found
