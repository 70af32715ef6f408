"""Cold storage: Parquet files in immutable versions of partitions, of which one is current."""
