"""Every benchmark runs: each is given tiny sizes and must hand back a sane report.

They run once, one after another, in one process with one Postgres and one Spark. Nothing here is
about speed. What is shown is that a benchmark still fits the code it measures, that its numbers are
numbers and that its limits are stated.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import harness
from benchmarks.harness import Measure, Report

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def quick() -> tuple[dict[str, Any], str]:
    """What all quick runs reported, and what they said meanwhile."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout), done.stderr


@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("benchmarks")
@pytest.mark.parametrize("name", benchmarks.BENCHMARKS)
def test_a_quick_run_reports_numbers_and_limits(
    name: str, quick: tuple[dict[str, Any], str]
) -> None:
    reports, said = quick
    document = reports[name]
    assert document is not None, said
    measures = document["measures"]
    assert any(one["at_least"] is not None or one["at_most"] is not None for one in measures)
    for one in measures:
        assert one["name"] and one["unit"]
        assert math.isfinite(one["value"])


def test_no_benchmark_is_left_out() -> None:
    files = (ROOT / "benchmarks").glob("[a-z]*.py")
    assert set(benchmarks.BENCHMARKS) == {
        file.stem for file in files if "return harness.main(__doc__" in file.read_text()
    }


def test_a_limit_that_is_missed_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = Report(
        measures=[
            Measure(name="kept", value=0.6, unit="x", at_least=0.6),
            Measure(name="broken", value=51.0, unit="ms", at_most=50.0),
        ]
    )
    for arguments, code in (([], 1), (["--quick"], 0), (["--json"], 1)):
        monkeypatch.setattr(sys, "argv", ["benchmark", *arguments])
        assert harness.main(None, lambda chosen: report) == code
    shown = capsys.readouterr().out.splitlines()
    assert [row.split()[-1] for row in shown[:2]] == ["ok", "MISSED"]
    assert json.loads(shown[-1])["is_kept"] is False


def test_a_number_that_is_none_is_not_reported() -> None:
    report = Report(measures=[Measure(name="nothing", value=math.nan, unit="ms", at_most=1.0)])
    assert not report.is_kept
    with pytest.raises(AssertionError, match="nothing is no number"):
        report.document()


def test_percentiles_are_values_that_were_seen() -> None:
    values = [float(value) for value in range(1, 101)]
    assert harness.percentile(values, 99) == 99.0
    assert harness.percentile(values, 100) == 100.0
    assert harness.percentile([7.0], 50) == 7.0
