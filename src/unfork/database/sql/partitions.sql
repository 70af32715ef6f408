-- name: partitions_of
-- The partitions of some tables, with their bounds as text.
SELECT parent.relname AS table_name, child.relname AS partition_name,
       pg_get_expr(child.relpartbound, child.oid) AS bounds,
       inherits.inhdetachpending AS is_leaving,
       greatest(child.reltuples, 0)::bigint AS row_count
FROM pg_inherits AS inherits
JOIN pg_class AS child ON child.oid = inherits.inhrelid
JOIN pg_class AS parent ON parent.oid = inherits.inhparent
JOIN pg_namespace AS namespace ON namespace.oid = parent.relnamespace
WHERE namespace.nspname = %(schema)s AND parent.relkind = 'p' AND parent.relname = ANY (%(tables)s)
ORDER BY 1, 2;

-- name: partitions_patience
-- How long this transaction waits for a lock.
SELECT set_config('lock_timeout', %(timeout)s, true);

-- name: partitions_lock
-- Lets one process at a time make partitions; held to the end of the transaction.
SELECT pg_advisory_xact_lock(%(key)s);

-- name: partitions_attach
-- Makes a table of its own, proves that it may only hold its span, then attaches it.
CREATE TABLE {schema}.{partition} (LIKE {schema}.{table} INCLUDING ALL);
ALTER TABLE {schema}.{partition} ADD CONSTRAINT {bounds}
    CHECK ({number} >= {first} AND {number} < {end});
ALTER TABLE {schema}.{table} ATTACH PARTITION {schema}.{partition} FOR VALUES FROM ({first}) TO ({end});
ALTER TABLE {schema}.{partition} DROP CONSTRAINT {bounds};
