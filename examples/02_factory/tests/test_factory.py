"""Which events of pools count: from the block on in which a factory announced the pool."""

import json
from pathlib import Path

from unfork.testing import chain

ABIS = Path(__file__).parents[1] / "abis"
#: Every event of the project, and the registry where the configuration says it is.
ABI = [event for file in sorted(ABIS.glob("*.json")) for event in json.loads(file.read_text())]
NAMES = {"REGISTRY": "0xdc9225e694b9a544c811d3a34b865f50e19c384d"}


def test_a_pool_counts_from_its_announcement_on_and_goes_with_it(spark_job):
    blocks = chain(
        """
        1:  FactoryAdded(factory=FACTORY) by REGISTRY
        2:  Ping(n=1, who=alice) by POOL
        3:  PoolCreated(by=bob, pool=POOL, number=1) by FACTORY
        4:  Ping(n=2, who=alice) by POOL
        3': PoolCreated(by=bob, pool=POOL, number=1) by STRANGER
        4': Ping(n=2, who=alice) by POOL
        5': PoolCreated(by=bob, pool=POOL, number=1) by FACTORY; Ping(n=3, who=alice) by POOL
        """,
        abi=ABI,
        names=NAMES,
    )
    before, after = spark_job.states("pool_ping", blocks)
    assert before.select("block_hash", "n") == [("4", 2)]
    assert after.select("block_hash", "n") == [("5'", 3)]
