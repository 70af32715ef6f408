-- name: reset_tables
-- Some tables of the schema, partitions before the tables they belong to.
SELECT class.relname AS table_name
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relkind IN ('r', 'p')
ORDER BY class.relkind = 'p', class.relname
LIMIT %(limit)s;

-- name: reset_drop
-- Removes one table.
DROP TABLE IF EXISTS {raw}.{table} CASCADE;

-- name: reset_schema
-- Removes the schema with all that is left in it.
DROP SCHEMA IF EXISTS {raw} CASCADE;

-- name: reset_bytes
-- Bytes of all tables of the schema with their indexes.
SELECT coalesce(sum(pg_total_relation_size(class.oid)), 0)::bigint AS bytes
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s AND class.relkind = 'r';
