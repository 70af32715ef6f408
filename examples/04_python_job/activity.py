"""Who sends transactions, by UTC day."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def senders(transactions: DataFrame, config: Mapping[str, Any]) -> DataFrame:
    """Accounts that sent at least so many transactions on a day, and to how many others."""
    sent = transactions.select(
        F.to_date("block_timestamp").alias("day"), "from_address", "to_address", "status"
    )
    counted = sent.groupBy("day", "from_address").agg(
        F.count(F.lit(1)).alias("sent"),
        F.count_distinct("to_address").alias("receivers"),
        F.count_if(F.col("status") == 0).alias("failed"),
    )
    return counted.where(F.col("sent") >= config["minimum"])
