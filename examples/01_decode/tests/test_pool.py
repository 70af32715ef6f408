"""What the events of a pool become, well-formed and not."""

from pathlib import Path

from unfork.testing import chain

ABI = Path(__file__).parents[1] / "abis/pool.json"


def test_an_event_is_a_row_with_a_column_an_argument(spark_job):
    blocks = chain(
        """
        1: Swapped(sender=alice, amount0=2^254, amount1=-1, price=7, tick=-3, exact=true) by POOL
        2: Swapped(sender=bob, amount0=5, amount1=6, price=7, tick=8, exact=false) by OTHER
        """,
        abi=ABI,
    )
    rows = spark_job("pool_swapped", blocks)
    assert rows.select("address", "sender", "amount0", "amount1", "tick", "exact") == [
        ("POOL", "alice", 2**254, -1, -3, True),
        ("OTHER", "bob", 5, 6, 8, False),
    ]
    assert spark_job("large_swaps", blocks).select("pool", "amount0") == [("POOL", 2**254)]
