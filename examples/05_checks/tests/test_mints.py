"""What the checks of `mints` keep back, and what they let pass."""

from unfork.testing import chain


def test_a_flood_is_kept_back_until_a_fork_takes_it_away(spark_job):
    blocks = chain(
        """
        1:  transfer nobody -> alice 500 DAI; transfer alice -> bob 5 DAI
        2:  transfer nobody -> mallory 2^200 DAI
        2': transfer nobody -> carol 7 DAI
        3': transfer nobody -> carol 2^200-1 DAI
        """
    )
    before, after = spark_job.states("mints", blocks, block_by_block=True)
    assert before.select("block_hash", "to_address", "amount") == [("1", "alice", 500)]
    assert "check `no_flood` failed for blocks 2..2" in before.failure
    assert f"amount: {2**200}" in before.failure
    assert after.failure is None
    assert after.select("block_hash", "to_address", "amount") == [
        ("1", "alice", 500),
        ("2'", "carol", 7),
        ("3'", "carol", 2**200 - 1),
    ]


def test_a_day_without_a_mint_is_only_warned_of(spark_job):
    blocks = chain(
        """
        1 @ 2024-05-01: transfer nobody -> alice 500 DAI
        2 @ 2024-05-03: transfer alice -> bob 5 DAI
        """
    )
    rows = spark_job("mints", blocks, block_by_block=True)
    assert len(rows) == 1
    (warning,) = rows.warnings
    assert "check `freshness` failed for blocks 2..2: the newest row is 2 days" in warning
