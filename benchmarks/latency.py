"""Measures the time from the announcement of a block to the moment another reader can see its row.

A devnet, `unfork ingest` and Postgres run in processes of their own. Each block is announced alone,
after the one before was seen and after a pause of random length, as at the head of a chain; the
clock starts right before the node tells its subscribers. It stops when a connection that does
nothing but look finds the block's row, by number and hash. Looking, once a millisecond, is
preferred to commit timestamps: Postgres takes those before the commit is flushed and visible, so
they would flatter us; a look adds up to a millisecond and a half instead.

Measured over blocks as dense as the devnet's own, which the limit is for; over heavy ones; over
forks, until the new head is visible; and, as the naive way, with a follower that only polls.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks import harness
from benchmarks.harness import Measure, Report
from benchmarks.processes import Node, Place, Watch, place

#: What the median must not exceed, in milliseconds.
MEDIAN_MS_MAX = 50.0

#: Nobody listens here, so a follower that is sent here for announcements gets none.
NOWHERE = "ws://127.0.0.1:9"

#: Blocks before anything counts, one of so many: connections, caches and the first partitions.
WARM_UP = 10
#: Seconds between two blocks at most; the shortest pause is a fifth of it.
PAUSE_S = 0.15
#: The same where nothing is announced: blocks come at any moment between two polls.
PAUSE_POLLED_S = 1.0


@dataclass
class Samples:
    """Latencies of one kind of block."""

    values_ms: list[float] = field(default_factory=list)
    transactions: list[int] = field(default_factory=list)
    logs: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values_ms)

    def told(self) -> dict[str, Any]:
        """What these samples say beyond their median."""
        return {
            "samples": len(self.values_ms),
            "p90_ms": round(harness.percentile(self.values_ms, 90), 1),
            "p99_ms": round(harness.percentile(self.values_ms, 99), 1),
            "transactions": round(statistics.mean(self.transactions)),
            "logs": round(statistics.mean(self.logs)),
        }


def main() -> int:
    """Runs the benchmark and prints its verdict."""
    return harness.main(__doc__, run, options)


def options(parser: argparse.ArgumentParser) -> None:
    """The sizes, for experiments."""
    parser.add_argument("--blocks", type=int, default=400, help="light blocks")


def run(chosen: argparse.Namespace) -> Report:
    """Measures one kind of block after the other."""
    blocks = 8 if chosen.quick else chosen.blocks
    found: dict[str, Samples] = {}
    with place() as where:
        with where.node(density=6, fork_rate=0.0) as node:
            harness.tell(f"{blocks} light blocks, then {blocks // 4} forks")
            began = time.monotonic()
            with _followed(where, node, "light", node.http, node.ws) as watch:
                started_s = time.monotonic() - began
                found["light"] = _measured(watch, blocks, node.extend)
                found["fork"] = _measured(watch, blocks // 4, lambda: _fork(node))
            harness.tell(f"{blocks // 8} light blocks without announcements")
            with _followed(where, node, "polled", node.http, NOWHERE) as watch:
                found["polled"] = _measured(watch, blocks // 8, node.extend, PAUSE_POLLED_S)
        with where.node(density=300, fork_rate=0.0) as node:
            harness.tell(f"{blocks // 2} heavy blocks")
            with _followed(where, node, "heavy", node.http, node.ws) as watch:
                found["heavy"] = _measured(watch, blocks // 2, node.extend)
    light, polled = found["light"].median, found["polled"].median
    measures = [
        _median("announced to visible, light blocks, median", light, at_most=MEDIAN_MS_MAX),
        _median("announced to visible, heavy blocks, median", found["heavy"].median),
        _median("announced to visible, head after a fork, median", found["fork"].median),
        _median("polling only, light blocks, median", polled),
        Measure(name="polling over announcements", value=polled / light, unit="x"),
        Measure(name="start of the command to its first row", value=started_s, unit="s"),
    ]
    return Report(
        measures=measures, details={name: samples.told() for name, samples in found.items()}
    )


def _median(name: str, value: float, *, at_most: float | None = None) -> Measure:
    return Measure(name=name, value=value, unit="ms", at_most=at_most)


def _measured(
    watch: Watch, blocks: int, move: Callable[[], dict[str, Any]], pause_s: float = PAUSE_S
) -> Samples:
    """Moves the node so often and times each movement."""
    samples = Samples()
    dice = random.Random(1)
    warm_up = blocks // WARM_UP
    for count in range(warm_up + blocks):
        time.sleep(dice.uniform(pause_s / 5, pause_s))
        told = move()
        seen = watch.seen(told["number"], told["hash"])
        if count < warm_up:
            continue
        samples.values_ms.append(1000 * (seen - told["at"]))
        samples.transactions.append(told["transactions"])
        samples.logs.append(told["logs"])
    return samples


def _fork(node: Node) -> dict[str, Any]:
    """Replaces one to three blocks by one more than there were."""
    depth = random.randint(1, 3)
    return node.fork(depth=depth, length=depth + 1)


@contextmanager
def _followed(where: Place, node: Node, chain: str, *urls: str) -> Iterator[Watch]:
    """A follower that has reached the node's head."""
    with where.follower(chain, *urls), where.watch(chain) as watch:
        watch.reached(node.extend()["number"])
        yield watch


if __name__ == "__main__":
    sys.exit(main())
