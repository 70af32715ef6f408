"""What `large_transfers` holds, through a fork."""

from unfork.testing import chain


def test_small_transfers_are_left_out_and_the_largest_number_is_exact(spark_job):
    blocks = chain(
        """
        1: transfer alice -> bob 999 DAI; transfer alice -> bob 1000 DAI
        2: transfer bob -> carol 2^256-1 DAI
        """
    )
    rows = spark_job("large_transfers", blocks)
    assert rows.select("from_address", "to_address", "amount") == [
        ("alice", "bob", 1000),
        ("bob", "carol", 2**256 - 1),
    ]
    assert rows[0]["token_address"] == blocks.address("DAI")


def test_a_fork_takes_its_rows_with_it(spark_job):
    blocks = chain(
        """
        1:  transfer alice -> bob 5000 DAI
        2:  transfer bob -> carol 2000 DAI
        2': transfer bob -> dave 3000 DAI       # block 2 of another fork
        3': transfer carol -> bob 1 DAI
        """
    )
    before, after = spark_job.states("large_transfers", blocks)
    shown = ("block_hash", "to_address", "amount")
    assert before.select(*shown) == [("1", "bob", 5000), ("2", "carol", 2000)]
    assert after.select(*shown) == [("1", "bob", 5000), ("2'", "dave", 3000)]
