"""Goal: a reader, however slow, never delays a commit (I7).

Method: a transaction that has read every raw table stays open while the real `unfork ingest`
follows a chain through forks and over the edges of several partitions.
"""

from __future__ import annotations

import time
from pathlib import Path

import psycopg

from tests.integration.live_chain import Follow, live
from tests.integration.unfork_process import Workplace
from tests.places import Server
from unfork.datasets import evm
from unfork.devnet.knobs import Knobs

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
            tmp_path, NAME, postgres.dsn, (chain.url,), settings={"partition_sizes": sizes}
        )
        follow = Follow(chain, postgres.dsn, NAME, workplace.payloads)
        process = await workplace.start()
        try:
            await follow.caught_up(process)
            slowest_s = 0.0
            async with await psycopg.AsyncConnection.connect(postgres.dsn) as reader:
                for dataset in evm.DATASETS:
                    query = f"SELECT count(*) FROM {NAME}_raw.{dataset.name}"
                    await reader.execute(query.encode())
                while chain.tree.head.number < 5 * SIZE:
                    chain.advance()
                    began = time.monotonic()
                    await follow.caught_up(process, timeout_s=60.0)
                    slowest_s = max(slowest_s, time.monotonic() - began)
                assert reader.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
            await follow.is_exact()
            # Far below any lock_timeout that a wait for the reader would have run into, and above
            # what a busy machine takes.
            assert slowest_s < 3.0, f"a block took {slowest_s:.1f} s"
        finally:
            await process.kill()
