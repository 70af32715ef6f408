-- name: unwind_plan
-- Makes the statements of this transaction find their few rows by index, however stale statistics are.
SET LOCAL enable_seqscan = off;

-- name: unwind_replace
-- Removes the rows above the target, and takes them out of the version they were part of.
WITH gone AS (
    DELETE FROM {app}.{table} AS held
    WHERE held.{number} > %(target)s
    RETURNING held.{number} AS number, {digest} AS digest
), ended AS (
    DELETE FROM {app}.partition_versions
    WHERE generation_id = %(id)s AND is_current AND first_number > %(target)s
), taken AS (
    SELECT version.version, count(gone.number) AS row_count, {content} AS content
    FROM {app}.partition_versions AS version
    LEFT JOIN gone ON gone.number BETWEEN version.first_number AND version.last_number
    WHERE version.generation_id = %(id)s
      AND version.is_current
      AND version.first_number <= %(target)s
      AND version.last_number > %(target)s
    GROUP BY version.version
)
UPDATE {app}.partition_versions AS version
SET last_number = %(target)s,
    last_hash = %(hash)s,
    row_count = version.row_count - taken.row_count,
    content_hash = version.content_hash - taken.content
FROM taken
WHERE version.generation_id = %(id)s AND version.version = taken.version;

-- name: unwind_append
-- Flags the rows above the target: their blocks are off the chain.
WITH flagged AS (
    INSERT INTO {app}.orphans (number, hash)
    SELECT DISTINCT held.{number}, held.{hash} FROM {app}.{table} AS held
    WHERE held.{number} > %(target)s
    ON CONFLICT DO NOTHING
), ended AS (
    DELETE FROM {app}.partition_versions
    WHERE generation_id = %(id)s AND is_current AND first_number > %(target)s
)
UPDATE {app}.partition_versions
SET last_number = %(target)s, last_hash = %(hash)s
WHERE generation_id = %(id)s
  AND is_current
  AND first_number <= %(target)s
  AND last_number > %(target)s;

-- name: unwind_vanished
-- Forgets the partitions of a build that lie above the target as a whole.
DELETE FROM {app}.partition_versions
WHERE generation_id = %(id)s AND is_current AND first_number > %(target)s
RETURNING partition_key, first_number;

-- name: unwind_rows
-- Removes the rows of such partitions.
DELETE FROM {app}.{table} AS held WHERE {scope};

-- name: unwind_cursors
-- Takes the watermarks above the target back to it.
UPDATE {app}.dataset_cursors AS cursor
SET cursor_value = CASE WHEN generation.first_number <= %(target)s THEN %(target)s END,
    cursor_hash = CASE WHEN generation.first_number <= %(target)s THEN %(hash)s::bytea END,
    updated_at = now()
FROM {app}.generations AS generation
WHERE generation.id = cursor.generation_id
  AND cursor.generation_id = ANY (%(generations)s)
  AND cursor.cursor_value > %(target)s;

-- name: unwind_leases
-- Ends the leases above the target; one completed over it is completed up to it.
WITH ended AS (
    DELETE FROM {app}.worker_leases
    WHERE upper(span) - 1 > %(target)s
      AND (status <> 'COMPLETED' OR lower(span) > %(target)s)
    RETURNING generation_id, job
)
UPDATE {app}.worker_leases
SET span = int8range(lower(span), %(target)s, '[]'), last_hash = %(hash)s, updated_at = now()
WHERE status = 'COMPLETED' AND upper(span) - 1 > %(target)s AND lower(span) <= %(target)s;

-- name: unwind_lake
-- Takes the pointers away from versions of the lake that hold blocks above the target.
WITH move AS (
    UPDATE {app}.lake SET moves = moves + 1
    WHERE EXISTS (
        SELECT FROM {app}.lake_versions WHERE state = 'current' AND last_number > %(target)s
    )
    RETURNING moves
)
UPDATE {app}.lake_versions AS version
SET state = 'retired', retired_move = move.moves, retired_at = now()
FROM move
WHERE version.state = 'current' AND version.last_number > %(target)s;
