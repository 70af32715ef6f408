"""What `activity` counts, also where a fork moves a block over midnight."""

from datetime import date

from unfork.testing import chain

SHOWN = ("day", "from_address", "sent", "receivers", "failed")


def test_accounts_that_send_often_are_counted_by_day(spark_job):
    blocks = chain(
        """
        1 @ 2024-05-01 10:00: send alice -> bob 1; send alice -> bob 2; send bob -> alice 1
        2 @ 2024-05-01 11:00: send alice -> carol 1; failed send alice -> dave 1
        3 @ 2024-05-02 00:00: send bob -> alice 1; send bob -> carol 1
        """
    )
    rows = spark_job("activity", blocks)
    assert rows.select(*SHOWN) == [
        (date(2024, 5, 1), "alice", 4, 3, 1),
        (date(2024, 5, 2), "bob", 2, 2, 0),
    ]


def test_a_fork_that_moves_a_block_over_midnight_changes_both_days(spark_job):
    blocks = chain(
        """
        1 @ 2024-05-01 23:58:  send alice -> bob 1; send alice -> bob 2
        2 @ 2024-05-01 23:59:  send alice -> carol 1
        2' @ 2024-05-02 00:01: send alice -> carol 1
        3' @ 2024-05-02 00:02: send alice -> dave 1
        """
    )
    before, after = spark_job.states("activity", blocks)
    assert before.select(*SHOWN) == [(date(2024, 5, 1), "alice", 3, 2, 0)]
    assert after.select(*SHOWN) == [
        (date(2024, 5, 1), "alice", 2, 1, 0),
        (date(2024, 5, 2), "alice", 2, 2, 0),
    ]
