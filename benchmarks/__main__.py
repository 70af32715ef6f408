"""Runs every benchmark and prints one table of all that they say.

Each has a process, a Postgres and a Spark of its own. Quick runs, whose numbers nobody judges by,
share all three: starting them is nearly all that they take.

`python -m benchmarks` runs all, `python -m benchmarks latency memory` those named. Exits with 1
where a limit is missed or a benchmark fails.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, servers, sparks

#: The benchmarks, in the order of a block's way.
BENCHMARKS = (
    "decode",
    "commit",
    "unwind",
    "latency",
    "memory",
    "planning",
    "refork",
    "recompute",
    "live",
    "builtins",
    "spark_read",
    "transfers",
    "decode_logs",
    "staging",
)


def main() -> int:
    """Runs what was asked for and prints the summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"of {', '.join(BENCHMARKS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, limits not enforced")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    for name in options.names:
        if name not in BENCHMARKS:
            parser.error(f"no benchmark is called {name}; there are {', '.join(BENCHMARKS)}")
    names = options.names or BENCHMARKS
    reports = _quick(names) if options.quick else {name: _run(name) for name in names}
    if options.json:
        print(json.dumps(reports))
    else:
        for name, document in reports.items():
            print(f"== {name}")
            print("  failed") if document is None else harness.show(document)
    failed = [name for name, document in reports.items() if document is None]
    missed = [name for name, each in reports.items() if each is not None and not each["is_kept"]]
    return 1 if failed or (missed and not options.quick) else 0


def _quick(names: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    """What quick runs report; None where one failed."""
    reports: dict[str, dict[str, Any] | None] = {}
    with servers.shared(), sparks.shared():
        for name in names:
            harness.tell(f"== {name}")
            began = time.perf_counter()
            try:
                reports[name] = harness.quick(importlib.import_module(f"benchmarks.{name}"))
            except Exception:
                traceback.print_exc()
                reports[name] = None
            harness.tell(f"{time.perf_counter() - began:.1f} s")
    return reports


def _run(name: str) -> dict[str, Any] | None:
    """What one benchmark reports, None where it failed."""
    harness.tell(f"== {name}")
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--json"],
        stdout=subprocess.PIPE,
        cwd=_file(name).parents[1],
    )
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        harness.tell(f"{name} ended with {done.returncode} and without a report")
        return None
    return document


def _file(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.py").resolve()


if __name__ == "__main__":
    sys.exit(main())
