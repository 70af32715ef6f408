"""Goal: tests that share what is slow to start (Spark, a cluster) run in one worker of xdist.

Method: a test of a group looks at its own name, in which xdist writes the group it schedules by. A
release of pytest in which that is silently lost doubles the time of the whole suite.
"""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("spark")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="nothing to share: one worker")
def test_a_group_of_tests_is_kept_together(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@spark")
