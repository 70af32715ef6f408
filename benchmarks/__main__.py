"""Runs every benchmark, each in a process of its own, and prints one table of all that they say.

`python -m benchmarks` runs all, `python -m benchmarks latency memory` those named. Exits with 1
where a limit is missed or a benchmark fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import harness

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
    reports = {name: _run(name, is_quick=options.quick) for name in names}
    if options.json:
        print(json.dumps(reports))
    else:
        for name, document in reports.items():
            print(f"== {name}")
            print("  failed") if document is None else harness.show(document)
    failed = [name for name, document in reports.items() if document is None]
    missed = [name for name, each in reports.items() if each is not None and not each["is_kept"]]
    return 1 if failed or (missed and not options.quick) else 0


def _run(name: str, *, is_quick: bool) -> dict[str, Any] | None:
    """What one benchmark reports, None where it failed."""
    harness.tell(f"== {name}")
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json"]
    done = subprocess.run(
        [*command, "--quick"] if is_quick else command,
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
