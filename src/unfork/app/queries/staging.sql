-- name: staging_create
-- A place for the rows that the tasks of one run write; a crash of the server empties it.
CREATE UNLOGGED TABLE {app}.{staging} (
    LIKE {app}.{table}, unfork_task bigint NOT NULL, unfork_attempt bigint NOT NULL
);

-- name: staging_copy
-- Takes rows of one attempt of a task into it.
COPY {app}.{staging} ({columns}, "unfork_task", "unfork_attempt") FROM STDIN (FORMAT binary);

-- name: staging_source
-- The rows of the attempts that won.
(
    SELECT {columns}
    FROM {app}.{staging}
    JOIN unnest(%(tasks)s::bigint[], %(attempts)s::bigint[]) AS won (task, attempt)
        ON won.task = unfork_task AND won.attempt = unfork_attempt
)

-- name: staging_there
-- Whether there is such a place.
SELECT to_regclass(format('%%I.%%I', %(schema)s::text, %(staging)s::text)) IS NOT NULL AS is_there;

-- name: staging_counts
-- How many rows each attempt of a task has written.
SELECT unfork_task AS task, unfork_attempt AS attempt, count(*) AS row_count
FROM {app}.{staging}
GROUP BY 1, 2;

-- name: staging_drop
-- Removes it.
DROP TABLE IF EXISTS {app}.{staging};

-- name: staging_left
-- The places whose run has no lease any more.
SELECT class.relname AS name
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
WHERE namespace.nspname = %(schema)s
  AND class.relkind = 'r'
  AND class.relname ~ '^staging_[0-9]+$'
  AND NOT EXISTS (
      SELECT FROM {app}.worker_leases AS lease
      WHERE lease.status = 'ACTIVE' AND lease.token = substr(class.relname, 9)::bigint
  )
ORDER BY class.relname;
