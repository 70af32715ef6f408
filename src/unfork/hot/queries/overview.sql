-- name: overview_orphaned
-- The forks whose orphaned blocks are kept: how many, how deep, and when the last one was.
SELECT count(*) AS forks, coalesce(sum(depth), 0)::bigint AS blocks,
       coalesce(max(depth), 0)::bigint AS depth_max,
       (SELECT at FROM {raw}.journal WHERE seq = max(fork.unwind_seq)) AS last_at
FROM (
    SELECT unwind_seq, count(*) AS depth FROM {raw}.orphaned_blocks GROUP BY unwind_seq
) AS fork;

-- name: overview_chains
-- The raw schemas in this database: those that have a record of migrations and a chain's row.
SELECT namespace.nspname AS schema
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE right(namespace.nspname, 4) = '_raw' AND class.relname IN ('schema_migrations', 'chain')
GROUP BY namespace.nspname HAVING count(*) = 2
ORDER BY namespace.nspname;
