-- name: cold_pin
-- Keeps what is current from now on for a reader, for a bounded time.
INSERT INTO {app}.lake_pins (holder, move, expires_at)
SELECT $1, moves, clock_timestamp() + make_interval(secs => $2) FROM {app}.lake;

-- name: cold_any
-- Whether the lake holds any of a dataset's blocks.
SELECT 1 AS found
FROM {app}.lake_versions
WHERE dataset = $1 AND state = 'current' AND first_number <= $3 AND last_number >= $2
LIMIT 1;

-- name: cold_versions
-- The current versions that hold blocks of a span, ascending.
SELECT location, first_number, last_number, last_hash, files::text AS files
FROM {app}.lake_versions
WHERE dataset = $1 AND state = 'current' AND first_number <= $3 AND last_number >= $2
ORDER BY first_number;

-- name: cold_refs
-- The blocks held at some numbers.
SELECT number, hash FROM {raw}.blocks WHERE number = ANY ({numbers});
