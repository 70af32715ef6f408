"""Measures planning: what to do next, with 10,000 partitions and 100 open invalidations.

The state is that of a busy chain: a cursor job and a serial one at the head, a dataset cut into
10,000 partitions of which some are invalid, one that reads the partitions, and a daily one over ten
years. Planning is pure, so it is measured in the time of the processor; the median of many plans is
taken, each from the same state, with nothing kept from one to the next.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from datetime import UTC, date, datetime, timedelta

from benchmarks import harness
from benchmarks.harness import Measure, Report
from unfork.chain.advance import Day
from unfork.chain.block import BlockRef
from unfork.chain.span import Span
from unfork.datasets.derivation import ByBlocks, ByDay, Mode, Partitioning, Strategy
from unfork.jobs.lineage import Lineage
from unfork.jobs.plan import plan
from unfork.jobs.spec import JobSpec
from unfork.jobs.state import Fingerprint, Generation, Outdated, State, Version

#: Milliseconds that a plan may take.
MS_MAX = 20.0

#: Blocks of one partition.
SIZE = 1000
DAYS = 3650
#: Blocks above the floor.
ABOVE = 64
NOW = datetime(2026, 1, 1, tzinfo=UTC)

#: How jobs in mode partition cut the chain.
PARTITIONING: dict[str, Partitioning] = {
    "pages": ByBlocks(SIZE),
    "books": ByBlocks(10 * SIZE),
    "daily": ByDay(),
}


def job(name: str, *inputs: str, mode: Mode = Mode.CURSOR) -> JobSpec:
    """A job that writes a dataset of its own name."""
    return JobSpec(
        name=name,
        inputs=inputs,
        input_names=inputs,
        output=name,
        mode=mode,
        strategy=Strategy.MERGE if name == "balances" else Strategy.REPLACE,
        unique_key=("account",) if name == "balances" else (),
        partitioning=PARTITIONING.get(name),
        transform="module:function",
    )


def hash_of(number: int) -> bytes:
    """The hash of a block."""
    return hashlib.sha256(number.to_bytes(8, "big")).digest()


def made(partitions: int, invalidations: int) -> tuple[Lineage, State]:
    """A chain of so many partitions, and what is open in it."""
    head = partitions * SIZE - 1
    lineage = Lineage(
        [
            job("transfers", "logs"),
            job("balances", "transfers"),
            job("pages", "transfers", mode=Mode.PARTITION),
            job("books", "pages", mode=Mode.PARTITION),
            job("daily", "blocks", mode=Mode.PARTITION),
        ]
    )
    # The last one ends at the head, wherever the others do.
    length = -(-(head + 1) // min(DAYS, partitions))
    days = tuple(
        Day(date(2016, 1, 1) + timedelta(days=place), first, min(first + length - 1, head))
        for place, first in enumerate(range(0, head + 1, length))
    )
    refs = tuple(BlockRef(n, hash_of(n)) for n in range(head - ABOVE, head + 1))
    every = max(1, partitions // max(1, invalidations))
    wrong = frozenset(range(0, partitions, every))
    versions = {
        "transfers": tuple(
            version("transfers", f"{n}-{n + 49_999}", n, min(n + 49_999, head))
            for n in range(0, head + 1, 50_000)
        ),
        "pages": tuple(
            version("pages", f"{first}-{last}", first, last, is_valid=first // SIZE not in wrong)
            for first, last in (_bounds(n) for n in range(partitions))
        ),
        "books": tuple(
            version("books", f"{n}-{n + 10 * SIZE - 1}", n, min(n + 10 * SIZE - 1, head))
            for n in range(0, head + 1, 10 * SIZE)
        ),
        "daily": tuple(version("daily", d.date.isoformat(), d.first, d.last) for d in days),
    }
    builds = tuple(
        Generation(
            id=place,
            dataset=spec.output,
            number=1,
            first=0,
            config_hash=spec.name,
            schema_hash=spec.name,
            is_served=True,
            watermark=BlockRef(head, hash_of(head)),
            versions=versions.get(spec.output, ()),
        )
        for place, spec in enumerate(lineage.order, start=1)
    )
    pages = next(build.id for build in builds if build.dataset == "pages")
    return lineage, State(
        now=NOW,
        first=0,
        head=refs[-1],
        floor=refs[0],
        refs=refs,
        days=days,
        held=frozenset({"blocks", "logs"}),
        generations=builds,
        outdated=tuple(
            Outdated(
                id=number,
                generation=pages,
                span=Span(*_bounds(number)),
                reason="correction",
                dataset="transfers",
            )
            for number in sorted(wrong)[:invalidations]
        ),
        leases=(),
        paused=frozenset(),
        fingerprints={spec.name: Fingerprint(spec.name, spec.name) for spec in lineage.order},
    )


def version(job: str, key: str, first: int, last: int, *, is_valid: bool = True) -> Version:
    """A version of these blocks."""
    return Version(
        key=key,
        first=first,
        last=last,
        last_hash=hash_of(last),
        config_hash=job,
        is_valid=is_valid,
        rows=1000,
        at=NOW - timedelta(days=1),
    )


def _bounds(number: int) -> tuple[int, int]:
    """The blocks of a partition."""
    return number * SIZE, (number + 1) * SIZE - 1


def options(parser: argparse.ArgumentParser) -> None:
    """What may be chosen."""
    parser.add_argument("--partitions", type=int, default=10_000, help="partitions of a dataset")
    parser.add_argument("--invalidations", type=int, default=100, help="of them to do again")
    parser.add_argument("--repeats", type=int, default=51, help="plans, after one to warm up")


def run(chosen: argparse.Namespace) -> Report:
    """Plans again and again."""
    partitions, repeats = (200, 3) if chosen.quick else (chosen.partitions, chosen.repeats)
    lineage, state = made(partitions, chosen.invalidations)
    found = plan(lineage, state)
    runs = [one for one in found.runs if one.dataset == "pages"]
    assert runs and all(one.outdated for one in runs), "what is open is not planned"
    seconds = harness.turns(
        {"plan": lambda: plan(lineage, state)}, repeats=repeats, clock=time.process_time
    )
    return Report(
        measures=[
            Measure(
                name=f"a plan with {partitions:,} partitions, {chosen.invalidations} to do again",
                value=seconds["plan"] * 1000,
                unit="ms",
                at_most=MS_MAX,
            )
        ],
        details={
            "versions in the state": sum(len(one.versions) for one in state.generations),
            "runs planned": len(found.runs),
        },
    )


def main() -> int:
    """Runs the benchmark; 1 where a limit is missed."""
    return harness.main(__doc__, run, options)


if __name__ == "__main__":
    sys.exit(main())
