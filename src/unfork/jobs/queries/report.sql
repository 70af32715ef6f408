-- name: report_leases
-- Who computes what now, and what failed, with what went wrong last.
SELECT id, generation_id, job, kind, lower(span) AS first, upper(span) - 1 AS last, status, attempt,
       leased_by, lease_expires_at, not_before, error
FROM {app}.worker_leases
WHERE status <> 'COMPLETED'
ORDER BY job, lower(span);

-- name: report_runs
-- The last run of each job.
SELECT last.*
FROM {app}.jobs AS job
CROSS JOIN LATERAL (
    SELECT run.job, run.first_number, run.last_number, run.kind, run.reason, run.outcome,
           run.row_count, run.error, run.worker_name, run.started_at, run.finished_at
    FROM {app}.runs AS run
    WHERE run.job = job.job
    ORDER BY run.id DESC
    LIMIT 1
) AS last
ORDER BY last.job;

-- name: report_sizes
-- The bytes of each build, the pieces of its table and its indexes included.
SELECT generation.id, generation.dataset, generation.generation, generation.state,
       generation.created_at, generation.served_at, generation.retired_at,
       coalesce(
           (SELECT sum(pg_total_relation_size(tree.relid)) FROM pg_partition_tree(made.id) AS tree),
           pg_total_relation_size(made.id), 0
       )::bigint AS bytes
FROM {app}.generations AS generation
CROSS JOIN LATERAL (
    SELECT to_regclass(format('%%I.%%I', %(schema)s::text, generation.table_name)) AS id
) AS made
ORDER BY generation.dataset, generation.generation;

-- name: report_findings
-- What checks that only warn have found and nobody has computed again.
SELECT worker_name AS job, block_number, message, occurrences, last_seen_at
FROM {app}.indexing_errors
WHERE NOT resolved AND severity = 'WARN' AND message LIKE 'check %%'
ORDER BY job, block_number, id
LIMIT 1000;
