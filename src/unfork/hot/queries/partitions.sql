-- name: partitions_detach
-- Takes a partition out without stopping readers; waits for those that use it.
ALTER TABLE {raw}.{table} DETACH PARTITION {raw}.{partition} CONCURRENTLY;

-- name: partitions_detach_finish
-- Ends a detaching that was interrupted.
ALTER TABLE {raw}.{table} DETACH PARTITION {raw}.{partition} FINALIZE;

-- name: partitions_drop
-- Removes a table that is no longer a partition.
DROP TABLE IF EXISTS {raw}.{partition};

-- name: partitions_bytes
-- Bytes of one partition with its indexes.
SELECT pg_total_relation_size(format('%%I.%%I', %(schema)s::text, %(partition)s::text)::regclass)
       AS bytes;
