"""Goal: a command that only looks answers at once, since it loads only what it needs.

Method: a fresh Python loads all commands, as `unfork --help` does, and says which of the libraries
that take long to load it has met.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

LOADING = """
import json, sys
from unfork.cli import main
for name in main.COMMANDS:
    main.cli.get_command(None, name)
print(json.dumps(sorted(sys.modules.keys() & {"aiohttp", "pandas", "pyspark", "pyarrow"})))
"""


def test_no_command_loads_spark_or_an_http_client_before_it_needs_them() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADING],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    # Arrow is how datasets are declared; that it is seen shows that the others would be.
    assert json.loads(done.stdout) == ["pyarrow"]
