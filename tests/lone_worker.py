"""A worker in a process of its own, for tests that freeze it: `python -m tests.lone_worker`.

It computes one toy dataset of a drawn chain. It says `computing` when it has a lease, computes once
it is sent a line, and says how that ended.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests import crews, toy
from tests.journals import Journal
from tests.places import Place
from unfork.jobs.execute import Claimed
from unfork.jobs.lease import Policy

LEASE_S = 0.6


def wait(claimed: Claimed) -> None:
    print("computing", claimed.lease.token, flush=True)
    sys.stdin.readline()


async def main(dsn: str, name: str, folder: str, drawing: str) -> None:
    place = Place(dsn, name, Path(folder))
    journal = Journal().commit(drawing)
    policy = Policy(lease_s=LEASE_S)
    async with crews.crew(place, journal, toy.MOVES, policy=policy, work=wait) as made:
        await made.until(lambda: bool(made.happened))
    print(made.happened[0].outcome, flush=True)
    await place.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
