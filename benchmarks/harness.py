"""Owns what every benchmark shares: numbers with limits, contenders in turns, one way to report.

A benchmark is a module with a function that returns a `Report`; `main` gives it its options, prints
a table or JSON and turns a missed limit into exit code 1. `python -m benchmarks` runs them all.

A quick run shows that a benchmark works, on sizes too small to judge by: its limits are shown and
not enforced.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One number, and the limit that it must keep where there is one."""

    name: str
    value: float
    #: "x" for a ratio, else what is counted: "ms", "MB", "blocks/s".
    unit: str
    #: The number must not be less.
    at_least: float | None = None
    #: The number must not be more.
    at_most: float | None = None

    @property
    def is_kept(self) -> bool:
        """Whether the limit holds; a number without one is only told."""
        if self.at_least is not None and not self.value >= self.at_least:
            return False
        return self.at_most is None or self.value <= self.at_most

    @property
    def limit(self) -> str:
        """The limit in words, empty where there is none."""
        if self.at_least is not None:
            return f"at least {self.at_least:g} {self.unit}"
        return "" if self.at_most is None else f"at most {self.at_most:g} {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a benchmark found."""

    measures: Sequence[Measure]
    #: Sizes and whatever else helps to read the numbers.
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_kept(self) -> bool:
        """Whether every limit holds."""
        return all(measure.is_kept for measure in self.measures)

    def document(self) -> dict[str, Any]:
        """The report as JSON has it."""
        for measure in self.measures:
            assert math.isfinite(measure.value), f"{measure.name} is no number"
        measures = [{**asdict(one), "is_kept": one.is_kept} for one in self.measures]
        return {"is_kept": self.is_kept, "measures": measures, "details": dict(self.details)}


def _no_options(parser: argparse.ArgumentParser) -> None:
    """Nothing may be chosen."""


def main(
    description: str | None,
    run: Callable[[argparse.Namespace], Report],
    options: Callable[[argparse.ArgumentParser], None] = _no_options,
) -> int:
    """Runs one benchmark from the command line; the exit code says whether its limits hold."""
    chosen = _parser(description, options).parse_args()
    report = run(chosen)
    if chosen.json:
        print(json.dumps(report.document()))
    else:
        show(report.document())
    return 0 if chosen.quick or report.is_kept else 1


def quick(benchmark: ModuleType) -> dict[str, Any]:
    """What a benchmark reports of a quick run, in this process."""
    options = getattr(benchmark, "options", _no_options)
    report: Report = benchmark.run(_parser(None, options).parse_args(["--quick"]))
    return report.document()


def show(document: Mapping[str, Any]) -> None:
    """Prints a report as a table."""
    for given in document["measures"]:
        print(line(_measure(given)))
    for name, value in document["details"].items():
        print(f"  {name}: {value}")


def line(measure: Measure) -> str:
    """One measure as a line of a table."""
    verdict = "" if not measure.limit else "  ok" if measure.is_kept else "  MISSED"
    value = f"{measure.value:,.3f}" if abs(measure.value) < 10 else f"{measure.value:,.1f}"
    return f"{measure.name:<54} {value:>10} {measure.unit:<9} {measure.limit:<20}{verdict}".rstrip()


def turns(
    contenders: Mapping[str, Callable[[], object]],
    *,
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median seconds of each contender; all run in turns, so a busy machine slows all alike."""
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(repeats + 1):
        for name, run in contenders.items():
            began = clock()
            run()
            if turn:  # The first turn warms up.
                spent[name].append(clock() - began)
    return {name: statistics.median(values) for name, values in spent.items()}


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def tell(text: str) -> None:
    """Says on standard error what is being done, so that a long benchmark is not silent."""
    print(text, file=sys.stderr, flush=True)


def _parser(
    description: str | None, options: Callable[[argparse.ArgumentParser], None]
) -> argparse.ArgumentParser:
    """What every benchmark understands, and what this one does beside."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, limits not enforced")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options(parser)
    return parser


def _measure(document: Mapping[str, Any]) -> Measure:
    return Measure(**{name: value for name, value in document.items() if name != "is_kept"})
