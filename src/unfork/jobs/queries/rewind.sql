-- name: rewind_rows
-- Removes the rows above a block, to write them again.
DELETE FROM {app}.{table} WHERE {number} > %(number)s;

-- name: rewind_versions
-- Takes the versions of a build back to a block.
WITH ended AS (
    DELETE FROM {app}.partition_versions
    WHERE generation_id = %(id)s AND is_current AND first_number > %(number)s
)
UPDATE {app}.partition_versions
SET last_number = %(number)s, last_hash = %(hash)s
WHERE generation_id = %(id)s
  AND is_current
  AND first_number <= %(number)s
  AND last_number > %(number)s;

-- name: rewind_leases
-- Ends the leases of a build above a block.
DELETE FROM {app}.worker_leases
WHERE generation_id = %(id)s AND upper(span) - 1 > %(number)s;
