"""Goal: a reader, however slow, never delays a commit (I7).

Method: a transaction that has read every raw table stays open while the real `unfork ingest`
follows a chain through forks and over the edges of several partitions. Whoever waits for a lock
waits for hours here, so that a commit which waited for the reader would never come.
"""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.integration.live_chain import Follow, live
from tests.integration.unfork_process import Workplace
from tests.places import Server
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs

#: Longer than anything here has time for.
HOURS_S = 36_000
#: Blocks in a partition: so few that many are needed while the reader reads.
SIZE = 20
NAME = "read"


async def test_an_open_reader_of_every_partition_delays_no_commit(
    postgres: Server, tmp_path: Path
) -> None:
    knobs = Knobs(seed=9, density=2, fork_rate=0.15, fork_depth_max=4)
    sizes = {dataset.name: SIZE for dataset in evm.DATASETS}
    async with live(knobs, blocks=10) as chain:
        workplace = Workplace(
            tmp_path,
            NAME,
            postgres.dsn,
            (chain.url,),
            settings={"partition_sizes": sizes},
            database={"lock_timeout_ms": HOURS_S * 1000, "statement_timeout_s": HOURS_S},
        )
        follow = Follow(chain, postgres.dsn, NAME, workplace.payloads)
        process = await workplace.start()
        try:
            await follow.caught_up(process)
            async with await psycopg.AsyncConnection.connect(postgres.dsn) as reader:
                for dataset in evm.DATASETS:
                    query = f"SELECT count(*) FROM {NAME}_raw.{dataset.name}"
                    await reader.execute(query.encode())
                while chain.tree.head.number < 5 * SIZE:
                    chain.advance()
                    await follow.caught_up(process)
                assert reader.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            await follow.is_exact()
        finally:
            await process.kill()
