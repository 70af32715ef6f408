-- name: maintenance_runs
-- Forgets runs that ended long ago, but for the last one of each job.
DELETE FROM {app}.runs WHERE id IN (
    SELECT run.id FROM {app}.runs AS run
    WHERE run.finished_at <= now() - make_interval(secs => %(keep_s)s)
      AND run.id < (SELECT max(later.id) FROM {app}.runs AS later WHERE later.job = run.job)
    ORDER BY run.id
    LIMIT %(limit)s
);

-- name: maintenance_data_invalidations
-- Forgets what everybody has processed long ago, with the rows of each job.
DELETE FROM {app}.data_invalidations WHERE id IN (
    SELECT id FROM {app}.data_invalidations
    WHERE processed_at <= now() - make_interval(secs => %(keep_s)s)
    LIMIT %(limit)s
);

-- name: maintenance_indexing_errors
-- Forgets errors that were resolved long ago.
DELETE FROM {app}.indexing_errors WHERE id IN (
    SELECT id FROM {app}.indexing_errors
    WHERE resolved_at <= now() - make_interval(secs => %(keep_s)s)
    ORDER BY id
    LIMIT %(limit)s
);

-- name: maintenance_contract_reads
-- Forgets what contracts answered long ago, but for what is good for as long as their code stays.
DELETE FROM {app}.contract_reads WHERE (address, data, block_hash) IN (
    SELECT address, data, block_hash FROM {app}.contract_reads
    WHERE code_hash IS NULL AND read_at <= now() - make_interval(secs => %(keep_s)s)
    LIMIT %(limit)s
);

-- name: maintenance_scheduled_tasks
-- Forgets what ran by the clock long ago, but for the last moment of each task.
DELETE FROM {app}.scheduled_tasks WHERE (task, moment) IN (
    SELECT old.task, old.moment FROM {app}.scheduled_tasks AS old
    WHERE old.finished_at <= now() - make_interval(secs => %(keep_s)s)
      AND old.moment < (
          SELECT max(later.moment) FROM {app}.scheduled_tasks AS later WHERE later.task = old.task
      )
    LIMIT %(limit)s
);
