-- name: generations_all
-- Every build with its watermark, by id.
SELECT generation.*, cursor.cursor_value, cursor.cursor_hash, cursor.history_floor
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
ORDER BY generation.id;

-- name: generations_lock_all
-- The builds that are kept up to date, each kept from its writers to the end of the transaction.
SELECT generation.*, cursor.cursor_value, cursor.cursor_hash, cursor.history_floor
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
WHERE generation.state <> 'retired'
ORDER BY generation.id
FOR UPDATE OF cursor;

-- name: generations_lock
-- The builds of one dataset, each kept from its writers to the end of the transaction.
SELECT generation.*, cursor.cursor_value, cursor.cursor_hash, cursor.history_floor
FROM {app}.generations AS generation
JOIN {app}.dataset_cursors AS cursor ON cursor.generation_id = generation.id
WHERE generation.dataset = %(dataset)s
ORDER BY generation.id
FOR UPDATE OF generation, cursor;

-- name: generations_turn
-- Lets one process at a time change which builds there are; held to the end of the transaction.
SELECT pg_advisory_xact_lock(%(key)s);

-- name: generations_patience
-- How long this transaction waits for a lock.
SELECT set_config('lock_timeout', %(timeout)s, true);

-- name: generations_names
-- What is called so already, with the job that it belongs to where it is one of ours.
SELECT class.relname AS name, generation.dataset
FROM pg_class AS class
JOIN pg_namespace AS namespace ON namespace.oid = class.relnamespace
LEFT JOIN {app}.generations AS generation
    ON class.relkind = 'v' AND generation.dataset = class.relname
WHERE namespace.nspname = %(schema)s AND class.relname = ANY (%(names)s);

-- name: generations_job
-- Records a job, or what it reads now.
INSERT INTO {app}.jobs AS known (job, dataset, inputs)
VALUES (%(job)s, %(dataset)s, %(inputs)s)
ON CONFLICT (job) DO UPDATE
SET dataset = excluded.dataset, inputs = excluded.inputs, updated_at = now()
WHERE (known.dataset, known.inputs) IS DISTINCT FROM (excluded.dataset, excluded.inputs);

-- name: generations_note
-- Records a job that nothing was built for yet; nothing where it, or its dataset, is known.
INSERT INTO {app}.jobs (job, dataset, inputs)
VALUES (%(job)s, %(dataset)s, %(inputs)s)
ON CONFLICT DO NOTHING;

-- name: generations_writer
-- The job that writes a dataset.
SELECT job FROM {app}.jobs WHERE dataset = %(dataset)s;

-- name: generations_insert
-- Records a build, with the next number of its dataset.
INSERT INTO {app}.generations
    (dataset, job, generation, table_name, declaration, config_hash, schema_hash, first_number,
     state, served_at)
SELECT %(dataset)s, %(job)s, coalesce(max(generation), 0) + 1,
       %(dataset)s || '_g' || coalesce(max(generation), 0) + 1,
       %(declaration)s::jsonb, %(config_hash)s, %(schema_hash)s, %(first)s,
       %(state)s, CASE WHEN %(state)s = 'served' THEN now() END
FROM {app}.generations
WHERE dataset = %(dataset)s
RETURNING *;

-- name: generations_cursor
-- Makes the watermark of a new build, at nothing.
INSERT INTO {app}.dataset_cursors (generation_id, dataset, job_id, cursor_column)
SELECT %(id)s, dataset, job_id, %(cursor_column)s FROM {app}.jobs WHERE job = %(job)s;

-- name: generations_declare
-- Records what a build's job reads now and what it is computed with from now on.
UPDATE {app}.generations
SET config_hash = %(config_hash)s, declaration = %(declaration)s::jsonb
WHERE id = %(id)s AND state <> 'retired';

-- name: generations_state
-- Serves a build or retires it; a retired one has no more workers.
WITH ended AS (
    DELETE FROM {app}.worker_leases WHERE generation_id = %(id)s AND %(state)s = 'retired'
), settled AS (
    UPDATE {app}.invalidation_spans SET processed_at = now()
    WHERE generation_id = %(id)s AND %(state)s = 'retired' AND processed_at IS NULL
), refused AS (
    UPDATE {app}.indexing_errors SET resolved = true, resolved_at = now()
    WHERE generation_id = %(id)s AND %(state)s = 'retired' AND NOT resolved
)
UPDATE {app}.generations
SET state = %(state)s,
    served_at = CASE WHEN %(state)s = 'served' THEN now() ELSE served_at END,
    retired_at = CASE WHEN %(state)s = 'retired' THEN now() ELSE retired_at END
WHERE id = %(id)s;

-- name: generations_retired
-- The builds that were retired long enough ago.
SELECT id, table_name FROM {app}.generations
WHERE state = 'retired' AND retired_at <= now() - make_interval(secs => %(keep_s)s)
ORDER BY id;

-- name: generations_forget
-- Forgets a build with all that is known of it.
DELETE FROM {app}.generations WHERE id = %(id)s AND state = 'retired';

-- name: generations_drop_table
-- Removes the table of a build.
DROP TABLE IF EXISTS {app}.{table};

-- name: generations_drop_view
-- Removes the name under which a dataset is read.
DROP VIEW IF EXISTS {app}.{dataset};

-- name: generations_pause
-- Pauses a job or lets it go on; says whether there is such a job.
UPDATE {app}.jobs SET is_paused = %(is_paused)s, updated_at = now()
WHERE job = %(job)s OR %(job)s IS NULL
RETURNING job;

-- name: generations_jobs
-- Every job there is.
SELECT job, job_id, dataset, inputs, is_paused FROM {app}.jobs ORDER BY job;
