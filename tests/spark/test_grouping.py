"""Goal: tests that share the Spark of the run do so in one worker of xdist.

Method: a test that uses it looks at its own name, in which xdist writes the group it schedules by.
Where that is silently lost every worker starts a Spark, and the whole suite takes twice the time.
"""

from __future__ import annotations

import os

import pytest


@pytest.mark.usefixtures("spark")
@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="nothing to share: one worker")
def test_tests_that_use_spark_are_kept_together(request: pytest.FixtureRequest) -> None:
    assert request.node.nodeid.endswith("@spark")
