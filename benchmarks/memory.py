"""Measures the memory of a follower over 100,000 blocks, and how fast it takes them.

A devnet, `unfork ingest` and Postgres run in processes of their own. The devnet grows ahead of the
follower, so that the follower is catching up all the time and the devnet may forget what it served;
the last blocks come one by one, every tenth time as a fork, as at the head of a chain. Resident
memory is looked at several times a second; its peak is the kernel's own figure. Growth compares
medians over the first and the last third of the blocks.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks import harness
from benchmarks.harness import Measure, Report
from benchmarks.processes import Node, Watch, place

#: What the follower's memory must not exceed, in megabytes.
PEAK_MB_MAX = 300.0

#: How far the devnet stays ahead of the follower at least, and by how much it grows at once.
AHEAD, STRIDE = 2_000, 500
#: Blocks the devnet holds; more than it is ever ahead.
KEEP_BLOCKS = 4_096
#: One of so many blocks comes alone, at the head.
SHARE_AT_HEAD = 200
#: Seconds between two looks while nothing else is to be done.
PAUSE_S = 0.05
#: Seconds between two lines that tell how far it is.
TELL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one look at the follower showed."""

    position: int
    memory_mb: float


@dataclass
class Observer:
    """Looks at a follower from outside."""

    process: psutil.Process
    watch: Watch
    samples: list[Sample] = field(default_factory=list)
    _told: float = 0.0

    def look(self) -> int:
        """Takes a sample and returns the position."""
        position = self.watch.position()
        memory_mb = self.process.memory_info().rss / 1e6
        self.samples.append(Sample(position=position, memory_mb=memory_mb))
        if time.monotonic() - self._told > TELL_S:
            self._told = time.monotonic()
            harness.tell(f"block {position:,}: {memory_mb:.0f} MB")
        return position

    def peak_mb(self) -> float:
        """The most that was ever resident: the kernel's figure, or the largest sample's."""
        seen = max(sample.memory_mb for sample in self.samples)
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return seen
        found = [row for row in status.read_text().splitlines() if row.startswith("VmHWM")]
        return max(seen, int(found[0].split()[1]) * 1024 / 1e6)

    def growth_mb(self) -> float:
        """How much more is resident in the last third of the blocks than in the first."""
        blocks = max(sample.position for sample in self.samples) + 1
        first = [one.memory_mb for one in self.samples if 0 <= one.position < blocks / 3]
        last = [one.memory_mb for one in self.samples if one.position >= blocks * 2 / 3]
        return statistics.median(last) - statistics.median(first)


def main() -> int:
    """Runs the benchmark and prints its verdict."""
    return harness.main(__doc__, run, options)


def options(parser: argparse.ArgumentParser) -> None:
    """The size, for experiments."""
    parser.add_argument("--blocks", type=int, default=100_000, help="blocks to follow")
    parser.add_argument("--density", type=int, default=2, help="transactions in a block")


def run(chosen: argparse.Namespace) -> Report:
    """Follows so many blocks and looks on."""
    blocks = 600 if chosen.quick else chosen.blocks
    at_head = max(blocks // SHARE_AT_HEAD, 5)
    with (
        place() as where,
        where.node(density=chosen.density, fork_rate=0.0, keep_blocks=KEEP_BLOCKS) as node,
        where.follower("long", node.http, node.ws) as process,
        where.watch("long") as watch,
        _observed(process, watch) as observer,
    ):
        took_s = _catch_up(node, observer, blocks - at_head)
        used = observer.process.cpu_times()
        caught_up_mb = observer.samples[-1].memory_mb
        _follow(node, observer, at_head)
        measures = [
            Measure(
                name=f"peak memory over {blocks:,} blocks",
                value=observer.peak_mb(),
                unit="MB",
                at_most=PEAK_MB_MAX,
            ),
            Measure(name="growth, first to last third", value=observer.growth_mb(), unit="MB"),
            Measure(name="catching up", value=(blocks - at_head) / took_s, unit="blocks/s"),
        ]
        details = {
            "samples": len(observer.samples),
            "caught_up_mb": round(caught_up_mb, 1),
            "catching_up_s": round(took_s, 1),
            "follower_cpu_s": round(used.user + used.system, 1),
        }
    return Report(measures=measures, details=details)


@contextmanager
def _observed(process: subprocess.Popen[bytes], watch: Watch) -> Iterator[Observer]:
    """An observer of a follower that has made its tables and committed its first block."""
    watch.reached(0)
    yield Observer(process=psutil.Process(process.pid), watch=watch)


def _catch_up(node: Node, observer: Observer, blocks: int) -> float:
    """Lets the follower run behind the node; the seconds it took."""
    began = time.monotonic()
    head = 0
    while (position := observer.look()) < blocks - 1:
        if head < blocks - 1 and head - position < AHEAD:
            head = int(node.grow(min(head + STRIDE, blocks - 1))["number"])
        else:
            time.sleep(PAUSE_S)
    return time.monotonic() - began


def _follow(node: Node, observer: Observer, blocks: int) -> None:
    """Lets blocks come one by one, and forks among them."""
    dice = random.Random(1)
    for number in range(blocks):
        if number % 10 == 9:
            depth = dice.randint(1, 30)
            told = node.fork(depth=min(depth, number), length=min(depth, number) + 1)
        else:
            told = node.extend()
        observer.watch.seen(told["number"], told["hash"])
        observer.look()


if __name__ == "__main__":
    sys.exit(main())
