-- name: errors_record
-- Records an error, or counts it once more; one that came back is open again.
INSERT INTO {app}.indexing_errors AS known
    (worker_name, block_number, transaction_id, error_hash, severity, message, raw_data, raw_ref)
VALUES
    (%(worker_name)s, %(block_number)s, %(transaction_id)s, %(error_hash)s, %(severity)s,
     %(message)s, %(raw_data)s, %(raw_ref)s)
ON CONFLICT ON CONSTRAINT indexing_errors_once DO UPDATE
SET occurrences = known.occurrences + 1,
    severity = excluded.severity,
    raw_data = coalesce(excluded.raw_data, known.raw_data),
    raw_ref = coalesce(excluded.raw_ref, known.raw_ref),
    resolved = false,
    resolved_at = NULL,
    last_seen_at = now();

-- name: errors_resolve
-- Closes what a worker could not do in a span that it has done now.
UPDATE {app}.indexing_errors
SET resolved = true, resolved_at = now()
WHERE worker_name = %(worker_name)s
  AND generation_id IS NULL
  AND NOT resolved
  AND (block_number BETWEEN %(first)s AND %(last)s OR block_number IS NULL);

-- name: errors_open
-- What is not resolved, newest first.
SELECT * FROM {app}.indexing_errors
WHERE NOT resolved
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s;

-- name: errors_refused
-- Records the rows that a build refused in a span, each once, and closes those that it no longer does.
WITH told AS (
    SELECT *
    FROM unnest(%(blocks)s::bigint[], %(transactions)s::bytea[], %(hashes)s::bytea[],
                %(messages)s::text[], %(data)s::bytea[])
        AS one (block_number, transaction_id, error_hash, message, raw_data)
), closed AS (
    UPDATE {app}.indexing_errors AS known
    SET resolved = true, resolved_at = now()
    WHERE known.generation_id = %(generation_id)s
      AND NOT known.resolved
      AND known.block_number BETWEEN %(first)s AND %(last)s
      AND NOT EXISTS (
          SELECT FROM told
          WHERE told.block_number = known.block_number
            AND told.transaction_id IS NOT DISTINCT FROM known.transaction_id
            AND told.error_hash = known.error_hash
      )
)
INSERT INTO {app}.indexing_errors AS known
    (worker_name, generation_id, block_number, transaction_id, error_hash, severity, message,
     raw_data)
SELECT %(worker_name)s, %(generation_id)s, block_number, transaction_id, error_hash, 'WARN',
       message, raw_data
FROM told
ON CONFLICT ON CONSTRAINT indexing_errors_once DO UPDATE
SET occurrences = known.occurrences + known.resolved::integer,
    raw_data = excluded.raw_data,
    resolved = false,
    resolved_at = NULL,
    last_seen_at = now();

-- name: errors_unwind
-- Closes what builds refused in blocks that a fork takes away.
UPDATE {app}.indexing_errors
SET resolved = true, resolved_at = now()
WHERE generation_id IS NOT NULL AND NOT resolved AND block_number > %(target)s;
