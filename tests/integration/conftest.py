"""Servers that a test may stop and freeze, apart from the one that all other tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration import own_postgres
from tests.integration.own_postgres import OwnPostgres
from tests.places import OLDEST, machine_binaries


@pytest.fixture(scope="module")
def own() -> Iterator[OwnPostgres]:
    """An embedded server for the tests of one module."""
    with own_postgres.made() as postgres:
        yield postgres


@pytest.fixture(scope="module", params=["embedded", "machine"])
def any_own(request: pytest.FixtureRequest) -> Iterator[OwnPostgres]:
    """An embedded server, then one of the machine's own Postgres."""
    binaries = None
    if request.param == "machine":
        binaries = machine_binaries()
        if binaries is None:
            pytest.skip(f"no Postgres {OLDEST} or newer on this machine (postgres, pg_ctl)")
    with own_postgres.made(binaries) as postgres:
        yield postgres
