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
  AND NOT resolved
  AND (block_number BETWEEN %(first)s AND %(last)s OR block_number IS NULL);

-- name: errors_open
-- What is not resolved, newest first.
SELECT * FROM {app}.indexing_errors
WHERE NOT resolved
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s;
