"""Goal: the process ends when it is told to, and there is only one of it per chain.

Method: the real `unfork ingest` gets SIGTERM at the head, in a backfill, while its database is
frozen and while its node never answers; a second one is started beside a first. All that it waits
for by itself is set to hours, so that an end which waited for one of them would never come.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

from tests.integration.live_chain import Follow, live
from tests.integration.own_postgres import OwnPostgres
from tests.integration.unfork_process import Process, Workplace
from tests.places import Server
from unfork.devnet.faults import Silence
from unfork.devnet.knobs import Knobs

#: Seconds in which a process must be gone after SIGTERM, on the busiest of machines.
END_S = 60.0
#: Longer than anything here has time for.
HOURS_S = 36_000
PATIENT_NODE = {"poll_interval_ms": HOURS_S * 1000, "request_timeout_s": HOURS_S}
PATIENT_DATABASE = {"statement_timeout_s": HOURS_S, "connect_timeout_s": HOURS_S}
KNOBS = Knobs(seed=3, density=3, fork_rate=0.1)


def placed(folder: Path, name: str, dsn: str, url: str, **settings: Any) -> Workplace:
    """A follower that waits for hours for whatever it waits for."""
    return Workplace(
        folder,
        name,
        dsn,
        (url,),
        settings=settings,
        source=PATIENT_NODE,
        database=PATIENT_DATABASE,
    )


async def ends(process: Process) -> None:
    """Tells the process to end and expects exit code 0."""
    process.signal(signal.SIGTERM)
    assert await process.wait(END_S) == 0, process.said()


async def test_sigterm_at_the_head_ends_it_at_once(postgres: Server, tmp_path: Path) -> None:
    async with live(KNOBS, blocks=20) as chain:
        workplace = placed(tmp_path, "sigterm", postgres.dsn, chain.url)
        follow = Follow(chain, postgres.dsn, "sigterm", workplace.payloads)
        process = await workplace.start()
        try:
            await follow.caught_up(process)
            await ends(process)
            await follow.is_exact()
        finally:
            await process.kill()


async def test_sigterm_in_a_backfill_leaves_whole_blocks(postgres: Server, tmp_path: Path) -> None:
    async with live(KNOBS, blocks=1_500) as chain:
        workplace = placed(tmp_path, "halfway", postgres.dsn, chain.url, batch_blocks_max=20)
        follow = Follow(chain, postgres.dsn, "halfway", workplace.payloads)
        process = await workplace.start()
        try:
            await follow.passes(1, process)
            await ends(process)
            await follow.is_exact()
            position = await follow.position()
            assert position is not None and position < 1_500, "it was not in a backfill"
        finally:
            await process.kill()


async def test_sigterm_ends_it_although_the_database_is_frozen(
    own: OwnPostgres, tmp_path: Path
) -> None:
    async with live(KNOBS, blocks=20) as chain:
        workplace = Workplace(
            tmp_path, "frozenend", own.dsn, (chain.url,), database=PATIENT_DATABASE
        )
        follow = Follow(chain, own.dsn, "frozenend", workplace.payloads)
        process = await workplace.start()
        try:
            await follow.caught_up(process)
            own.freeze()
            chain.extend(5)
            # It fetches the blocks and then waits for the database, which nobody can see from
            # outside; a second is many times what it takes to get there.
            await asyncio.sleep(1.0)
            await ends(process)
        finally:
            own.thaw()
            await process.kill()
        again = await workplace.start()
        try:
            await follow.caught_up(again)
            await follow.is_exact()
        finally:
            await again.kill()


async def test_sigterm_ends_it_although_the_node_never_answers(
    postgres: Server, tmp_path: Path
) -> None:
    async with live(KNOBS, blocks=20) as chain:
        source = {"request_timeout_s": HOURS_S}
        workplace = Workplace(tmp_path, "silent", postgres.dsn, (chain.url,), source=source)
        follow = Follow(chain, postgres.dsn, "silent", workplace.payloads)
        process = await workplace.start()
        try:
            await follow.caught_up(process)
            chain.faults.switch_on(Silence())
            asked = chain.faults.counts["Silence"]

            async def waits() -> bool:
                return chain.faults.counts["Silence"] > asked

            await process.until(waits)
            await ends(process)
        finally:
            await process.kill()


async def test_sigterm_ends_it_before_the_node_has_ever_answered(
    postgres: Server, tmp_path: Path
) -> None:
    async with live(KNOBS) as chain:
        chain.faults.switch_on(Silence())
        process = await placed(tmp_path, "mute", postgres.dsn, chain.url).start()
        try:

            async def waits() -> bool:
                return chain.faults.counts["Silence"] > 0

            await process.until(waits)
            await ends(process)
        finally:
            await process.kill()


async def test_a_second_writer_is_refused_and_the_first_goes_on(
    postgres: Server, tmp_path: Path
) -> None:
    async with live(KNOBS, blocks=20) as chain:
        workplace = Workplace(tmp_path, "twice", postgres.dsn, (chain.url,))
        follow = Follow(chain, postgres.dsn, "twice", workplace.payloads)
        first = await workplace.start()
        try:
            await follow.caught_up(first)
            chain.go(block_time_s=0.05)
            second = await workplace.run(timeout_s=60.0)
            assert second.exit_code == 5
            said = second.said() + second.out.read_text()
            assert "E303" in said and "another process" in said
            await chain.stand_still()
            await follow.caught_up(first)
            await follow.is_exact()
        finally:
            await first.kill()


async def test_sigterm_ends_it_while_it_waits_for_its_first_database(
    own: OwnPostgres, tmp_path: Path
) -> None:
    async with live(KNOBS) as chain:
        workplace = placed(tmp_path, "waiting", own.dsn, chain.url)
        await own.stop()
        try:
            process = await workplace.start()
            try:

                async def waits() -> bool:
                    return "waiting" in process.said()

                await process.until(waits)
                await ends(process)
            finally:
                await process.kill()
        finally:
            await own.start()
